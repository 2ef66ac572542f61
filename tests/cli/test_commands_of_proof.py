"""The commands of proof, as a shell sees them: what is printed where, and the exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "torchenv.toml").write_text("schema = 1\n", "utf-8")
    return directory


@pytest.fixture
def shell(project: Path, tmp_path: Path) -> Shell:
    """Run torchenv in the project, with a home of its own."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "torchenv", *words],
            cwd=project,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "SYSTEMROOT": os.environ.get("SYSTEMROOT", ""),
            },
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    return run


TRAIN = "import torch.distributed.checkpoint as dcp\n\ndcp.save({}, checkpoint_id='step-1')\n"


@pytest.fixture
def train(project: Path) -> Path:
    path = project / "train.py"
    path.write_text(TRAIN, "utf-8")
    return path


def test_an_audit_names_the_file_as_it_was_named_and_exits_1(shell: Shell, train: Path) -> None:
    done = shell("audit", train.name)
    assert done.returncode == 1
    assert done.stdout.startswith("train.py:3:1: warning: ")
    assert done.stdout.endswith("in 1 file, for torch 2.15.0\n")
    assert done.stderr == ""


@pytest.mark.parametrize(("fail_on", "code"), [("note", 1), ("warning", 1), ("error", 0)])
def test_an_audit_fails_on_what_it_is_told_to(shell: Shell, train: Path, fail_on: str, code: int) -> None:
    assert shell("audit", train.name, "--fail-on", fail_on).returncode == code


def test_an_audit_is_one_json_document(shell: Shell, train: Path) -> None:
    for words in (["--format", "json"], ["--json"]):
        document = json.loads(shell("audit", ".", *words).stdout)
        assert (document["schema"], document["files"]) == ("torchenv.audit/1", 1)
        assert {finding["path"] for finding in document["findings"]} == {train.name}
    sarif = json.loads(shell("audit", ".", "--format", "sarif").stdout)
    assert sarif["version"] == "2.1.0"


@pytest.mark.parametrize("text", ["import torch\ndef f(:\n", "def f(:\n"], ids=["names torch", "does not"])
def test_a_named_file_that_is_no_python_does_not_pass(shell: Shell, train: Path, text: str) -> None:
    train.write_text(text, "utf-8")
    done = shell("audit", train.name)
    assert done.returncode == 1
    assert done.stdout.endswith("nothing found in 0 files, for torch 2.15.0; 1 could not be read\n")


def test_clean_code_passes_and_a_missing_path_is_wrong_input(shell: Shell, train: Path) -> None:
    train.write_text("import torch\n", "utf-8")
    assert shell("audit", train.name).returncode == 0
    missing = shell("audit", "gone.py")
    assert (missing.returncode, missing.stderr) == (2, "error: `gone.py` does not exist\n")


def test_a_plan_weighs_an_audit_in_its_advice(shell: Shell, train: Path) -> None:
    host = Path(__file__).parents[1] / "data" / "hosts" / "rtx-4090-driver-580.json"
    done = shell("plan", "2.15", "--host", str(host), "--audit", train.name, "--json")
    advice = json.loads(done.stdout)["advice"]
    assert advice["verdict"] == "upgrade"
    assert "warning" in advice["reasons"][-1]


def test_a_report_is_printed_or_written(shell: Shell, project: Path) -> None:
    printed = shell("report")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout.startswith("torchenv report, ")
    assert "Environments\n  none yet: make one with `torchenv create`\n" in printed.stdout
    written = shell("report", "--html", "where.html")
    assert (written.stdout, written.stderr) == ("", f"wrote the report to {project / 'where.html'}\n")
    assert (project / "where.html").read_text("utf-8").startswith("<!DOCTYPE html>\n")


@pytest.mark.parametrize(
    "command",
    ["smoke", "evaluate", "kernel install", "show", "verify", "run -- true", "activate", "add x", "drop x"],
)
def test_without_an_environment_there_is_nothing_to_prove(shell: Shell, project: Path, command: str) -> None:
    done = shell(*command.split())
    assert done.returncode == 3
    assert done.stderr == "error: no active environment\nhint: make one with `torchenv create --use`\n"
