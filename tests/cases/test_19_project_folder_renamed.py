"""A project folder was renamed, and every script of its environment names the old path."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.checkpoints import contents
from tests.support.terminal import Terminal
from tests.support.workspace import write_venv


def test_both_names_are_told_and_the_rollback_finds_it_as_it_is(tmp_path: Path) -> None:
    terminal = Terminal.within(tmp_path)
    old, new = tmp_path / "work" / "old", tmp_path / "work" / "new"
    (old / ".git").mkdir(parents=True)
    before = replace(terminal, cwd=old)
    write_venv(old / ".venv", {"torch": "2.14.1+cu126"})
    (old / ".venv" / "bin" / "torchrun").write_text(f"#!{old}/.venv/bin/python\n", "utf-8")
    write_venv(tmp_path / "other", {"torch": "2.15.0+cu132"})
    for path in (old / ".venv", tmp_path / "other"):
        assert before.type("adopt", path).code == 0
    assert before.type("use", "1").code == 0
    old.rename(new)
    untouched = contents(new / ".venv")

    after = replace(terminal, cwd=new)
    (problem,) = after.type("status", "--json").json["problems"]
    assert problem["code"] == "moved"
    assert f"{new}/.venv: was moved here from {old}/.venv" in problem["message"]
    assert after.type("use", "2").code == 0
    back = after.type("rollback", "--json")
    assert back.code == 0, back.err
    assert back.json["path"] == str(new / ".venv")
    assert contents(new / ".venv") == untouched


def test_a_new_folder_at_the_old_path_is_not_used_in_silence(tmp_path: Path) -> None:
    terminal = Terminal.within(tmp_path)
    for name, torch in (("first", "2.14.1+cu126"), ("other", "2.15.0+cu132")):
        write_venv(tmp_path / name, {"torch": torch})
        assert terminal.type("adopt", tmp_path / name).code == 0
    (tmp_path / "first").rename(tmp_path / "elsewhere")
    write_venv(tmp_path / "first", {"torch": "2.14.1+cu126"})
    ended = terminal.type("use", "1")
    assert ended.code == 5
    assert f"{tmp_path / 'first'} is another environment than the recorded" in ended.err
