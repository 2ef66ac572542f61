"""Progress: bars on a terminal, a line now and then in a log, nothing with `-q`, programs named with `-v`."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

from torchenv.cli import _KEPT, _name_way_on
from torchenv.cli.output import Output
from torchenv.cli.programs import Downloads
from torchenv.cli.progress import ProgressLines, describe_bytes, describe_seconds, follow
from torchenv.system.orphans import SharedHandles
from torchenv.system.process import Command, Programs

MIB = 1 << 20


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_every_few_seconds_with_rate_and_time_left() -> None:
    lines: list[str] = []
    times = iter((0.0, 1.0, 5.0, 6.0, 10.0))
    shown = ProgressLines(lines.append, lambda: next(times))
    for done in (0, 10, 50, 60, 100):
        shown.show("hashing", done * MIB, 100 * MIB)
    assert lines == [
        "hashing: 50 MiB of 100 MiB, 10 MiB/s, 5 s left",
        "hashing: 100 MiB of 100 MiB, 10 MiB/s, 0 s left",
    ]


def test_a_terminal_gets_a_bar_that_ends() -> None:
    screen = Screen()
    output = Output(io.StringIO(), screen, {"TERM": "xterm", "COLUMNS": "80"})
    show = output.progress("copying")
    show(MIB, 2 * MIB)
    show(2 * MIB, 2 * MIB)
    output.stop_progress()
    assert "copying" in screen.getvalue()
    assert "2.0/2.0 MiB" in screen.getvalue()


@pytest.mark.parametrize("is_quiet", [False, True])
def test_what_is_quick_or_quiet_shows_nothing(*, is_quiet: bool) -> None:
    err = io.StringIO()
    output = Output(io.StringIO(), err)
    output.is_quiet = is_quiet
    output.progress("copying")(2 * MIB, 2 * MIB)
    with output.wait_for("choosing"):
        pass
    assert err.getvalue() == ""


def test_sizes_and_times_are_in_the_unit_that_suits_them() -> None:
    assert [describe_bytes(size) for size in (12, 2048, 3 * MIB, 5 << 30)] == [
        "12 B",
        "2 KiB",
        "3 MiB",
        "5.0 GiB",
    ]
    assert [describe_seconds(seconds) for seconds in (3.2, 89, 600)] == ["3 s", "89 s", "10 min"]


def test_what_draws_bars_is_imported_only_for_a_terminal() -> None:
    code = "import sys; from torchenv.cli import main; main(['list'], {}, '/', None, None, None);"
    checked = f"{code} assert 'rich' not in sys.modules"
    source = Path(__file__).parents[2] / "src"
    subprocess.run([sys.executable, "-c", checked], env={"PYTHONPATH": str(source), "HOME": "/"}, check=True)


def test_the_programs_that_run_are_named_to_who_asks(tmp_path: Path) -> None:
    terminal = Terminal.within(tmp_path)
    (terminal.cwd / "runs").mkdir()
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 9\n", "utf-8")
    tool.chmod(0o755)
    path = f"{tool.parent}:{terminal.environ['PATH']}"
    assert "$ nvidia-smi " in terminal.type("probe", "-v", PATH=path).err.replace(f"{tool.parent}/", "")
    assert "nvidia-smi" not in terminal.type("probe", PATH=path).err


def test_what_uv_says_of_its_downloads_is_counted_in_bytes() -> None:
    downloads = Downloads()
    lines = ("Resolved 2 packages in 61ms", "Downloading torch (1.5GiB)", "Downloading big (512.0KiB)")
    for line in lines:
        downloads.hear(line)
    assert downloads.count() == (0, (3 << 29) + (1 << 19))
    downloads.hear(" Downloaded big")
    assert downloads.count() == (1 << 19, (3 << 29) + (1 << 19))


def test_the_lines_of_a_program_are_heard_while_it_runs_and_kept() -> None:
    heard: list[str] = []
    programs = Programs({"PATH": "/usr/bin:/bin"}, SharedHandles())
    done = programs.run(Command(("sh", "-c", "echo a >&2; echo b >&2; echo out")), hear=heard.append)
    assert (heard, done.err, done.out, done.code) == (["a\n", "b\n"], "a\nb\n", "out\n", 0)


def test_what_is_followed_ends_with_all_of_it() -> None:
    shown: list[tuple[int, int]] = []
    with follow("downloading", lambda: (5, 10), lambda done, total: shown.append((done, total)), None, print):
        pass
    assert shown[-1] == (10, 10)


def test_an_interrupt_names_what_was_kept_and_the_command_that_goes_on() -> None:
    assert _name_way_on(["create", "2.15", "--name", "my env"]) == (
        "continue with `torchenv create 2.15 --name 'my env'`"
    )
    assert {"create", "sync", "add", "drop", "restore", "fetch", "bundle", "upgrade"} <= _KEPT.keys()
