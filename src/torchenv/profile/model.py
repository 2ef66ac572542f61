"""What a person or a team wants of an environment; it says nothing of one machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import date, datetime, timedelta
from typing import NamedTuple

from torchenv.system.addresses import TorchIndex, mask_logins
from torchenv.system.documents import Table
from torchenv.system.names import parse_target_name
from torchenv.system.values import frozen

SCHEMA = 1
INSTALLERS = ("uv", "pip")
LINK_MODES = ("auto", "copy", "hardlink")
PREFERENCES = ("default", "newest")
TARGET_INDEXES = ("torch", "packages")

Command = tuple[str, ...]

# The sections are named tuples: made in a tenth of a dataclass's time, which every command pays.


class Torch(NamedTuple):
    """The torch that is wanted (a version, a line, a range or `latest`) and packages of its family."""

    version: str = "latest"
    packages: tuple[str, ...] = ()


class Python(NamedTuple):
    """The interpreter that is wanted, as `3.12` or a path; None leaves it to the rules of the choice."""

    version: str | None = None
    free_threaded: bool = False


class BackendChoice(NamedTuple):
    """What restricts the choice of a backend; `devices` None means all of them."""

    only: tuple[str, ...] = ()
    prefer: str = "default"
    devices: tuple[int, ...] | None = None
    accept_cpu: bool = False


class Packages(NamedTuple):
    """What is installed beside torch's family: PEP 508 requirements, and files that list them."""

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    editable: tuple[str, ...] = ()
    exclude_newer: date | datetime | None = None


class PrivateIndex(NamedTuple):
    """An index of one's own; the names in `packages`, such as `corp-*`, come from there and only there."""

    url: str
    packages: tuple[str, ...]


class Indexes(NamedTuple):
    """Mirrors: what stands in place of PyTorch's index and of the default package index; and private ones."""

    torch: TorchIndex | None = None
    packages: str | None = None
    private: tuple[PrivateIndex, ...] = ()

    @property
    def private_urls(self) -> frozenset[str]:
        """The addresses of the private indexes."""
        return frozenset(index.url for index in self.private)


class InstallSettings(NamedTuple):
    """How the packages are put in place."""

    installer: str = "uv"
    link_mode: str = "auto"


class Checkpoints(NamedTuple):
    """Where the checkpoints are, and what must stay readable."""

    roots: tuple[str, ...] = ()
    distributed: bool = False
    lifeboat_max_age: timedelta | None = None
    write_for: str | None = None


class Smoke(NamedTuple):
    """The commands that must pass before an environment is proven; `timeout` in seconds for each."""

    commands: tuple[Command, ...] = ()
    required: bool = False
    timeout: float = 600.0


class Metric(NamedTuple):
    """Which way a metric gets better and how much worse it may get: a share of the old value, or a number.

    The larger of both is allowed; an old value near zero has no share to speak of.
    """

    better: str
    relative: float = 0.0
    absolute: float = 0.0


@frozen(kw_only=True)
class Evaluation:
    """The commands that measure a model in two environments, and what may differ between them.

    They run `repeat` times in each, so that what differs by itself is told from what got worse.
    """

    commands: tuple[Command, ...] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    timeout: float = 3600.0
    repeat: int = 1


@frozen(kw_only=True)
class Target:
    """A kind of machine that a team locks for.

    `python` is a minor such as `3.12` or `3.14t`; without a `backend` it is what such a machine needs, and
    `capability` says which: `8.9` of an NVIDIA GPU, `gfx1100` of an AMD one. `torch` is another version than
    the profile's. `index` is where torch comes from: `torch` is PyTorch's own, `packages` the package index,
    which has one build a platform. `packages`, `extras` and `groups` of the project, and what `files` list,
    are asked for beside what the profile asks for.
    """

    name: str
    platform: str
    python: str
    backend: str | None = None
    capability: str | None = None
    torch: str | None = None
    index: str = "torch"
    packages: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def listed(self) -> tuple[str, ...]:
        """The files that list packages for it, its extras and groups as those of the project's own."""
        named = ",".join((*self.extras, *self.groups))
        return (*self.files, *([f"pyproject.toml[{named}]"] if named else []))


