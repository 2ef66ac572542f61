"""Programs as a person follows them: named with `-v`, and shown to be at work where one takes long."""

from __future__ import annotations

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
            return super().__call__(command, timeout=timeout)
        with self._output.wait_for(work):
            return super().__call__(command, timeout=timeout)
