"""The README and the guides show only commands that torchenv takes; the main walk of the README is run."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.workspace import write_venv

from torchenv.cli import COMMANDS, make_parser
from torchenv.profile.model import Profile

ROOT = Path(__file__).parents[1]
PAGES = tuple(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")) + tuple(
    sorted((ROOT / "docs").glob("*.md"))
)
CI_FILES = [*sorted((ROOT / "docs" / "ci").iterdir()), ROOT / ".pre-commit-hooks.yaml"]
WALK = "## Upgrade, and roll back"


def list_shown(text: str, program: str) -> list[str]:
    """Return the commands of a page's code blocks that start a program, without what they are written to."""
    found = (re.match(rf"    (?:\$ )?({program}.*)", line) for line in text.splitlines())
    lines = (shlex.split(match[1], comments=True) for match in found if match)
    return [shlex.join(words[: words.index(">")] if ">" in words else words) for words in lines]


def list_inline(text: str) -> list[str]:
    """Return the commands in a page's sentences; one that is named alone needs no arguments there."""
    return [
        line for line in re.findall(r"`(torchenv [a-z][^`]*)`", text) if line.split(" ", 1)[1] not in COMMANDS
    ]


SHOWN = [
    pytest.param(line, id=f"{page.name}: {line}")
    for page in PAGES
    for line in dict.fromkeys(
        (*list_shown(page.read_text("utf-8"), "torchenv "), *list_inline(page.read_text("utf-8")))
    )
]


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_that_is_shown_is_one_that_torchenv_takes(line: str) -> None:
    _, name, *words = shlex.split(line)
    if name in {"help", "version"}:
        return
    parser, spec = make_parser(name)
    spec.read(parser.parse(words), ROOT)


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.name)
def test_a_command_of_a_ci_file_is_one_that_torchenv_takes(path: Path) -> None:
    shown = re.findall(r"(?:run: |- |entry: )torchenv ([^>\n]+)", path.read_text("utf-8"))
    assert shown
    for line in shown:
        name, *words = shlex.split(line)
        # pre-commit adds the files.
        words += ["train.py"] if "entry: " in path.read_text("utf-8") else []
        parser, spec = make_parser(name)
        spec.read(parser.parse(words), ROOT)


def test_the_hook_of_pre_commit_is_one_that_it_takes_and_the_guide_names_it() -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert {"id", "name", "entry", "language", "types_or"} <= hook.keys()
    guide = (ROOT / "docs" / "audit-in-ci.md").read_text("utf-8")
    (config,) = map(yaml.safe_load, re.findall(r"```yaml\n(repos:.*?)```", guide, re.DOTALL))
    assert [one["id"] for repo in config["repos"] for one in repo["hooks"]] == [hook["id"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_profile_that_is_shown_is_read(page: Path) -> None:
    for block in re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        Profile.from_toml(block, page.name)


@pytest.mark.parametrize("line", list_shown(PAGES[0].read_text("utf-8"), "scripts/"))
def test_a_script_of_the_readme_is_there(line: str) -> None:
    assert (ROOT / shlex.split(line)[0]).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_every_guide_and_reference_is_linked_from_the_readme() -> None:
    linked = set(re.findall(r"\]\((docs/[^)#]+)\)", PAGES[0].read_text("utf-8")))
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - linked <= {"docs/audit-findings.md"}


def test_every_command_is_shown_on_a_page() -> None:
    named = {
        shlex.split(line)[1] for page in PAGES for line in list_shown(page.read_text("utf-8"), "torchenv ")
    }
    assert set(COMMANDS) <= named


def test_the_readme_is_short() -> None:
    assert len(PAGES[0].read_text("utf-8").splitlines()) <= 200


def test_the_main_walk_of_the_readme_runs_as_it_is_printed(tmp_path: Path, index: Index) -> None:
    terminal = Terminal.within(tmp_path, index)
    write_venv(terminal.cwd / ".venv", {"torch": "2.14.1+cpu"})
    (terminal.cwd / "train.py").write_text("import torch; print(torch.__version__)\n")
    section = PAGES[0].read_text("utf-8").partition(WALK)[2].partition("\n## ")[0]
    printed = {}
    for line in list_shown(section, "torchenv "):
        _, name, *words = shlex.split(line)
        # The same on a machine with a GPU, and whatever else it has for interpreters.
        words += ["--backend", "cpu", "--python", sys.executable] if name == "create" else []
        printed[name] = terminal.start(name, *words)
        assert printed[name].code == 0, f"{line}: {printed[name].err}"

    assert list(printed) == ["create", "list", "run", "use", "rollback"]
    assert printed["run"].out == "2.15.0+cpu\n"
    listed = terminal.type("list", "--json").json
    assert [(entry["number"], entry["torch"]) for entry in listed["environments"]] == [
        (1, "2.14.1+cpu"),
        (2, "2.15.0+cpu"),
    ]
    assert listed["current"] == 1
