"""Programs as a person follows them: named with `-v`, and shown to be at work where one takes long."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torchenv.cli.output import Output
from torchenv.system.orphans import SharedHandles
from torchenv.system.process import Command, Completed, Programs

# What takes long, by the words after the program's name.
_WORK: dict[tuple[str, ...], str] = {
    ("pip", "sync"): "downloading and installing packages",
    ("pip", "install"): "downloading and installing packages",
    ("pip", "compile"): "choosing the versions of packages",
    ("python", "install"): "downloading an interpreter",
}


class ShownPrograms(Programs):
    """Starts programs as `Programs` does, and lets the output tell of them."""

    def __init__(self, environ: Mapping[str, str], shared: SharedHandles, output: Output) -> None:
        super().__init__(environ, shared)
        self._output = output

    def __call__(self, command: Command, *, timeout: float | None = None) -> Completed:
        """Run a command to its end."""
        if self._output.is_verbose:
            self._output.say(f"$ {command}")
        work = _WORK.get(command.argv[1:3])
        if work is None:
            return self.run(command, timeout=timeout)
        downloads = Downloads()
        with self._output.follow(work, downloads.count):
            return self.run(command, timeout=timeout, hear=downloads.hear)


class Downloads:
    """What uv says of its downloads: those that it has begun, with their sizes, and those that are done."""

    def __init__(self) -> None:
        self._sizes: dict[str, float] = {}
        self._done: set[str] = set()

    def hear(self, line: str) -> None:
        """Take up a line that uv printed."""
        #  Downloading torch (846.9MiB)
        #   Downloaded torch
        if begun := re.match(r"\s*Downloading (\S+).* \(([0-9.]+)([KMGT]?)i?B\)", line):
            factor = 1024 ** " KMGT".index(begun[3] or " ")
            self._sizes[begun[1]] = float(begun[2]) * factor
        elif done := re.match(r"\s*Downloaded (\S+)", line):
            self._done.add(done[1])

    def count(self) -> tuple[int, int]:
        """Return the bytes of the downloads that are done, and of all that were begun."""
        done = sum(size for name, size in list(self._sizes.items()) if name in self._done)
        return int(done), int(sum(list(self._sizes.values())))
