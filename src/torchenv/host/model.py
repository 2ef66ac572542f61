"""What a machine has, as a value: read here, read from a file, or made up by a test."""

from __future__ import annotations

import re
from dataclasses import field
from enum import Enum
from typing import Any, NamedTuple

from packaging.version import Version

from torchenv.system.documents import Table, plain
from torchenv.system.values import frozen

SCHEMA = "torchenv.host/1"


class Status(Enum):
    """Three answers that lead to different environments; `UNREADABLE` never becomes `ABSENT`."""

    FOUND = "found"
    ABSENT = "absent"
    UNREADABLE = "unreadable"


class Capability(NamedTuple):
    """A CUDA compute capability: 8.9 is `Capability(8, 9)`."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Capability | None:
        """Read `8.9`; anything of another shape, such as `[N/A]`, is None."""
        match = re.fullmatch(r"\s*(\d{1,2})\.(\d)\s*", text)
        return cls(int(match[1]), int(match[2])) if match else None

    @classmethod
    def of_code(cls, sm: int) -> Capability:
        """Read the number of an SM target: sm_89 is 8.9 and sm_120 is 12.0."""
        return cls(sm // 10, sm % 10)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class WrittenVersion(Version):
    """A version that is shown as it was written: 580.65.06 stays so (PEP 440 prints 580.65.6)."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.written = version.strip()

    @classmethod
    def read(cls, text: str) -> WrittenVersion | None:
        """Read a version, or give None for a text that is none."""
        try:
            return cls(text)
        except ValueError:
            # Not a version, or numbers that are too long for one.
            return None

    def __str__(self) -> str:
        return self.written


@frozen
class Libc:
    """The C library; wheels for Linux need glibc."""

    family: str
    version: Version


@frozen(kw_only=True)
class Interpreter:
    """A Python that could be the base of an environment; one of conda's only where it is named."""

    version: Version
    path: str
    implementation: str = "cpython"
    free_threaded: bool = False
    machine: str
    conda: bool = False

    @property
    def minor(self) -> str:
        """The version by which wheels name it, such as `3.12` or `3.14t`."""
        return f"{self.version.major}.{self.version.minor}{'t' if self.free_threaded else ''}"


@frozen(kw_only=True)
class NvidiaDevice:
    """One NVIDIA GPU; a capability that could not be read is None, and unknown is not old."""

    index: int
    name: str
    compute_capability: Capability | None = None
    memory_mib: int | None = None
    mig: bool = False
    visible: bool = True


@frozen(kw_only=True)
class Nvidia:
    """What is known of NVIDIA's driver and GPUs; Tegra drivers have their own series of numbers.

    `l4t` is the release of Jetson Linux, such as 36.4.3 of JetPack 6.
    """

    status: Status = Status.ABSENT
    driver: WrittenVersion | None = None
    tegra: bool = False
    l4t: WrittenVersion | None = None
    devices: tuple[NvidiaDevice, ...] = ()


@frozen(kw_only=True)
class AmdDevice:
    """One AMD GPU by the name of its instruction set, such as gfx1100.

    `override` is what HSA_OVERRIDE_GFX_VERSION makes ROCm take it for, where that is another.
    """

    index: int
    name: str
    gfx: str | None = None
    override: str | None = None
    integrated: bool = False
    visible: bool = True


@frozen(kw_only=True)
class Amd:
    """What is known of AMD's GPUs."""

    status: Status = Status.ABSENT
    devices: tuple[AmdDevice, ...] = ()


@frozen(kw_only=True)
class IntelDevice:
    """One Intel GPU; `xpu` says whether PyTorch's XPU builds are documented for it."""

    index: int
    name: str
    xpu: bool | None = None
    integrated: bool = False
    visible: bool = True


@frozen(kw_only=True)
class Intel:
    """What is known of Intel's GPUs."""

    status: Status = Status.ABSENT
    devices: tuple[IntelDevice, ...] = ()


@frozen(kw_only=True)
class Apple:
    """Apple silicon, or its absence."""

    status: Status = Status.ABSENT
    chip: str | None = None


