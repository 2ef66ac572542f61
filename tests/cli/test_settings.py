"""Where the workspace is: a flag beats a variable beats the project beats the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.cli.settings import find_project, find_workspace

HOME = Path("/home/u")
USER_DATA = HOME / ".local/share/torchenv"


def found(cwd: str, *marks: str, flag: str | None = None, home: Path | None = HOME, **environ: str) -> Path:
    there = {Path(mark) for mark in marks}
    project = find_project(Path(cwd), home=home, exists=there.__contains__)
    named = flag or environ.get("TORCHENV_HOME")
    return find_workspace(named, project, cwd=Path(cwd), home=home, user_data=lambda: USER_DATA)


def test_the_flag_beats_the_variable_and_the_variable_beats_the_project() -> None:
    marks = "/home/u/project/.git"
    assert found("/home/u/project", marks, flag="/a", TORCHENV_HOME="/b") == Path("/a")
    assert found("/home/u/project", marks, TORCHENV_HOME="/b") == Path("/b")
    assert found("/home/u/project", marks) == Path("/home/u/project/.torchenv")


def test_a_relative_place_is_meant_from_here_and_a_tilde_is_the_home_directory() -> None:
    assert found("/home/u/project", flag="ws") == Path("/home/u/project/ws")
    assert found("/home/u/project", TORCHENV_HOME="~/ws") == HOME / "ws"
    assert found("/home/u/project", TORCHENV_HOME="~") == HOME


def test_a_variable_that_is_set_to_nothing_counts_as_not_set() -> None:
    assert found("/home/u/project", "/home/u/project/.git", TORCHENV_HOME="") == Path(
        "/home/u/project/.torchenv"
    )


@pytest.mark.parametrize("mark", ["torchenv.toml", ".torchenv", ".venv", "pyproject.toml", ".git"])
def test_the_nearest_directory_upwards_that_holds_a_mark_is_the_project(mark: str) -> None:
    marks = (f"/home/u/project/{mark}", "/home/u/project/inner/.git")
    assert found("/home/u/project/src/deep", *marks) == Path("/home/u/project/.torchenv")
    assert found("/home/u/project/inner/src", *marks) == Path("/home/u/project/inner/.torchenv")


def test_neither_the_home_directory_nor_the_root_is_ever_a_project() -> None:
    assert found("/home/u/notes", "/home/u/.git", "/.venv") == USER_DATA
    assert found("/home/u", "/home/u/.torchenv") == USER_DATA
    assert found("/", "/pyproject.toml") == USER_DATA


def test_a_directory_that_may_not_be_looked_into_is_no_project() -> None:
    def look(path: Path) -> bool:
        if path.is_relative_to("/srv/closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return path == Path("/srv/.git")

    assert find_project(Path("/srv/closed/deep"), home=HOME, exists=look) == Path("/srv")


def test_a_machine_without_a_home_directory_has_projects_all_the_same() -> None:
    assert found("/srv/job", "/srv/job/.git", home=None) == Path("/srv/job/.torchenv")
