"""Machines made up for the probe: a folder for their files, and answers for their programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torchenv.host.model import Host
from torchenv.host.probe import Sources, probe
from torchenv.system.process import Command, Completed, End

NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)

SAMPLES = Path(__file__).parents[1] / "data" / "probes"


@dataclass(frozen=True, slots=True)
class Says:
    """What a program prints, and how it ends."""

    out: str = ""
    code: int = 0
    err: str = ""
    end: End = End.EXITED


HANGS = Says(code=124, end=End.OUT_OF_TIME)
ABSENT = Says(code=127, end=End.NOT_FOUND)


class Tools:
    """Answers for the programs of a machine; one that it does not know is not there.

    A program is known by the whole line, by its first word, or by the script that a Python runs.
    """

    def __init__(self, answers: Mapping[str, str | Says]) -> None:
        self.answers = answers
        self.asked: list[Command] = []

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        assert timeout == 10.0
        self.asked.append(command)
        words = command.argv
        names = [" ".join(words), words[0], Path(words[0]).name, *(Path(word).name for word in words[1:])]
        says = next((self.answers[name] for name in names if name in self.answers), ABSENT)
        says = Says(says) if isinstance(says, str) else says
        return Completed(command, says.code, says.out, says.err, says.end)


def sample(name: str) -> str:
    return (SAMPLES / name).read_bytes().decode()


def nvidia_libraries(nvml: Mapping[str, Any] | None, libcuda: Mapping[str, Any] | None = None) -> str:
    """Print what the child prints that asks NVML and libcuda."""
    return json.dumps({"nvml": nvml, "libcuda": libcuda})


def probed(
    root: Path,
    files: Mapping[str, str] | None = None,
    tools: Mapping[str, str | Says] | Tools | None = None,
    variables: Mapping[str, str] | None = None,
    *,
    project: Path | None = None,
    python: Mapping[str, str] | None = None,
) -> Host:
    """Probe a machine that has these files and programs and nothing else."""
    for name, text in (files or {}).items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    run = (
        tools if isinstance(tools, Tools) else Tools({"ask_nvml.py": nvidia_libraries(None), **(tools or {})})
    )
    sources = Sources(
        run=run,
        variables=variables or {},
        root=root,
        python=python or {"system": "linux", "machine": "x86_64", "libc": "glibc 2.39"},
    )
    return probe(sources, project=project, now=NOW)


def pci(*devices: str) -> dict[str, str]:
    """Return the files of PCI display devices, each written as `0000:01:00.0 10de:2684`."""
    files: dict[str, str] = {}
    for text in devices:
        slot, numbers = text.split()
        vendor, device = numbers.split(":")
        place = f"/sys/bus/pci/devices/{slot}"
        files |= {f"{place}/class": "0x030000\n", f"{place}/vendor": f"0x{vendor}\n"}
        files |= {f"{place}/device": f"0x{device}\n"}
    return files


def kfd(*versions: int) -> dict[str, str]:
    """Return the kernel's topology files for nodes of these target versions."""
    nodes = "/sys/class/kfd/kfd/topology/nodes"
    return {
        f"{nodes}/{number}/properties": f"simd_count 4\ngfx_target_version {version}\n"
        for number, version in enumerate(versions)
    }
