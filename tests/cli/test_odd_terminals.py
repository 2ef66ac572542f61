"""Whatever a terminal lacks or a word holds, torchenv ends with one line and never with a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from tests.support.terminal import Terminal

HOST = Path(__file__).parents[1] / "data" / "hosts" / "rtx-4090-driver-580.json"
LONG = "9" * 5000


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path)


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (("plan", LONG), f"error: `{LONG}` is not a torch version\n"),
        (("plan", "--devices", LONG), f"error: --devices `{LONG}` is not a list of numbers\n"),
        (("use", LONG), f"error: environment `{LONG}` not found\n"),
        (
            ("prune", "--keep", "-1"),
            "error: `--keep` must be 0 or more",
        ),
        (
            ("prune", "--older-than", "99999999999d"),
            "error: `--older-than`: `99999999999d` is not a length of time",
        ),
        (
            ("plan", "--python", "nonsense"),
            (
                "error: --python `nonsense` is neither a Python version nor a path\n"
                "hint: write --python 3.12, 3.14t, or the path of an interpreter\n"
            ),
        ),
        (("plan", "--python", ""), "error: --python `` is neither a Python version nor a path\n"),
        (
            ("create", "--host", "a.json", "--host", "b.json"),
            (
                "error: one plan is for one machine, and --host names several\n"
                "hint: leave out `--host b.json`, or run it for each\n"
            ),
        ),
    ],
)
def test_a_word_that_no_one_would_type_is_answered_in_one_line(
    terminal: Terminal, words: tuple[str, ...], begin: str
) -> None:
    more = ("--host", HOST) if words[0] == "plan" and "--host" not in words else ()
    ended = terminal.type(*words, *more)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(begin)


def test_an_interpreter_in_this_directory_is_a_path(terminal: Terminal) -> None:
    ended = terminal.type("plan", "2.15", "--python", "./python", "--host", HOST)
    assert ended.code == 3
    assert f"{terminal.cwd / 'python'} is not a Python that runs here" in ended.out


def device(**changes: object) -> dict[str, object]:
    return {"index": 0, "name": "NVIDIA L4", "compute_capability": "8.9", **changes}


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ([device(index=-1)], "nvidia.devices[0].index: -1 is not the number of a device"),
        ([device(), device()], "nvidia.devices[1].index: 0 appears twice"),
    ],
)
def test_devices_that_their_numbers_do_not_tell_apart_are_refused(
    terminal: Terminal, devices: list[object], said: str
) -> None:
    host = {
        "schema": "torchenv.host/1",
        "system": "linux",
        "machine": "x86_64",
        "nvidia": {"devices": devices},
    }
    (terminal.cwd / "node.json").write_text(json.dumps(host), "utf-8")
    ended = terminal.type("plan", "--host", "node.json")
    assert (ended.code, ended.err) == (2, f"error: node.json: {said}\n")


def test_a_number_too_long_to_be_one_is_named_with_its_file(terminal: Terminal) -> None:
    (terminal.cwd / "node.json").write_text(f'{{"schema": {LONG}}}', "utf-8")
    (terminal.cwd / "train.toml").write_text(f"schema = {LONG}", "utf-8")
    for words in (("--host", "node.json"), ("--profile", "train.toml", "--host", HOST)):
        ended = terminal.type("plan", *words)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith(
            (f"error: {words[1]}: not valid JSON: ", f"error: {words[1]}: not valid TOML: ")
        )


def test_the_mark_that_windows_puts_before_a_text_is_no_part_of_it(terminal: Terminal) -> None:
    (terminal.cwd / "node.json").write_text(HOST.read_text("utf-8"), "utf-8-sig")
    (terminal.cwd / "train.toml").write_text("schema = 1\n", "utf-8-sig")
    assert terminal.type("plan", "--host", "node.json", "--profile", "train.toml").code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("word", ["--version", "--help", "list"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_cannot_be_written_is_said(terminal: Terminal, word: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = start(terminal, word, stdout=full, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 4
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("word", ["--version", "--help", "list"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_is_no_trouble(terminal: Terminal, word: str, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = start(terminal, word, stdout=closed, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (0, "")


def start(terminal: Terminal, *words: str, stdout: IO[str], **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        terminal.argv(*words),
        cwd=terminal.cwd,
        env={**terminal.environ, **more},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_a_file_that_the_disk_has_no_room_for_is_not_left_half_written(terminal: Terminal) -> None:
    limited = f"ulimit -f 0; trap '' XFSZ; exec {sys.executable} -m torchenv init"
    done = subprocess.run(
        ["sh", "-c", limited],
        cwd=terminal.cwd,
        env=terminal.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert not (terminal.cwd / "torchenv.toml").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="has no pseudo-terminals")
def test_a_name_cannot_act_on_a_terminal_and_a_program_gets_it_as_it_is(terminal: Terminal) -> None:
    name = "red\x1b[31m.pt"
    (terminal.cwd / name).write_bytes(b"")
    line = [sys.executable, "-m", "torchenv", "checkpoints", "scan", "."]
    ours, theirs = os.openpty()
    subprocess.run(line, cwd=terminal.cwd, env=terminal.environ, stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    assert b"\x1b" not in os.read(ours, 10_000)
    os.close(ours)
    ended = terminal.type("checkpoints", "keep", name)
    assert f"{terminal.cwd}/{name} cannot be kept" in ended.err


def test_what_a_shell_makes_of_a_pattern_are_hosts_and_a_version_may_follow(terminal: Terminal) -> None:
    hosts = (HOST, HOST.with_name("mi300x.json"))
    typed: tuple[tuple[str | Path, ...], ...] = (
        ("2.14", "--host", *hosts),
        ("--host", *hosts, "2.14"),
        ("--host", hosts[0], "--host", hosts[1]),
    )
    for words in typed:
        planned = json.loads(terminal.type("plan", *words, "--json").out)["hosts"]
        assert [item["host"] for item in planned] == ["rtx-4090-driver-580", "mi300x"]
        assert {item["torch"] for item in planned} == {"2.14.1" if "2.14" in words else "2.15.0"}
