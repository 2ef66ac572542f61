"""A machine in a folder as a person meets it: `probe --sysroot` reads its files, PATH holds its programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.terminal import Ended, Terminal

VERSION = "Linux version 6.8.0-49-generic (buildd@builder) (gcc) #49-Ubuntu SMP\n"


@dataclass
class Sysroot:
    """`root` is what its files lie under, `programs` is first on its PATH."""

    root: Path
    programs: Path
    terminal: Terminal

    @classmethod
    def within(cls, folder: Path) -> Sysroot:
        """Make an ordinary Linux machine without any accelerator."""
        terminal = Terminal.within(folder)
        machine = cls(folder / "machine", folder / "bin", terminal)
        machine.programs.mkdir()
        minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
        (machine.programs / f"python{minor}").symlink_to(sys.executable)
        terminal.environ["PATH"] = f"{machine.programs}:{terminal.environ['PATH']}"
        machine.write({"/proc/version": VERSION})
        return machine

    def write(self, files: Mapping[str, str]) -> None:
        """Add files by their paths on that machine."""
        for name, text in files.items():
            path = self.root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")

    def install(self, program: str, prints: str, *, code: int = 0) -> None:
        """Put a program on its PATH that prints the text and ends with the code."""
        path = self.programs / program
        path.write_text(f"#!/bin/sh\ncat <<'T'\n{prints.rstrip()}\nT\nexit {code}\n", "utf-8")
        path.chmod(0o755)

    def probe(self, **variables: str) -> Any:
        """Return the host document, which lies beside as `host.json`."""
        written = self.terminal.type("probe", "--sysroot", self.root, "-o", "host.json", **variables)
        assert written.code == 0, written.err
        return self.terminal.type("probe", "--sysroot", self.root, "--json", **variables).json

    def plan(self, *words: str, **variables: str) -> Ended:
        """Plan 2.15 for it, which asks no index; what is printed is the plan document."""
        self.probe(**variables)
        return self.terminal.type("plan", "2.15", "--host", "host.json", *words, "--json")


def build_of(planned: Ended) -> str:
    """Return `torch+backend` of a plan that suits; fails with what was said where none does."""
    assert planned.code == 0, planned.out + planned.err
    return f"{planned.json['torch']}+{planned.json['backend']}"
