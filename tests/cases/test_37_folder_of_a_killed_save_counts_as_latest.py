"""Jobs that died while they saved: the folder with the highest step is not the newest checkpoint."""

from __future__ import annotations

from pathlib import Path

from tests.support.checkpoints import contents, save
from tests.support.terminal import Terminal
from tests.support.workspace import write_venv


def test_the_newest_usable_save_is_the_newest_complete_one_and_nothing_is_deleted(tmp_path: Path) -> None:
    terminal = Terminal.within(tmp_path)
    for torch in ("2.14.1+cu126", "2.15.0+cu132"):
        write_venv(tmp_path / torch, {"torch": torch})
        assert terminal.type("adopt", tmp_path / torch).code == 0
    assert terminal.type("use", "2").code == 0
    samples = ("dcp-2.14.1", "dcp-nometa", "dcp-truncmeta", "dcp-missingshard")
    for step, sample in enumerate(samples, 1):
        save(terminal.cwd / "runs" / "a" / f"step-{step}00", sample)
    before = contents(terminal.cwd / "runs")

    found = terminal.type("checkpoints", "scan", "runs", "--json").json["checkpoints"]
    assert {line["path"].rpartition("/")[2]: line["state"] for line in found} == {
        "step-100": "complete",
        "step-200": "incomplete",
        "step-300": "corrupt",
        "step-400": "corrupt",
    }
    read = terminal.type("checkpoints", "show").out
    for broken in ("step-200", "step-300", "step-400"):
        assert broken in read
    (run,) = terminal.type("rollback", "--json").json["checkpoints"]
    assert run["newest_readable"] == "runs/a/step-100"
    assert contents(terminal.cwd / "runs") == before
