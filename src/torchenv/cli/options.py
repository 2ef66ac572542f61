"""The options of the choice, which several commands take, and the wish that they make with a profile."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path

from torchenv.errors import InputError
from torchenv.host.model import Capability
from torchenv.index.mirrors import Mirrors
from torchenv.plan import Wish
from torchenv.plan.python import is_path, is_version
from torchenv.profile.model import INSTALLERS, PREFERENCES, Profile


def add_choice(parser: ArgumentParser, *, hosts: bool = False) -> None:
    """Declare the options that steer what is chosen; with `hosts`, `--host` takes several files at once."""
    group = parser.add_argument_group("the choice")
    group.add_argument("version", nargs="?", help="a version (2.15.0), a line (2.15), a range or `latest`")
    group.add_argument(
        "--profile", metavar="NAME|FILE", help="what is wanted; else torchenv.toml, else `default`"
    )
    group.add_argument(
        "--host",
        metavar="FILE",
        nargs="+" if hosts else None,
        action="extend" if hosts else "append",
        help="plan for the machine that FILE describes",
    )
    group.add_argument(
        "--backend", metavar="B", action="append", help="take only this backend, such as cu132"
    )
    group.add_argument(
        "--python", metavar="V|PATH", type=_interpreter, help="the interpreter: 3.12, 3.14t or its path"
    )
    group.add_argument("--capability", metavar="8.9", help="the compute capability, where it cannot be read")
    group.add_argument("--devices", metavar="0,1", help="consider only these devices")
    group.add_argument("--prefer", choices=PREFERENCES, help="the default backend, or the newest one")
    group.add_argument("--no-fallback", action="store_true", help="take this release or none")
    group.add_argument("--accept-cpu", action="store_true", help="go on though an accelerator stays unused")
    group.add_argument(
        "--accept-override", action="store_true", help="trust HSA_OVERRIDE_GFX_VERSION, which nobody supports"
    )
    group.add_argument("--offline", action="store_true", help="use no network")
    group.add_argument(
        "--only-wheels", action="store_true", help="Take wheels alone: build nothing from source"
    )
    group.add_argument("--installer", choices=INSTALLERS, help="what installs the packages")
    group.add_argument(
        "--catalogue", metavar="FILE", help="a catalogue of your own, laid over the packaged one"
    )


def wish(arguments: Namespace, environ: Mapping[str, str], profile: Profile) -> Wish:
    """Settle flags, variables and the profile into one wish; raises `InputError` for a malformed flag."""
    backends = tuple(arguments.backend or ())
    return Wish(
        version=arguments.version or profile.torch.version,
        packages=profile.torch.packages,
        python=arguments.python or profile.python.version,
        free_threaded=profile.python.free_threaded,
        backends=backends or profile.backend.only,
        by_hand=bool(backends),
        prefer=arguments.prefer or profile.backend.prefer,
        devices=profile.backend.devices if arguments.devices is None else _numbers(arguments.devices),
        capability=_capability(arguments.capability),
        fallback=not arguments.no_fallback,
        accept_cpu=arguments.accept_cpu or profile.backend.accept_cpu,
        accept_override=arguments.accept_override,
        offline=arguments.offline,
        distributed=profile.checkpoints.distributed,
        torch_index=Mirrors.of(environ, profile.index).torch,
    )


def _interpreter(text: str) -> str:
    if is_path(text):
        # It is looked at as soon as it is read: it is meant from where the command was started.
        return str(Path(text).absolute())
    if not is_version(text):
        hint = "write --python 3.12, 3.14t, or the path of an interpreter"
        raise InputError(f"--python {text!r} is neither a Python version nor a path", hint=hint)
    return text


def _numbers(text: str) -> tuple[int, ...] | None:
    if text == "all":
        return None
    parts = [each.strip() for each in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", each) for each in parts):
        raise InputError(f"--devices {text!r} is not a list of numbers", hint="write --devices 0,1")
    return tuple(map(int, parts))


def _capability(text: str | None) -> Capability | None:
    capability = Capability.parse(text) if text is not None else None
    if text is not None and capability is None:
        raise InputError(f"--capability {text!r} is not a compute capability", hint="write --capability 8.9")
    return capability
