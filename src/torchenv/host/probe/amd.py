"""AMD: the kernel's topology files, then ROCm's own tools, which a variable can make lie."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchenv.host.model import Amd, AmdDevice, Nvidia, Problem, Status
from torchenv.host.probe import pci, visible
from torchenv.host.probe.sources import Look, SeenEvidence
from torchenv.system.process import Command
from torchenv.system.values import frozen
from torchenv.system.words import drop_colours

NODES = "/sys/class/kfd/kfd/topology/nodes"
MODULE_FILE = "/sys/module/amdgpu/version"
DXG = "/dev/dxg"
DXG_LIBRARY = "/opt/rocm/lib/librocdxg.so"

ROCMINFO, ENUMERATOR, AMD_SMI = "rocminfo", "rocm_agent_enumerator", "amd-smi static --asic"
AMD_SMI_LIST = "amd-smi list --json"
OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
PERMISSION = "kfd-permission"

_MASKS = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@frozen(kw_only=True)
class Agent:
    """A GPU as one of the sources names it."""

    gfx: str | None
    name: str | None = None
    uuid: str | None = None


def look(look: Look) -> dict[str, Command]:
    """Read the kernel's topology; give the programs to be run beside others."""
    look.variables(OVERRIDE, *_MASKS)
    if look.sources.python["system"] != "linux":
        return {}
    for node in look.within(NODES):
        look.at(f"{NODES}/{node}/properties")
    look.at(MODULE_FILE)
    look.mark(DXG)
    look.mark(DXG_LIBRARY)
    # rocminfo also gives the names that people know cards by. The others are written in Python and
    # slow: they are asked where the kernel said nothing.
    sources = (ROCMINFO,) if _kernel(look.gathered) else (ROCMINFO, ENUMERATOR, AMD_SMI, AMD_SMI_LIST)
    return {source: _tool(look, source) for source in sources}


def understand(seen: SeenEvidence, nvidia: Nvidia, *, wsl: bool) -> tuple[Amd, tuple[Problem, ...]]:
    """Make one answer of everything that was seen; under WSL no file of the kernel tells of a GPU."""
    kernel = _kernel(seen)
    told = _read_tools(seen)
    problems = [item for item in (_permission(seen), _override(seen, kernel, told)) if item]
    agents = _add_names(kernel, told) if kernel else told
    if not kernel and seen.variable(OVERRIDE):
        # Only the kernel knows better than the variable.
        agents = tuple(replace(agent, gfx=None) for agent in agents)
    if not agents:
        return _without_driver(seen, nvidia, problems, wsl=wsl)
    integrated = pci.list_amd_integrated_gfx()
    pretended = parse_override(seen.variable(OVERRIDE) or "")
    devices = tuple(
        AmdDevice(
            index=number,
            name=agent.name or f"AMD GPU {agent.gfx or number}",
            gfx=agent.gfx,
            override=pretended if pretended != agent.gfx else None,
            integrated=agent.gfx in integrated,
        )
        for number, agent in enumerate(agents)
    )
    shown, masked = _mask(seen, nvidia, agents, devices, ordered=bool(kernel))
    held = ", ".join(str(card) for card in pci.displays(seen, pci.AMD) if card.stand_in)
    if held:
        problems.append(Problem("driver-stand-in", "PCI", f"an AMD GPU without its driver: {held}"))
    return Amd(status=Status.FOUND, devices=shown), (*problems, *masked)


