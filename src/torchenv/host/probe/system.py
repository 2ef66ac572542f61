"""What kind of system this is: its name, processor, C library, macOS version and chip, and where it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from packaging.version import Version

from torchenv.host.model import Apple, Evidence, Libc, Problem, Status, WrittenVersion
from torchenv.host.probe.sources import Look, SeenEvidence, json_object, json_strings
from torchenv.system.process import Command
from torchenv.system.values import frozen

PYTHON = "this Python"
KERNEL_FILE = "/proc/version"
CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
CGROUP_FILE = "/proc/1/cgroup"
LDD, SYSCTL, SW_VERS = "ldd --version", "sysctl", "sw_vers"
PROFILER = "system_profiler SPDisplaysDataType -json"

_SYSCTLS = ("hw.optional.arm64", "sysctl.proc_translated", "machdep.cpu.brand_string")


@frozen(kw_only=True)
class System:
    """The part of a host that is not hardware to compute on, and what Apple's chip is."""

    system: str
    machine: str
    libc: Libc | None = None
    macos: Version | None = None
    wsl: bool = False
    container: bool = False
    apple: Apple


def describe_system(system: str, machine: str, libc: str = "") -> Evidence:
    """Write down what the Python that looks knows of its system."""
    said = {"system": system, "machine": machine, "libc": libc}
    return Evidence(PYTHON, "read", json.dumps(said))


def look(look: Look) -> dict[str, Command]:
    """Read what files tell; give the programs to be run beside others."""
    python = look.sources.python
    look.keep(describe_system(python["system"], python["machine"], python["libc"]))
    if python["system"] == "darwin":
        # Each value by its own line, and a name that is not known does not stop the others.
        return {SYSCTL: Command(("sysctl", *_SYSCTLS)), SW_VERS: Command(("sw_vers",))}
    if python["system"] != "linux":
        return {}
    look.at(KERNEL_FILE)
    look.at(CGROUP_FILE)
    look.variables("container", "KUBERNETES_SERVICE_HOST")
    for path in CONTAINER_FILES:
        look.at(path)
    return {} if python["libc"] else {LDD: Command(tuple(LDD.split()))}


def look_again(look: Look) -> dict[str, Command]:
    """Ask the slow tool for the chip where the quick one does not name it, as under Rosetta."""
    said = _sysctls(look.gathered)
    if _is_silicon(said, look.sources.python["machine"]) and not _chip(said):
        return {PROFILER: Command(tuple(PROFILER.split()))}
    return {}


def understand(seen: SeenEvidence) -> tuple[System, tuple[Problem, ...]]:
    """Make one answer of everything that was seen."""
    python = json_strings(seen.text(PYTHON))
    system, machine = python.get("system", "linux"), python.get("machine", "")
    if system == "darwin":
        return _mac(seen, machine)
    return System(
        system=system,
        machine=machine,
        libc=parse_libc(python.get("libc", "")) or parse_libc(seen.read_output(LDD)),
        wsl=is_wsl(seen.text(KERNEL_FILE) or ""),
        container=_in_container(seen),
        apple=Apple(),
    ), ()


def parse_libc(text: str) -> Libc | None:
    # glibc 2.39                                       (confstr)
    # ldd (Ubuntu GLIBC 2.35-0ubuntu3.8) 2.35
    # musl libc (x86_64)  Version 1.2.5
    if musl := re.search(r"musl libc.*?Version (\d{1,3}(?:\.\d{1,3})+)", text, re.DOTALL):
        return Libc("musl", Version(musl[1]))
    glibc = re.search(r"^glibc (\d{1,3}\.\d{1,3})|^ldd \(.*\) (\d{1,3}\.\d{1,3})", text, re.MULTILINE)
    return Libc("glibc", Version(glibc[1] or glibc[2])) if glibc else None


def is_wsl(kernel: str) -> bool:
    """Know Windows' own Linux by the name of its kernel."""
    # Linux version 6.6.87.2-microsoft-standard-WSL2 (root@builder) (gcc (GCC) 11.2.0, …
    return bool(re.match(r"Linux version \S*microsoft", kernel, re.IGNORECASE))


def parse_sw_vers(text: str) -> WrittenVersion | None:
    # ProductVersion:		14.7.1
    found = re.search(r"^ProductVersion:\s*([\d.]+)", text, re.MULTILINE)
    return WrittenVersion.read(found[1]) if found else None


def parse_profiler(text: str) -> str | None:
    """Return the name of the first GPU; Apple's is named as its chip."""
    # {"SPDisplaysDataType": [{"_name": "Apple M3 Pro", "sppci_model": "Apple M3 Pro"}]}
    try:
        model = json_object(text)["SPDisplaysDataType"][0]["sppci_model"]
    except (KeyError, IndexError, TypeError):
        return None
    return model if isinstance(model, str) else None


def _in_container(seen: SeenEvidence) -> bool:
    said_so = any(seen.text(path) is not None for path in CONTAINER_FILES)
    named = seen.variable("container") or seen.variable("KUBERNETES_SERVICE_HOST")
    group = re.search(r"/(?:docker|lxc|kubepods|containerd|libpod)", seen.text(CGROUP_FILE) or "")
    return bool(said_so or named or group)


def _sysctls(seen: SeenEvidence) -> dict[str, str]:
    # hw.optional.arm64: 1
    return dict(re.findall(r"^([\w.]+): (.+)$", seen.read_output(SYSCTL), re.MULTILINE))


def _is_silicon(said: Mapping[str, str], machine: str) -> bool:
    # Under Rosetta the processor calls itself Intel's; what runs the translation is not.
    flags = (said.get("sysctl.proc_translated"), said.get("hw.optional.arm64"))
    return machine == "arm64" or "1" in flags


def _chip(text: Mapping[str, str]) -> str | None:
    # machdep.cpu.brand_string: Apple M2              (under Rosetta: VirtualApple @ 2.50GHz)
    brand = text.get("machdep.cpu.brand_string", "")
    return brand if brand.startswith("Apple") else None


def _mac(seen: SeenEvidence, machine: str) -> tuple[System, tuple[Problem, ...]]:
    said = _sysctls(seen)
    macos = parse_sw_vers(seen.read_output(SW_VERS))
    if not _is_silicon(said, machine):
        return System(system="darwin", machine=machine, macos=macos, apple=Apple()), ()
    apple = Apple(status=Status.FOUND, chip=_chip(said) or parse_profiler(seen.read_output(PROFILER)))
    system = System(system="darwin", machine="arm64", macos=macos, apple=apple)
    if machine == "arm64":
        return system, ()
    message = (
        "this torchenv runs translated by Rosetta on Apple silicon: wheels are chosen for arm64,"
        " which needs an arm64 Python"
    )
    return system, (Problem("rosetta", SYSCTL, message),)
