"""NVIDIA: the kernel's files, then NVML, libcuda and `nvidia-smi`, each trusted before the next."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torchenv.host.model import Capability, Evidence, Nvidia, NvidiaDevice, Problem, Status, WrittenVersion
from torchenv.host.probe import nvidia_smi, pci, visible
from torchenv.host.probe.sources import Look, SeenEvidence, child, json_object
from torchenv.system.process import Command
from torchenv.system.values import frozen

N = TypeVar("N", int, None)

DRIVER_FILE = "/proc/driver/nvidia/version"
MODULE_FILE = "/sys/module/nvidia/version"
GPU_FILES = "/proc/driver/nvidia/gpus"
MODEL_FILE = "/proc/device-tree/model"
COMPATIBLE_FILE = "/proc/device-tree/compatible"
TEGRA_FILE = "/etc/nv_tegra_release"
WSL_LIBRARIES = "/usr/lib/wsl/lib"
WSL_TOOL = f"{WSL_LIBRARIES}/nvidia-smi"

LIBRARIES, NVML, LIBCUDA = "NVML and libcuda", "NVML", "libcuda"
QUERY, OLD_QUERY = (" ".join(nvidia_smi.query(item)) for item in (nvidia_smi.QUERY, nvidia_smi.OLD_QUERY))
XML, SCREEN, LIST = "nvidia-smi -q -x", "nvidia-smi", "nvidia-smi -L"

# What the child says on the other stream, before it asks what may never answer.
LOADED = "libnvidia-ml is loaded"

MISMATCH = "driver-library-mismatch"

# A library that is installed where there is no GPU says one of these; that proves nothing.
_CUDA_SAYS_NOTHING = (34, 100)  # CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_NO_DEVICE

# From JetPack 7 on, Jetson boards run the ordinary driver of the server series.
_FIRST_COMMON_DRIVER = WrittenVersion("580")
_FIRST_COMMON_L4T = WrittenVersion("38")


def look(look: Look) -> dict[str, Command]:
    """Read the kernel's files; give the programs to be run beside others."""
    look.variables("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    system = look.sources.python["system"]
    if system == "darwin":
        return {}
    if system == "linux":
        look.at(DRIVER_FILE)
        look.at(MODULE_FILE)
        for name in look.within(GPU_FILES):
            look.at(f"{GPU_FILES}/{name}/information")
        look.at(MODEL_FILE)
        look.at(COMPATIBLE_FILE)
        look.at(TEGRA_FILE)
        look.within(WSL_LIBRARIES)
    programs = {QUERY: _tool(look, QUERY)}
    if "MIG-" in look.sources.variables.get("CUDA_VISIBLE_DEVICES", ""):
        programs[LIST] = _tool(look, LIST)
    if look.sources.libraries:
        programs[LIBRARIES] = child("ask_nvml.py", _home_of_pynvml())
    return programs


def look_again(look: Look) -> dict[str, Command]:
    """Keep NVML's and libcuda's answers apart; give what to ask a tool that did not understand."""
    answers = look.take(LIBRARIES)
    if answers is not None:
        for source, outcome, text in _apart(answers):
            look.keep(Evidence(source, outcome, text))
    seen = look.gathered
    unasked = seen.read_output(QUERY) and not nvidia_smi.parse_query(seen.read_output(QUERY))
    if not unasked or nvidia_smi.complaint(seen.read_output(QUERY)) or QUERY in look.silent:
        return {}
    return {source: _tool(look, source) for source in (OLD_QUERY, XML, SCREEN, LIST)}


def understand(seen: SeenEvidence, *, wsl: bool) -> tuple[Nvidia, tuple[Problem, ...]]:
    """Make one answer of everything that was seen."""
    driver, disagreement = _driver(seen)
    board = _read_board(seen)
    cards = pci.displays(seen, pci.NVIDIA)
    complaints = _complaints(seen, wsl=wsl)
    devices = _choose_source(seen)
    if not complaints:
        devices = devices or _files(seen)
    devices = board.complete(devices)
    tegra = bool(
        (board.is_jetson or any("(nvgpu)" in known.name for known in devices))
        and (driver is None or driver < _FIRST_COMMON_DRIVER)
        and (board.l4t is None or board.l4t < _FIRST_COMMON_L4T)
    )
    nvidia = Nvidia(status=Status.UNREADABLE, driver=driver, tegra=tegra, l4t=board.l4t)
    notes = board.describe()
    broken = disagreement or next((problem for problem in complaints if problem.code == MISMATCH), None)
    if devices and not broken:
        found, masked = _mask(seen, devices)
        problems = (*complaints, *_describe_held(cards), *((masked,) if masked else ()), *notes)
        return replace(nvidia, status=Status.FOUND, devices=found), problems
    if disagreement:
        complaints.append(disagreement)
    # Windows lends these only where it has a driver of NVIDIA.
    lent = wsl and "libcuda.so.1" in (seen.text(WSL_LIBRARIES) or "").splitlines()
    sighted = bool(driver or cards or board.is_jetson or lent or seen.has_failed(DRIVER_FILE))
    if not complaints and sighted:
        complaints.append(_make_problem(driver, cards, wsl=wsl))
    if not complaints:
        return Nvidia(), ()
    if not sighted and not wsl and pci.is_bus_read(seen):
        return Nvidia(), tuple(_explain_idle_tool(problem) for problem in complaints)
    return nvidia, (*complaints, *_describe_held(cards), *notes)


def parse_driver_file(text: str) -> WrittenVersion | None:
    # NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024
    # NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (...)
    found = re.search(r"NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text)
    return WrittenVersion.read(found[1]) if found else None


@frozen(kw_only=True)
class _Known:
    """A device with the names that a mask may call it by."""

    device: NvidiaDevice
    uuid: str | None = None
    parts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.device.name


def _tool(look: Look, source: str) -> Command:
    words = source.split()
    # WSL mounts the tool beside the driver's libraries, and not every shell has that on its PATH.
    if not look.sources.has_program(words[0]) and os.path.exists(look.sources.path(WSL_TOOL)):
        words[0] = WSL_TOOL
    return Command(tuple(words))


def _home_of_pynvml() -> str:
    # Found without being imported: the child that is run with `-I` would not find it everywhere.
    from importlib.util import find_spec

    spec = find_spec("pynvml")
    return str(Path(spec.origin).parent) if spec and spec.origin else ""


def _apart(said: str) -> Iterable[tuple[str, str, str]]:
    answers = json_object(said.partition("\n")[0])
    if not answers:
        # Without the library it was only the child that failed, and that says nothing of a GPU.
        yield (NVML, "failed", said) if LOADED in said else (NVML, "absent", "")
        return
    for source, answer in ((NVML, answers.get("nvml")), (LIBCUDA, answers.get("libcuda"))):
        if answer is None:
            yield source, "absent", ""
        elif "error" in answer:
            yield source, "failed", json.dumps(answer)
        else:
            yield source, "read", json.dumps(answer)


def _driver(seen: SeenEvidence) -> tuple[WrittenVersion | None, Problem | None]:
    kernel = parse_driver_file(seen.text(DRIVER_FILE) or "")
    kernel = kernel or WrittenVersion.read((seen.text(MODULE_FILE) or "").strip())
    if kernel:
        return kernel, None
    told = json_object(seen.text(NVML)).get("driver")
    if isinstance(told, str) and (driver := WrittenVersion.read(told)):
        return driver, None
    rows = [row for source in _queries(seen) for row in nvidia_smi.parse_query(seen.read_output(source))]
    versions = list(dict.fromkeys(row["driver_version"] for row in rows if row["driver_version"]))
    if len(versions) > 1:
        message = f"nvidia-smi names two drivers, {versions[0]} and {versions[1]}"
        return None, Problem("drivers-disagree", QUERY, message)
    if versions:
        return WrittenVersion.read(versions[0] or ""), None
    log = nvidia_smi.parse_xml(seen.read_output(XML)) if seen.read_output(XML) else None
    return (log and log.driver) or nvidia_smi.parse_screen(seen.read_output(SCREEN)).driver, None


def _queries(seen: SeenEvidence) -> tuple[str, ...]:
    # Another torchenv may have asked for other fields: the text says which they are.
    return tuple(item.source for item in seen.starting("nvidia-smi --query-gpu"))


def _choose_source(seen: SeenEvidence) -> tuple[_Known, ...]:
    """Take the first source that was asked and named a device at all."""
    listed = nvidia_smi.parse_list(seen.read_output(LIST))
    parts = {uuid: slices for _, uuid, slices in listed}
    for source in (NVML, LIBCUDA):
        if told := _list_answers(seen, source):
            return tuple(_make_known(number, answer, parts) for number, answer in told)
    for source in _queries(seen):
        if rows := nvidia_smi.parse_query(seen.read_output(source)):
            return tuple(_row(number, row, parts) for number, row in enumerate(rows))
    log = nvidia_smi.parse_xml(seen.read_output(XML)) if seen.read_output(XML) else None
    if log:
        return tuple(
            _Known(
                device=NvidiaDevice(index=number, name=gpu.name, mig=gpu.mig),
                uuid=gpu.uuid,
                parts=parts.get(gpu.uuid or "", ()),
            )
            for number, gpu in enumerate(log.devices)
        )
    screen = nvidia_smi.parse_screen(seen.read_output(SCREEN))
    sliced = dict(enumerate(screen.mig))
    if listed:
        # The screen cuts names short, and the list does not.
        return tuple(
            _Known(
                device=NvidiaDevice(index=number, name=name, mig=bool(slices) or sliced.get(number, False)),
                uuid=uuid,
                parts=slices,
            )
            for number, (name, uuid, slices) in enumerate(listed)
        )
    return tuple(
        _Known(device=NvidiaDevice(index=number, name=name, mig=sliced[number]))
        for number, name in enumerate(screen.names)
    )


def _list_answers(seen: SeenEvidence, source: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the devices that a library could be asked about, with their numbers."""
    told = json_object(seen.text(source)).get("devices")
    answers = enumerate(told if isinstance(told, list) else ())
    return [
        (number, answer if isinstance(answer, dict) else {})
        for number, answer in answers
        if not (isinstance(answer, dict) and "error" in answer)
    ]


def _find_lost(seen: SeenEvidence) -> Problem | None:
    """Return what is wrong with a GPU that the driver counts and that cannot be asked any more."""
    told = json_object(seen.text(NVML)).get("devices")
    answers = [answer for answer in (told if isinstance(told, list) else ()) if isinstance(answer, dict)]
    lost = [answer for answer in answers if "error" in answer]
    if not lost:
        return None
    numbers = ", ".join(str(answer.get("index")) for answer in lost)
    message = f"the driver lost GPU {numbers} ({lost[0]['error']}): reboot to get it back"
    return Problem("gpu-lost", NVML, message)


def _files(seen: SeenEvidence) -> tuple[_Known, ...]:
    files = [item.text for item in seen.starting(f"{GPU_FILES}/") if item.outcome == "read"]
    return tuple(_file(number, text) for number, text in enumerate(files))


def _make_known(number: int, told: Mapping[str, Any], parts: Mapping[str, tuple[str, ...]]) -> _Known:
    uuid = str(told.get("uuid") or "")
    slices = told.get("slices")
    return _Known(
        device=NvidiaDevice(
            index=number,
            name=str(told.get("name") or "NVIDIA GPU"),
            compute_capability=Capability.parse(str(told.get("compute_cap") or "")),
            memory_mib=_whole(str(told.get("memory_mib")), None),
            mig=bool(told.get("mig")),
        ),
        uuid=uuid or None,
        parts=tuple(map(str, slices)) if isinstance(slices, list) else parts.get(uuid, ()),
    )


def _row(number: int, row: Mapping[str, str | None], parts: Mapping[str, tuple[str, ...]]) -> _Known:
    uuid = row.get("uuid")
    return _Known(
        device=NvidiaDevice(
            index=_whole(row.get("index"), number),
            name=row.get("name") or "NVIDIA GPU",
            compute_capability=Capability.parse(row.get("compute_cap") or ""),
            memory_mib=_whole(row.get("memory.total"), None),
            mig=row.get("mig.mode.current") == "Enabled",
        ),
        uuid=uuid,
        parts=parts.get(uuid or "", ()),
    )


def _whole(text: str | None, otherwise: N) -> int | N:
    return int(text) if text and re.fullmatch(r"\d{1,9}", text) else otherwise


def _file(number: int, text: str) -> _Known:
    # Model: 		 NVIDIA GeForce RTX 4090
    # GPU UUID: 	 GPU-00000000-0000-0000-0000-000000000000
    model = re.search(r"^Model:\s*(\S.*?)\s*$", text, re.MULTILINE)
    uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.MULTILINE)
    name = model[1] if model else "NVIDIA GPU"
    return _Known(device=NvidiaDevice(index=number, name=name), uuid=uuid[1] if uuid else None)


@frozen
class _Board:
    """What the device tree and the release file of a Jetson say; an ordinary machine has neither."""

    model: str
    chip: pci.TegraChip | None
    l4t: WrittenVersion | None
    has_release_file: bool

    @property
    def is_jetson(self) -> bool:
        return bool("Jetson" in self.model or self.chip or self.has_release_file)

    def complete(self, devices: tuple[_Known, ...]) -> tuple[_Known, ...]:
        """Name the GPU of the board where nothing else does, and its capability where its tool does not."""
        capability = Capability.parse(self.chip.capability) if self.chip else None
        if not devices and (self.chip or "Jetson" in self.model):
            name = self.model or (self.chip.board if self.chip else "")
            return (_Known(device=NvidiaDevice(index=0, name=name, compute_capability=capability)),)
        if capability is None or len(devices) != 1:
            return devices
        (known,) = devices
        device = known.device
        return (
            replace(
                known,
                device=replace(device, compute_capability=device.compute_capability or capability),
            ),
        )

    def describe(self) -> tuple[Problem, ...]:
        if self.l4t is None:
            return ()
        jetpack = pci.find_jetpack(str(self.l4t))
        of = f" (JetPack {jetpack})" if jetpack else ""
        return (Problem("jetson", TEGRA_FILE, f"this is a Jetson with Jetson Linux (L4T) {self.l4t}{of}"),)


def _read_board(seen: SeenEvidence) -> _Board:
    # NVIDIA Jetson AGX Orin Developer Kit
    model = (seen.text(MODEL_FILE) or "").strip("\0\n ")
    # # R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: …
    release = seen.text(TEGRA_FILE) or ""
    found = re.search(r"R(\d{1,3}) \(release\), REVISION: (\d{1,3}(?:\.\d{1,3})*)", release)
    l4t = WrittenVersion.read(f"{found[1]}.{found[2]}") if found else None
    return _Board(model, pci.tegra_chip(seen.text(COMPATIBLE_FILE) or ""), l4t, bool(release))


def _describe_held(cards: tuple[pci.Display, ...]) -> tuple[Problem, ...]:
    """Describe cards that another driver than NVIDIA's holds."""
    held = ", ".join(str(card) for card in cards if card.stand_in)
    return (Problem("driver-stand-in", "PCI", f"an NVIDIA GPU without its driver: {held}"),) if held else ()


def _explain_idle_tool(problem: Problem) -> Problem:
    # Nothing on the bus is NVIDIA's: the tool or the library is installed and has nothing to ask.
    message = f"{problem.message}; no NVIDIA GPU is on the bus, so this does not matter here"
    return replace(problem, message=message)


def _mask(seen: SeenEvidence, devices: tuple[_Known, ...]) -> tuple[tuple[NvidiaDevice, ...], Problem | None]:
    named = [
        visible.Named(
            label=f"GPU {device.device.index} ({device.name})", uuid=device.uuid, parts=device.parts
        )
        for device in devices
    ]
    alike = len({(device.name, device.device.compute_capability) for device in devices}) == 1
    answer = visible.apply(
        "CUDA_VISIBLE_DEVICES",
        seen.variable("CUDA_VISIBLE_DEVICES"),
        named,
        numbered=alike or seen.variable("CUDA_DEVICE_ORDER") == "PCI_BUS_ID",
    )
    marked = tuple(
        replace(device.device, visible=left) for device, left in zip(devices, answer.visible, strict=True)
    )
    return marked, answer.problem


def _complaints(seen: SeenEvidence, *, wsl: bool) -> list[Problem]:
    """Describe once what several sources complain of."""
    found: dict[str, Problem] = {}
    if lost := _find_lost(seen):
        found[lost.code] = lost
    for source in (NVML, *_queries(seen), SCREEN):
        text = seen.read_output(source)
        said = nvidia_smi.complaint(
            str(json_object(text).get("error", "")) if source == NVML and text.startswith("{") else text
        )
        if said is None or said.code in {"smi-missing", *found}:
            continue
        message = said.message
        if said.code == MISMATCH:
            message = _mismatch(seen)
        elif said.code == "driver-not-loaded" and wsl:
            message += ": update it in Windows, never inside WSL"
        found[said.code] = Problem(said.code, source, message)
    if found:
        return list(found.values())
    failures = []
    if seen.has_failed(NVML):
        why = json_object(seen.read_output(NVML)).get(
            "error", seen.read_output(NVML).removeprefix(LOADED).strip()
        )
        failures.append(Problem("nvml-failed", NVML, f"NVML says: {why}"))
    told = json_object(seen.read_output(LIBCUDA))
    if seen.has_failed(LIBCUDA) and told.get("code") not in _CUDA_SAYS_NOTHING:
        why = told.get("error", seen.read_output(LIBCUDA))
        failures.append(Problem("libcuda-failed", LIBCUDA, f"libcuda says: {why}"))
    # A tool that did not understand the question was asked again in other words.
    answers = [
        seen.read_output(source) for source in (*_queries(seen), XML, SCREEN) if seen.read_output(source)
    ]
    missing = any(nvidia_smi.complaint(text) for text in answers)
    if answers and not missing and not any(_answers(text) for text in answers):
        last = (answers[0].strip().splitlines() or ["nothing"])[-1]
        failures.append(Problem("nvidia-smi-failed", "nvidia-smi", f"nvidia-smi says: {last}"))
    return failures


def _answers(text: str) -> bool:
    return bool(
        nvidia_smi.parse_query(text)
        or nvidia_smi.parse_screen(text).driver
        or (text.startswith("<?xml") and nvidia_smi.parse_xml(text))
    )


def _mismatch(seen: SeenEvidence) -> str:
    module, _ = _driver(seen)
    texts = "\n".join(seen.read_output(source) for source in (*_queries(seen), SCREEN))
    library = nvidia_smi.library_version(texts) or json_object(seen.read_output(NVML)).get("library")
    return (
        f"the NVIDIA driver was only partly updated: the kernel module is {module or 'of one version'}"
        f" and the library {library or 'of another'}; reboot or reload the module, then run again"
    )


def _make_problem(driver: WrittenVersion | None, cards: tuple[pci.Display, ...], *, wsl: bool) -> Problem:
    if driver is not None:
        message = (
            f"NVIDIA driver {driver} is loaded, but no GPU answers; a container must be started"
            " with its GPUs (`--gpus all`)"
        )
        return Problem("no-devices", DRIVER_FILE, message)
    if cards and not wsl:
        numbers = ", ".join(f"{card.vendor}:{card.device}" for card in cards)
        message = f"an NVIDIA GPU ({numbers}) is in this machine without a working driver"
        return Problem("driver-missing", "PCI", message)
    if wsl:
        message = f"WSL uses the NVIDIA driver of Windows, but {WSL_TOOL} does not answer"
        return Problem("driver-unreadable", WSL_LIBRARIES, message)
    return Problem("driver-unreadable", DRIVER_FILE, "the NVIDIA driver does not answer")
