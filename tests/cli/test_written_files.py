"""What torchenv writes where the user says replaces its own earlier output, and no other file."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from tests.support.index import Index
from tests.support.project import PAIR, Project
from tests.support.terminal import Terminal
from tests.support.wheels import Wheel


@pytest.mark.parametrize(
    ("words", "option", "other"),
    [(("report", "--html"), "--html", "report.html"), (("probe", "-o"), "-o", "host.json")],
)
def test_a_file_of_the_users_is_not_replaced(
    words: tuple[str, ...], option: str, other: str, terminal: Terminal
) -> None:
    train = terminal.cwd / "train.py"
    train.write_text("import torch\n", "utf-8")
    ended = terminal.type(*words, "train.py")
    assert ended.code == 2
    assert ended.err.splitlines()[-2:] == [
        f"error: `{train}` already exists and was not written by torchenv",
        f"hint: write to another file with `{option} {terminal.cwd / other}`",
    ]
    assert train.read_text("utf-8") == "import torch\n"
    for _ in range(2):
        assert terminal.type(*words, other).code == 0
    (terminal.cwd / "empty").touch()
    assert terminal.type(*words, "empty").code == 0
    assert (
        terminal.type(*words, "train.py")
        .err.rstrip()
        .endswith(f"{terminal.cwd / Path(other).stem}-2{Path(other).suffix}`")
    )


@pytest.mark.parametrize(
    ("words", "other"),
    [
        (("--uv",), "torch.toml"),
        (("--requirements", "ci"), "requirements.txt"),
        (("--dockerfile", "ci"), "Dockerfile"),
    ],
)
def test_an_export_replaces_only_an_export(
    words: tuple[str, ...], other: str, index: Index, team: Project
) -> None:
    team.write("torchenv.toml", PAIR.replace("{root}", index.root))
    index.add("simple", Wheel(name="uv", version=version("uv"), tag="py3-none-manylinux_2_17_x86_64"))
    assert team.run("lock").code == 0
    team.write("pyproject.toml", "# mine\n[project]\n")
    done = team.run("export", *words, "-o", "pyproject.toml")
    assert (done.code, team.read("pyproject.toml")) == (2, "# mine\n[project]\n")
    assert done.said.endswith(f"`-o {team.directory / other}`")
    for _ in range(2):
        assert team.run("export", *words, "-o", other).code == 0
