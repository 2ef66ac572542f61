"""What a terminal shows: words wrapped, colours where they are wanted, and nothing of them in a pipe."""

from __future__ import annotations

import io

import pytest

from torchenv.cli.output import Output
from torchenv.errors import InputError


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


LONG = "note: " + "a word and another " * 8


def test_a_narrow_terminal_breaks_lines_between_words() -> None:
    screen = Screen()
    Output(screen, screen, {"COLUMNS": "60", "NO_COLOR": "1"}).say(LONG.rstrip())
    lines = screen.getvalue().splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 60
    assert all(line.startswith("    ") for line in lines[1:])
    assert " ".join(" ".join(lines).split()) == LONG.rstrip()


def test_a_command_to_copy_stays_one_line() -> None:
    screen = Screen()
    Output(screen, screen, {"COLUMNS": "20"}).print_text("next: torchenv create 2.15 --backend cu132")
    assert screen.getvalue() == "next: torchenv create 2.15 --backend cu132\n"


@pytest.mark.parametrize(
    ("environ", "is_coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_colours_are_where_a_terminal_shows_them_and_nobody_minds(
    environ: dict[str, str], *, is_coloured: bool
) -> None:
    screen, pipe = Screen(), io.StringIO()
    for stream in (screen, pipe):
        Output(stream, stream, environ).explain(InputError("no", hint="yes"))
    assert (screen.getvalue() == "\x1b[1;31merror:\x1b[0m no\n\x1b[36mhint:\x1b[0m yes\n") is is_coloured
    assert pipe.getvalue() == "error: no\nhint: yes\n"


def test_a_quiet_run_prints_results_and_errors_alone() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(out, err)
    output.is_quiet = True
    output.say("news")
    output.note("more")
    output.print("result")
    output.explain(InputError("wrong"))
    assert (out.getvalue(), err.getvalue()) == ("result\n", "error: wrong\n")