@frozen(kw_only=True)
class Profile:
    """All of it; everything has a default but the name."""

    name: str
    torch: Torch = Torch()
    python: Python = Python()
    backend: BackendChoice = BackendChoice()
    packages: Packages = Packages()
    index: Indexes = Indexes()
    install: InstallSettings = InstallSettings()
    checkpoints: Checkpoints = Checkpoints()
    smoke: Smoke = Smoke()
    evaluation: Evaluation = Evaluation()
    targets: tuple[Target, ...] = ()

    @property
    def wants_compile(self) -> bool:
        """Whether torch.compile is wanted: a command of it speaks of compiling, or Triton is required."""
        commands = (*self.smoke.commands, *self.evaluation.commands)
        words = (word.lower() for command in commands for word in command)
        return any("compile" in word for word in words) or any(
            re.match(r"triton\b(?!-)", requirement) for requirement in self.packages.requirements
        )

    @classmethod
    def from_toml(cls, text: str, source: str) -> Profile:
        """Read a profile or a `torchenv.toml`; raises `InputError` naming the file and the key."""
        return cls.parse(Table.from_toml(text, source))

    @classmethod
    def parse(cls, table: Table) -> Profile:
        """Read the document of contract `Profile`, schema 1."""
        table.schema(SCHEMA, remedy="a newer torchenv wrote it: upgrade torchenv")
        table.only({"schema", "name", *_SECTIONS, "target"})
        for section, keys in _SECTIONS.items():
            table.table(section).only(keys)
        return cls(
            name=parse_target_name(table, "name", "default"),
            torch=_torch(table.table("torch")),
            python=_python(table.table("python")),
            backend=_backend(table.table("backend")),
            packages=_packages(table.table("packages")),
            index=_indexes(table.table("index")),
            install=InstallSettings(
                installer=table.table("install").one_of("installer", INSTALLERS, "uv"),
                link_mode=table.table("install").one_of("link-mode", LINK_MODES, "auto"),
            ),
            checkpoints=_checkpoints(table.table("checkpoints")),
            smoke=Smoke(
                commands=_commands(table.table("smoke")),
                required=table.table("smoke").get("required", bool, default=False),
                timeout=_seconds(table.table("smoke"), 600.0),
            ),
            evaluation=Evaluation(
                commands=_commands(table.table("evaluation")),
                metrics=_metrics(table.table("evaluation").table("metrics")),
                timeout=_seconds(table.table("evaluation"), 3600.0),
                repeat=_repeat(table.table("evaluation")),
            ),
            targets=_targets(table.tables("target")),
        )


_SECTIONS: Mapping[str, frozenset[str]] = {
    "torch": frozenset({"version", "packages"}),
    "python": frozenset({"version", "free-threaded"}),
    "backend": frozenset({"only", "prefer", "devices", "accept-cpu"}),
    "packages": frozenset({"requirements", "constraints", "from", "editable", "exclude-newer"}),
    "index": frozenset({"torch", "packages", "private"}),
    "install": frozenset({"installer", "link-mode"}),
    "checkpoints": frozenset({"roots", "distributed", "lifeboat-max-age", "write-for"}),
    "smoke": frozenset({"commands", "required", "timeout"}),
    "evaluation": frozenset({"commands", "metrics", "repeat", "timeout"}),
}


def duration(text: str) -> timedelta | None:
    """Read a length of time such as `7d`, `12h` or `2w`; another shape is None."""
    match = re.fullmatch(r"([0-9]{1,5})\s*([hdw])", text.strip())
    unit = {"h": "hours", "d": "days", "w": "weeks"}
    return timedelta(**{unit[match[2]]: int(match[1])}) if match else None


def _torch(table: Table) -> Torch:
    # People list torch itself beside its family; it is there anyway.
    packages = tuple(string for string in table.strings("packages") if string != "torch")
    return Torch(version=table.get("version", str, "latest"), packages=packages)


def _python(table: Table) -> Python:
    free_threaded = table.get("free-threaded", bool, default=False)
    return Python(version=table.maybe("version", str), free_threaded=free_threaded)


def _backend(table: Table) -> BackendChoice:
    return BackendChoice(
        only=table.strings("only"),
        prefer=table.one_of("prefer", PREFERENCES, "default"),
        devices=_devices(table),
        accept_cpu=table.get("accept-cpu", bool, default=False),
    )


def _devices(table: Table) -> tuple[int, ...] | None:
    value = table.raw().get("devices", "all")
    if value == "all":
        return None
    if isinstance(value, list):
        return table.integers("devices")
    raise table.wrong("devices", 'must be "all" or a list of numbers such as [0, 1]')


def _packages(table: Table) -> Packages:
    return Packages(
        requirements=_requirements(table, "requirements"),
        constraints=_requirements(table, "constraints"),
        files=table.strings("from"),
        editable=table.strings("editable"),
        exclude_newer=table.get("exclude-newer", date, None),
    )


def _requirements(table: Table, key: str) -> tuple[str, ...]:
    texts = table.strings(key)
    if not texts:
        return ()
    # 18 ms, which a profile without requirements does not pay.
    from packaging.requirements import InvalidRequirement, Requirement

    for n, text in enumerate(texts):
        try:
            Requirement(text)
        except InvalidRequirement as error:
            raise table.wrong(f"{key}[{n}]", f"`{text}` is not a requirement: {error}") from None
    return texts


def _indexes(table: Table) -> Indexes:
    return Indexes(
        torch=_torch_index(table),
        packages=_address(table, "packages"),
        private=tuple(map(_private_index, table.tables("private"))),
    )


def _torch_index(table: Table) -> TorchIndex | None:
    # torch = "https://mirror.example/whl", torch = "https://devpi.example/{backend}/+simple", or
    # [index.torch] with one address for each backend
    if isinstance(table.raw().get("torch"), dict):
        by_backend = table.table("torch")
        addresses = {backend: _address(by_backend, backend) for backend in by_backend}
        return TorchIndex(by_backend={key: address for key, address in addresses.items() if address})
    root = _address(table, "torch")
    return TorchIndex(root) if root else None


