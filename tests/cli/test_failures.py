"""With `--json` a failure is one document on stdout; a stream that is closed or full changes no exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

HOSTS = Path(__file__).parents[1] / "data" / "hosts"
BLOCKED = ("plan", "2.15", "--no-fallback", "--host", HOSTS / "gtx-780.json")


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("creat --json", 2),
        ("plan --json --bakend cpu", 2),
        ("plan --json --devices one", 2),
        ("plan --json --profile nowhere", 2),
        ("plan --json --host nowhere.json", 2),
        ("probe --json --reparse nowhere", 2),
        ("create 2.51 --json --offline", 2),
        ("show --json", 3),
        ("show 9 --json", 2),
        ("diff 1 2 --json", 2),
        ("use 9 --json", 2),
        ("rollback --json", 3),
        ("verify --json", 3),
        ("smoke --json", 3),
        ("evaluate --json", 3),
        ("lock --json", 2),
        ("lock --check --json", 2),
        ("sync --json", 2),
        ("audit --json nowhere", 2),
        ("audit --format json nowhere", 2),
        ("checkpoints keep --json nowhere", 2),
        ("checkpoints downgrade --json nowhere --for 2.14", 2),
        ("catalogue show 2.51 --json", 2),
    ],
)
def test_a_failure_is_one_document_with_its_code_message_and_hint(
    terminal: Terminal, words: str, code: int
) -> None:
    ended = terminal.type(*words.split())
    assert ended.code == code
    assert list(ended.json) == ["schema", "code", "message", "hint"]
    assert (ended.json["schema"], ended.json["code"]) == ("torchenv.error/1", code)
    assert f"error: {ended.json['message']}\n" in ended.err
    if ended.json["hint"]:
        assert f"hint: {ended.json['hint']}\n" in ended.err


def test_a_blocked_plan_is_its_own_document(terminal: Terminal) -> None:
    ended = terminal.type(*BLOCKED, "--json")
    assert (ended.code, ended.json["schema"], ended.json["outcome"]) == (3, "torchenv.plan/1", "blocked")
    made = terminal.type("create", *BLOCKED[1:], "--dry-run", "--json")
    assert (made.code, made.json["outcome"]) == (3, "blocked")
    assert made.err.count("error: ") == 1


def test_a_defect_is_told_as_one_and_keeps_its_traceback(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("made up")

    monkeypatch.setattr("torchenv.plan.resolve", fail)
    ended = terminal.type("plan", "--json", "--host", HOSTS / "cpu-only-linux.json")
    assert (ended.code, ended.json["code"]) == (70, 70)
    assert "Traceback" in ended.err
    assert ended.err.endswith("this is a defect in torchenv: please report it with the lines above\n")


@pytest.mark.skipif(sys.platform == "win32", reason="the redirections of a POSIX shell")
@pytest.mark.parametrize(
    ("redirection", "code"),
    [(">&-", 3), ("2>&-", 3), ("<&- >&- 2>&-", 3), ("2>/dev/full", 3), (">/dev/full", 3), ("| head -c 0", 3)],
)
def test_a_stream_that_takes_nothing_leaves_the_exit_code_that_was_earned(
    terminal: Terminal, redirection: str, code: int
) -> None:
    words = " ".join(map(str, BLOCKED))
    line = f"set -o pipefail; {sys.executable} -m torchenv {words} {redirection}"
    shell = subprocess.run(
        ["bash", "-c", line], cwd=terminal.cwd, env=terminal.environ, capture_output=True, check=False
    )
    assert shell.returncode == code
    assert b"Traceback" not in shell.stderr
    assert (b"gtx" in shell.stdout.lower()) is redirection.startswith("2>")
    assert (b"cannot be written" in shell.stderr) is (redirection == ">/dev/full")


def test_a_file_that_is_written_while_stdout_is_closed_holds_only_what_is_its_own(terminal: Terminal) -> None:
    line = f"exec >&- 2>&-; {sys.executable} -m torchenv probe --sysroot . -o host.json --json"
    done = subprocess.run(["bash", "-c", line], cwd=terminal.cwd, env=terminal.environ, check=False)
    assert done.returncode == 0
    assert json.loads((terminal.cwd / "host.json").read_text("utf-8"))["schema"] == "torchenv.host/1"


@pytest.mark.parametrize("module", ["packaging", "argparse", "tomli", "pathlib"])
def test_what_a_pythonpath_shadows_does_not_keep_torchenv_from_starting(
    terminal: Terminal, tmp_path: Path, module: str
) -> None:
    folder = tmp_path / "shadow"
    folder.mkdir()
    (folder / f"{module}.py").write_text("raise SystemExit('shadowed')\n", "utf-8")
    ended = terminal.start("plan", "--host", HOSTS / "cpu-only-linux.json", PYTHONPATH=str(folder))
    assert (ended.code, ended.err) == (0, "")
