"""The options that steer what is chosen, and the wish that they and a profile make."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchenv.cli.options import add_catalogue, add_installer, add_offline, add_only_wheels, add_profile
from torchenv.errors import InputError
from torchenv.host.model import Capability
from torchenv.plan import Wish
from torchenv.plan.python import is_path, is_version
from torchenv.profile.model import PREFERENCES

if TYPE_CHECKING:
    from torchenv.cli.session import Session


class Choice(NamedTuple):
    """What was said of the choice; None and nothing leave it to the profile."""

    version: str | None
    hosts: tuple[str, ...]
    backends: tuple[str, ...]
    python: str | None
    capability: Capability | None
    devices: tuple[int, ...] | None
    all_devices: bool
    prefer: str | None
    no_fallback: bool
    accept_cpu: bool
    accept_override: bool
    ask_torch: bool = False


def add_choice(parser: ArgumentParser, *, hosts: bool = False) -> None:
    """Declare the options that steer what is chosen; with `hosts`, `--host` takes several files at once."""
    group = parser.add_argument_group("selection")
    group.add_argument("version", nargs="?", help="A version (2.15.0), a line (2.15), a range or `latest`")
    add_profile(group, "Profile to plan for (default: torchenv.toml, else `default`)")
    group.add_argument(
        "--host",
        metavar="FILE",
        nargs="+" if hosts else None,
        action="extend" if hosts else "append",
        help="Plan for the machine that FILE describes (see `torchenv probe -o`)",
    )
    group.add_argument(
        "--backend", metavar="B", action="append", help="Use only this backend, such as cu132 or cpu"
    )
    group.add_argument("--python", metavar="V|PATH", help="Interpreter: 3.12, 3.14t or a path")
    group.add_argument("--capability", metavar="8.9", help="Compute capability, where it cannot be read")
    group.add_argument(
        "--devices", metavar="0,1|none", help="Consider only these devices; none for another machine"
    )
    group.add_argument("--prefer", choices=PREFERENCES, help="Prefer the default or the newest backend")
    group.add_argument("--no-fallback", action="store_true", help="Fail rather than choose an older release")
    group.add_argument("--accept-cpu", action="store_true", help="Go on even if an accelerator stays unused")
    group.add_argument(
        "--accept-override", action="store_true", help="Trust HSA_OVERRIDE_GFX_VERSION (unsupported)"
    )
    group.add_argument(
        "--ask-torch", action="store_true", help="Start the torch of an environment here to ask about a GPU"
    )
    add_offline(group)
    add_only_wheels(group)
    add_installer(group)
    add_catalogue(group)


def read_choice(flags: Namespace, cwd: Path) -> Choice:
    """Parse what was said of the choice; raises `InputError` for a malformed flag."""
    if flags.offline and getattr(flags, "online", False):
        raise InputError("`--offline` and `--online` exclude each other", hint="leave one of them out")
    version, backends = _split_build(flags.version, tuple(flags.backend or ()))
    return Choice(
        version=version,
        hosts=tuple(flags.host or ()),
        backends=backends,
        python=None if flags.python is None else parse_interpreter(flags.python, cwd),
        capability=None if flags.capability is None else _parse_capability(flags.capability),
        devices=None if flags.devices in (None, "all") else _parse_devices(flags.devices),
        all_devices=flags.devices == "all",
        prefer=flags.prefer,
        no_fallback=flags.no_fallback,
        accept_cpu=flags.accept_cpu,
        accept_override=flags.accept_override,
        ask_torch=flags.ask_torch,
    )


def write_choice(choice: Choice, session: Session) -> list[str]:
    """Write the words that say a choice again, for a command that follows; hosts are left out."""
    return [*([choice.version] if choice.version else []), *_write_flags(choice, session)]


def _write_flags(choice: Choice, session: Session) -> list[str]:
    settings = session.settings
    valued = (
        *(("--backend", tag) for tag in choice.backends),
        ("--python", choice.python),
        ("--capability", choice.capability and str(choice.capability)),
        ("--devices", None if choice.devices is None else ",".join(map(str, choice.devices)) or "none"),
        ("--prefer", choice.prefer),
        ("--profile", settings.profile),
        ("--catalogue", settings.named_catalogue and str(settings.named_catalogue)),
    )
    switches = {
        "--no-fallback": choice.no_fallback,
        "--accept-cpu": choice.accept_cpu,
        "--accept-override": choice.accept_override,
        "--ask-torch": choice.ask_torch,
        "--offline": settings.is_offline,
        "--only-wheels": settings.is_only_wheels,
    }
    return [
        *(word for name, value in valued if value for word in (name, value)),
        *(name for name, is_set in switches.items() if is_set),
    ]


def make_wish(choice: Choice, session: Session) -> Wish:
    """Join the flags and the profile into one wish."""
    profile = session.profile
    devices = profile.backend.devices if choice.devices is None else choice.devices
    return Wish(
        version=choice.version or profile.torch.version,
        packages=profile.torch.packages,
        python=choice.python or profile.python.version,
        free_threaded=profile.python.free_threaded,
        backends=choice.backends or profile.backend.only,
        by_hand=bool(choice.backends),
        prefer=choice.prefer or profile.backend.prefer,
        devices=None if choice.all_devices else devices,
        capability=choice.capability,
        fallback=not choice.no_fallback,
        accept_cpu=choice.accept_cpu or profile.backend.accept_cpu,
        accept_override=choice.accept_override,
        offline=session.settings.is_offline,
        distributed=profile.checkpoints.distributed,
        compiles=profile.wants_compile,
        torch_index=session.mirrors.torch,
        program=("torchenv",) if choice.hosts else session.settings.command,
        flags=tuple(_write_flags(choice._replace(no_fallback=False), session)),
    )


def parse_interpreter(text: str, cwd: Path) -> str:
    """Return a Python version as it is and a path as it is meant; raises `InputError`."""
    if is_path(text):
        return str(cwd / text)
    if not is_version(text):
        hint = "write --python 3.12, 3.14t, or the path of an interpreter"
        raise InputError(f"--python `{text}` is neither a Python version nor a path", hint=hint)
    return text


def _split_build(version: str | None, backends: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Take `2.15.0+cu132`, as torch and torchenv write a build, for the version and its backend."""
    if version is None or "+" not in version:
        return version, backends
    release, _, tag = version.partition("+")
    if backends not in ((), (tag,)):
        hint = f"leave out `--backend {backends[0]}`, or write the version as `{release}`"
        raise InputError(f"`{version}` and `--backend {backends[0]}` name two backends", hint=hint)
    return release, (tag,)


def _parse_devices(text: str) -> tuple[int, ...]:
    if text == "none":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise InputError(f"--devices `{text}` is not a list of numbers", hint="write --devices 0,1, or none")
    return tuple(map(int, parts))


def _parse_capability(text: str) -> Capability:
    capability = Capability.parse(text)
    if capability is None:
        raise InputError(f"--capability `{text}` is not a compute capability", hint="write --capability 8.9")
    return capability