def _private_index(table: Table) -> PrivateIndex:
    table.only({"url", "packages"})
    table.get("url", str)
    packages = table.strings("packages")
    if not packages:
        raise table.wrong("packages", "has no package name", "list the names that come from there: corp-*")
    for position, name in enumerate(packages):
        if not re.fullmatch(r"[A-Za-z0-9*][A-Za-z0-9._*-]*", name) or not name.strip("*"):
            raise table.wrong(f"packages[{position}]", f"`{name}` is not a name such as corp-utils or corp-*")
    return PrivateIndex(
        url=_address(table, "url") or "",
        packages=tuple(re.sub(r"[-_.]+", "-", name).lower() for name in packages),
    )


def _address(table: Table, key: str) -> str | None:
    address = table.maybe(key, str)
    if address is None:
        return None
    if mask_logins(address) != address:
        hint = "remove it from the address, then store it in ~/.netrc or in keyring"
        raise table.wrong(key, f"`{mask_logins(address)}` is written with a login", hint)
    if not re.match(r"(https?|file)://", address):
        raise table.wrong(key, f"`{address}` is not an address that begins with https:// or file://")
    return address.rstrip("/") or None


def _checkpoints(table: Table) -> Checkpoints:
    age = table.maybe("lifeboat-max-age", str)
    if age is not None and duration(age) is None:
        raise table.wrong("lifeboat-max-age", f"`{age}` is not a length of time such as 7d or 12h")
    return Checkpoints(
        roots=table.strings("roots"),
        distributed=table.get("distributed", bool, default=False),
        lifeboat_max_age=duration(age) if age else None,
        write_for=table.maybe("write-for", str),
    )


def _commands(table: Table) -> tuple[Command, ...]:
    commands = table.get("commands", list, [])
    for n, command in enumerate(commands):
        words = isinstance(command, list) and command and all(isinstance(item, str) for item in command)
        if not words:
            hint = 'write each command as a list of words: ["python", "smoke.py"]'
            raise table.wrong(f"commands[{n}]", "is not a command", hint)
    return tuple(tuple(command) for command in commands)


def _seconds(table: Table, default: float) -> float:
    seconds = table.get("timeout", float, default)
    if not seconds > 0:
        raise table.wrong("timeout", f"{seconds:g} is not a number of seconds above zero")
    return seconds


def _repeat(table: Table) -> int:
    repeat = table.get("repeat", int, 1)
    if not 1 <= repeat <= 100:
        raise table.wrong("repeat", f"{repeat} is not a number of runs from 1 to 100")
    return repeat


def _metrics(table: Table) -> Mapping[str, Metric]:
    metrics = {}
    for name in table:
        metric = table.table(name)
        metric.only({"better", "relative", "absolute", "tolerance"})
        better = metric.one_of("better", ("lower", "higher", "equal"), "equal")
        # Version 0.1.0 knew `tolerance` alone, which was a share.
        relative = metric.get("relative", float, metric.get("tolerance", float, 0.0))
        metrics[name] = Metric(better, relative, metric.get("absolute", float, 0.0))
    return metrics


def _targets(tables: tuple[Table, ...]) -> tuple[Target, ...]:
    targets: dict[str, Target] = {}
    for table in tables:
        table.only(_TARGET_KEYS)
        target = Target(
            name=parse_target_name(table, "name"),
            platform=table.get("platform", str),
            python=_minor(table),
            backend=table.maybe("backend", str),
            capability=_capability(table),
            torch=table.maybe("torch", str),
            index=table.one_of("index", TARGET_INDEXES, "torch"),
            packages=_requirements(table, "packages"),
            extras=_words(table, "extras"),
            groups=_words(table, "groups"),
            files=table.strings("from"),
        )
        if target.name in targets:
            raise table.wrong("name", f"`{target.name}` names two targets")
        targets[target.name] = target
    return tuple(targets.values())


_TARGET_KEYS = frozenset(
    {
        "name",
        "platform",
        "python",
        "backend",
        "capability",
        "torch",
        "index",
        "packages",
        "extras",
        "groups",
        "from",
    }
)


def _words(table: Table, key: str) -> tuple[str, ...]:
    words = table.strings(key)
    for position, word in enumerate(words):
        if not re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", word):
            raise table.wrong(f"{key}[{position}]", f"`{word}` names no extra and no dependency group")
    return words


def _minor(table: Table) -> str:
    python = table.get("python", str)
    if not re.fullmatch(r"3\.\d+t?", python):
        raise table.wrong(
            "python", f"`{python}` is not a minor version such as 3.12, or 3.14t without the GIL"
        )
    return python


def _capability(table: Table) -> str | None:
    capability = table.maybe("capability", str)
    if capability is not None and not re.fullmatch(r"\d{1,2}\.\d|gfx[0-9a-f]{3,4}", capability):
        raise table.wrong("capability", f"`{capability}` is neither of the form 8.9 nor of the form gfx1100")
    return capability