@frozen(kw_only=True)
class SeenEnvironment:
    """An environment that was there before torchenv came, its torch read from files.

    `active` marks the one that counts here; where it `was_found`, no shell is in it: the project holds it.
    """

    path: str
    python: Version | None = None
    torch: Version | None = None
    active: bool = False
    was_found: bool = False


@frozen
class Evidence:
    """The raw text behind a fact, identifiers masked; `outcome` is read, absent or failed."""

    source: str
    outcome: str
    text: str = ""


@frozen
class Problem:
    """Something about this machine that a person should know or fix; `vendor` whose devices it is about."""

    code: str
    source: str
    message: str
    # Where it comes from says it already, so two problems do not differ by it.
    vendor: str | None = field(default=None, compare=False)


@frozen(kw_only=True)
class Host:
    """A machine: this one, one that a file describes, or one that a test made up."""

    system: str
    machine: str
    captured_at: str | None = None
    libc: Libc | None = None
    macos: Version | None = None
    wsl: bool = False
    container: bool = False
    pythons: tuple[Interpreter, ...] = ()
    nvidia: Nvidia = Nvidia()
    amd: Amd = Amd()
    intel: Intel = Intel()
    apple: Apple = Apple()
    environments: tuple[SeenEnvironment, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def platform(self) -> str:
        """The platform by the catalogue's name for it, such as `linux-x86_64` or `darwin-arm64`."""
        return name_platform(self.system, self.machine)

    def accelerators(self, vendor: str) -> Nvidia | Amd | Intel:
        """Return what is known of one maker's devices: `nvidia`, `amd` or `intel`."""
        match vendor:
            case "nvidia":
                return self.nvidia
            case "amd":
                return self.amd
            case _:
                return self.intel

    @property
    def active(self) -> SeenEnvironment | None:
        """The environment in use, if one is."""
        return next((environment for environment in self.environments if environment.active), None)

    @classmethod
    def from_json(cls, text: str, source: str) -> Host:
        """Read a host document; raises `InputError` naming the file and the key."""
        return cls.parse(Table.from_json(text, source))

    @classmethod
    def parse(cls, table: Table) -> Host:
        """Read a `torchenv.host/1` document; keys of later additions are let pass."""
        if table.get("schema", str) != SCHEMA:
            remedy = "make one with `torchenv probe -o FILE`"
            raise table.wrong("schema", f"is not {SCHEMA}", remedy)
        machine = table.get("machine", str)
        return cls(
            captured_at=table.maybe("captured_at", str),
            system=table.one_of("system", ("linux", "darwin", "windows")),
            machine=machine,
            libc=_libc(table.table("libc")) if table.maybe("libc", dict) else None,
            macos=_version(table, "macos"),
            wsl=table.maybe("wsl", bool, default=False),
            container=table.maybe("container", bool, default=False),
            pythons=tuple(_interpreter(item, machine) for item in table.tables("pythons")),
            nvidia=_nvidia(_section(table, "nvidia")),
            amd=_amd(_section(table, "amd")),
            intel=_intel(_section(table, "intel")),
            apple=_apple(_section(table, "apple")),
            environments=tuple(_environment(item) for item in table.tables("environments")),
            evidence=tuple(_evidence(item) for item in table.tables("evidence")),
            problems=tuple(_problem(item) for item in table.tables("problems")),
        )

    def to_document(self) -> dict[str, Any]:
        """Return the `torchenv.host/1` document, whose keys are the names of the fields."""
        return {"schema": SCHEMA, **plain(self)}


def name_platform(system: str, machine: str) -> str:
    """Return the catalogue's name for a system and a processor: `linux-x86_64`, `darwin-arm64`."""
    processor = architecture(machine)
    if processor == "aarch64" and system != "linux":
        processor = "arm64"
    return f"{system}-{processor}"


def architecture(machine: str) -> str:
    """Return one name to a processor that systems call differently: amd64 is x86_64."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine.lower(), machine.lower())


def _section(table: Table, key: str) -> Table:
    # A section that is missing counts as absent, and so does a null.
    return table.table(key) if table.maybe(key, dict) else Table({}, table.source, key)


def _status(table: Table) -> Status:
    return Status(table.one_of("status", [status.value for status in Status], "absent"))


def _version(table: Table, key: str) -> WrittenVersion | None:
    text = table.maybe(key, str)
    if text is None:
        return None
    version = WrittenVersion.read(text)
    if version is None:
        raise table.wrong(key, f"`{text}` is not a version")
    return version


def _require_version(table: Table, key: str) -> Version:
    table.get(key, str)
    version = _version(table, key)
    assert version is not None
    return version


def _libc(table: Table) -> Libc:
    return Libc(table.one_of("family", ("glibc", "musl")), _require_version(table, "version"))


def _interpreter(table: Table, machine: str) -> Interpreter:
    return Interpreter(
        version=_require_version(table, "version"),
        path=table.get("path", str),
        implementation=table.maybe("implementation", str, default="cpython"),
        free_threaded=table.maybe("free_threaded", bool, default=False),
        machine=table.maybe("machine", str, default=machine),
        conda=table.maybe("conda", bool, default=False),
    )


def _require_indexes(table: Table) -> tuple[Table, ...]:
    """Return the tables of devices, which `--devices` tells apart by their numbers."""
    devices = table.tables("devices")
    taken: set[int] = set()
    for device in devices:
        index = device.get("index", int)
        if index < 0 or index in taken:
            said = "appears twice" if index in taken else "is not the number of a device"
            raise device.wrong("index", f"{index} {said}")
        taken.add(index)
    return devices


def _nvidia(table: Table) -> Nvidia:
    return Nvidia(
        status=_status(table),
        driver=_version(table, "driver"),
        tegra=table.maybe("tegra", bool, default=False),
        l4t=_version(table, "l4t"),
        devices=tuple(
            NvidiaDevice(
                index=device.get("index", int),
                name=device.get("name", str),
                compute_capability=_capability(device),
                memory_mib=device.maybe("memory_mib", int),
                mig=device.maybe("mig", bool, default=False),
                visible=device.maybe("visible", bool, default=True),
            )
            for device in _require_indexes(table)
        ),
    )


def _capability(table: Table) -> Capability | None:
    text = table.maybe("compute_capability", str)
    if text is None:
        return None
    capability = Capability.parse(text)
    if capability is None:
        raise table.wrong("compute_capability", f"`{text}` is not of the form 8.9")
    return capability


def _amd(table: Table) -> Amd:
    return Amd(
        status=_status(table),
        devices=tuple(
            AmdDevice(
                index=device.get("index", int),
                name=device.get("name", str),
                gfx=_gfx(device, "gfx"),
                override=_gfx(device, "override"),
                integrated=device.maybe("integrated", bool, default=False),
                visible=device.maybe("visible", bool, default=True),
            )
            for device in _require_indexes(table)
        ),
    )


def _gfx(table: Table, key: str) -> str | None:
    gfx = table.maybe(key, str)
    if gfx is not None and not re.fullmatch(r"gfx[0-9a-f]{3,4}", gfx):
        raise table.wrong(key, f"`{gfx}` is not of the form gfx1100")
    return gfx


def _intel(table: Table) -> Intel:
    return Intel(
        status=_status(table),
        devices=tuple(
            IntelDevice(
                index=device.get("index", int),
                name=device.get("name", str),
                xpu=device.maybe("xpu", bool),
                integrated=device.maybe("integrated", bool, default=False),
                visible=device.maybe("visible", bool, default=True),
            )
            for device in _require_indexes(table)
        ),
    )


def _apple(table: Table) -> Apple:
    return Apple(status=_status(table), chip=table.maybe("chip", str))


def _environment(table: Table) -> SeenEnvironment:
    return SeenEnvironment(
        path=table.get("path", str),
        python=_version(table, "python"),
        torch=_version(table, "torch"),
        active=table.maybe("active", bool, default=False),
        was_found=table.maybe("was_found", bool, default=False),
    )


def _evidence(table: Table) -> Evidence:
    outcome = table.one_of("outcome", ("read", "absent", "failed"))
    return Evidence(table.get("source", str), outcome, table.maybe("text", str, default=""))


def _problem(table: Table) -> Problem:
    code, source, message = (table.get(key, str) for key in ("code", "source", "message"))
    return Problem(code, source, message, vendor=table.maybe("vendor", str))