def parse_properties(text: str) -> Agent | None:
    """Read a node of the kernel's topology; None for a processor, or for an empty text.

    The number is decimal, and its name is not: 90010 is gfx90a, 110501 is gfx1151.
    """
    # gfx_target_version 90010
    number = re.search(r"^gfx_target_version (\d{1,9})$", text, re.MULTILINE)
    if number is None or int(number[1]) == 0:
        return None
    unique = re.search(r"^unique_id (\d{1,20})$", text, re.MULTILINE)
    uuid = f"GPU-{int(unique[1]):016x}" if unique and unique[1] != "0" else None
    value = int(number[1])
    return Agent(gfx=gfx_name(value // 10000, value // 100 % 100, value % 100), uuid=uuid)


def gfx_name(major: int, minor: int, step: int) -> str:
    """Write the name of an instruction set: 9, 0, 10 is gfx90a."""
    return f"gfx{major}{minor:x}{step:x}"


def parse_override(value: str) -> str | None:
    # 10.3.0
    found = re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{1,2})", value.strip())
    return gfx_name(*(int(part) for part in found.groups())) if found else None


def parse_enumerator(text: str) -> tuple[Agent, ...]:
    # gfx000 is the processor; a target may carry its features: gfx90a:sramecc+:xnack-
    found = re.findall(r"^(gfx[0-9a-f]{3,4})(?![0-9a-f])\S*$", text, re.MULTILINE)
    return tuple(Agent(gfx=gfx) for gfx in found if gfx != "gfx000")


def parse_rocminfo(text: str) -> tuple[Agent, ...]:
    #   Name:                    gfx90a
    #   Uuid:                    GPU-0000000000000000
    #   Marketing Name:          AMD Instinct MI250X/MI250
    #   Device Type:             GPU
    agents = []
    for part in re.split(r"^Agent \d+\s*$", text, flags=re.MULTILINE)[1:]:
        # The same keys come again, further in, for the instruction sets of an agent.
        said = dict(re.findall(r"^  (\w[\w ]*):[ \t]+(\S.*?)[ \t]*$", part, re.MULTILINE))
        if said.get("Device Type") == "GPU" and re.fullmatch(r"gfx[0-9a-f]{3,4}", said.get("Name", "")):
            agents.append(Agent(gfx=said["Name"], name=said.get("Marketing Name"), uuid=said.get("Uuid")))
    return tuple(agents)


def parse_amd_smi(text: str) -> tuple[Agent, ...]:
    #         MARKET_NAME: AMD Instinct MI60 / MI50
    #         TARGET_GRAPHICS_VERSION: gfx906
    agents = []
    for part in re.split(r"^GPU: \d+\s*$", text, flags=re.MULTILINE)[1:]:
        said = dict(re.findall(r"^\s+(\w+): +(\S.*?)\s*$", part, re.MULTILINE))
        gfx = said.get("TARGET_GRAPHICS_VERSION", "")
        agents.append(Agent(gfx=gfx if gfx.startswith("gfx") else None, name=said.get("MARKET_NAME")))
    return tuple(agents)


def parse_amd_smi_list(text: str) -> tuple[int, ...]:
    """Return the kernel's node of each GPU that the tool lists; it does not say what they are."""
    # [{"gpu": 0, "bdf": "0000:c1:00.0", "kfd_id": 45412, "node_id": 1, "partition_id": 0}]
    try:
        listed = json.loads(text)
        return tuple(item["node_id"] for item in listed)
    except (ValueError, RecursionError, KeyError, TypeError):
        return ()


def _tool(look: Look, source: str) -> Command:
    words = source.split()
    installed = Path("/opt/rocm/bin", words[0])
    if not look.sources.has_program(words[0]) and os.path.exists(look.sources.path(str(installed))):
        words[0] = str(installed)
    return Command(tuple(words))


def _kernel(seen: SeenEvidence) -> tuple[Agent, ...]:
    nodes = sorted(
        (item for item in seen.starting(f"{NODES}/") if item.outcome == "read"),
        key=lambda item: int(re.sub(r"\D", "", item.source.removeprefix(NODES)) or 0),
    )
    agents = (parse_properties(node.text) for node in nodes)
    return tuple(agent for agent in agents if agent is not None)


def _read_tools(seen: SeenEvidence) -> tuple[Agent, ...]:
    return (
        parse_rocminfo(seen.read_output(ROCMINFO))
        or parse_amd_smi(seen.read_output(AMD_SMI))
        or parse_enumerator(seen.read_output(ENUMERATOR))
        or tuple(Agent(gfx=None) for _ in parse_amd_smi_list(seen.read_output(AMD_SMI_LIST)))
    )


def _add_names(kernel: Sequence[Agent], told: Sequence[Agent]) -> tuple[Agent, ...]:
    """Take the names from the tools where they list the same GPUs; they do so in the same order."""
    if len(kernel) != len(told):
        return tuple(kernel)
    return tuple(replace(line, name=same.name) for line, same in zip(kernel, told, strict=True))


def _permission(seen: SeenEvidence) -> Problem | None:
    # Unable to open /dev/kfd read-write: Permission denied
    if not re.search(r"/dev/kfd.*Permission denied", seen.read_output(ROCMINFO)):
        return None
    message = (
        "this user may not open /dev/kfd: become a member of the groups render and video"
        " (`sudo usermod -aG render,video $USER`) and log in again"
    )
    return Problem(PERMISSION, ROCMINFO, message)


def _override(seen: SeenEvidence, kernel: Sequence[Agent], told: Sequence[Agent]) -> Problem | None:
    value = seen.variable(OVERRIDE)
    pretended = parse_override(value) if value else None
    if pretended is None or (kernel and all(item.gfx == pretended for item in kernel)):
        return None
    setting = f"{OVERRIDE}={value}"
    if kernel:
        real = ", ".join(dict.fromkeys(item.gfx or "unknown" for item in kernel))
        message = f"{setting} makes ROCm see {pretended} where the kernel names {real}; using {real}"
    elif told:
        message = f"{setting} makes ROCm see {pretended}; what the GPU really is cannot be read here"
    else:
        return None
    return Problem("gfx-override", OVERRIDE, message)


# ROCk module is NOT loaded, possibly no GPU devices
# hsa api call failure at: …, Call returned HSA_STATUS_ERROR_OUT_OF_RESOURCES: … HSA_STATUS_ERROR: …
# ERROR:root:Driver not initialized (amdgpu not found in modules)
_DRIVER_FAILED = re.compile(
    r"ROCk module is NOT loaded|HSA_STATUS_ERROR|hsa_init"
    r"|[Dd]river not (?:initialized|loaded)|Unable to open /dev/kfd"
)


def _without_driver(
    seen: SeenEvidence, nvidia: Nvidia, problems: list[Problem], *, wsl: bool
) -> tuple[Amd, tuple[Problem, ...]]:
    cards = pci.displays(seen, pci.AMD)
    if any(problem.code == PERMISSION for problem in problems) or seen.has_failed(NODES):
        return Amd(status=Status.UNREADABLE), tuple(problems)
    if not cards:
        return _without_card(seen, nvidia, problems, wsl=wsl)
    parts = [pci.find_amd_integrated(card.device) for card in cards]
    numbers = ", ".join(dict.fromkeys(map(str, cards)))
    count = f"{len(cards)} AMD GPUs" if len(cards) > 1 else "an AMD GPU"
    module = (seen.text(MODULE_FILE) or "").strip()
    loaded = f"; amdgpu {module} is loaded" if module else ""
    verb = "are" if len(cards) > 1 else "is"
    message = f"{count} ({numbers}) {verb} in this machine and unknown to the driver (not in {NODES}){loaded}"
    problems = [*problems, Problem("kfd-missing", "PCI", message)]
    if None in parts:
        return Amd(status=Status.UNREADABLE), tuple(problems)
    devices = tuple(
        AmdDevice(
            index=number,
            name=card.name or f"AMD integrated graphics {gfx}",
            gfx=gfx,
            integrated=True,
        )
        for number, (card, gfx) in enumerate(zip(cards, parts, strict=True))
    )
    return Amd(status=Status.FOUND, devices=devices), tuple(problems)


def _without_card(
    seen: SeenEvidence, nvidia: Nvidia, problems: list[Problem], *, wsl: bool
) -> tuple[Amd, tuple[Problem, ...]]:
    """Distinguish a machine without a GPU of AMD from one where only tools or the driver show it."""
    tools = (ROCMINFO, ENUMERATOR, AMD_SMI, AMD_SMI_LIST)
    failed = next((tool for tool in tools if _DRIVER_FAILED.search(seen.read_output(tool))), None)
    has_tool = any(tool in seen and seen[tool].outcome != "absent" for tool in tools)
    if wsl and seen.text(DXG) is not None and (has_tool or seen.text(DXG_LIBRARY) is not None):
        # What Windows lends is NVIDIA's where that answers, and ROCm is only installed beside it.
        if nvidia.status is Status.FOUND:
            return Amd(), tuple(problems)
        message = (
            f"WSL has {DXG} and ROCm names no GPU: set HSA_ENABLE_DXG_DETECTION=1, and update the AMD driver"
            " in Windows"
        )
        return Amd(status=Status.UNREADABLE), (*problems, Problem("wsl-rocm", DXG, message))
    if module := (seen.text(MODULE_FILE) or "").strip():
        message = f"the AMD driver amdgpu {module} is loaded, but no GPU answers"
        if failed:
            message += f": {failed.split()[0]} says `{_say_failure(seen.read_output(failed))}`"
        return Amd(status=Status.UNREADABLE), (*problems, Problem("no-devices", MODULE_FILE, message))
    if failed is None:
        return Amd(), tuple(problems)
    message = f"{failed.split()[0]} says `{_say_failure(seen.read_output(failed))}`"
    if pci.is_bus_read(seen) and not wsl:
        message += "; no AMD GPU is on the bus, so this does not matter here"
        return Amd(), (*problems, Problem("rocm-idle", failed, message))
    return Amd(status=Status.UNREADABLE), (*problems, Problem("driver-not-loaded", failed, message))


def _say_failure(text: str) -> str:
    lines = (line.strip() for line in drop_colours(text).splitlines())
    return next(line for line in lines if _DRIVER_FAILED.search(line))


def _mask(
    seen: SeenEvidence,
    nvidia: Nvidia,
    agents: Sequence[Agent],
    devices: tuple[AmdDevice, ...],
    *,
    ordered: bool,
) -> tuple[tuple[AmdDevice, ...], tuple[Problem, ...]]:
    """Apply ROCm's mask and then HIP's, which counts among what the first one leaves.

    The tools have applied ROCm's already. HIP also obeys CUDA's where there is nothing of NVIDIA's.
    """
    masks: list[tuple[str, str | None]] = []
    if ordered:
        masks.append((_MASKS[0], seen.variable(_MASKS[0])))
    cuda = seen.variable("CUDA_VISIBLE_DEVICES")
    if seen.variable(_MASKS[1]) is None and cuda is not None and nvidia.status is Status.ABSENT:
        masks.append(("CUDA_VISIBLE_DEVICES", cuda))
    else:
        masks.append((_MASKS[1], seen.variable(_MASKS[1])))
    shown = devices
    problems = []
    for variable, value in masks:
        left = [number for number, item in enumerate(shown) if item.visible]
        named = [
            visible.Named(
                label=f"GPU {number} ({devices[number].name}, {devices[number].gfx})",
                uuid=agents[number].uuid,
            )
            for number in left
        ]
        answer = visible.apply(variable, value, named, numbered=True)
        keeps: Mapping[int, bool] = dict(zip(left, answer.visible, strict=True))
        shown = tuple(replace(item, visible=keeps.get(number, False)) for number, item in enumerate(shown))
        problems += [answer.problem] if answer.problem else []
    return shown, tuple(problems)
