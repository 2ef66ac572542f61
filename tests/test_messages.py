"""Every help line and message is in a file, so that a change of words is seen in review; old words stay away.

`messages.txt` is what the commands print as their help, `messages_of_modules.txt` what the sources may print,
each text with the names of its fields; `tests/cli/test_walk.py` compares what a walk prints. Write them
again with `python -m tests.test_messages` in the top directory of the repository.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
from pathlib import Path

import pytest
from tests.support.messages import PACKAGE, hints_of, list_messages, raised_by

from torchenv.cli import COMMANDS, main

FILE = Path(__file__).parent / "messages.txt"
OF_MODULES = Path(__file__).parent / "messages_of_modules.txt"

# What a hint begins with: what there is to do.
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        add adopt ask audit begin bring build bundle change check choose commit convert copy delete did
        download drop edit end fetch find fix forget free give install keep leave let list lock look loosen
        make move name open pack plan publish put rebuild release remove rename replace restore run save see
        set start stop store switch take try update upgrade upload use wait write
        """,
    )
)

# What was said once, odd or unclear, and is said otherwise now: in no module and in no help.
PAST = (
    "where one stands",
    "in use: nothing yet",
    "rollback: to nothing",
    "its interpreter and its torch are in place",
    "is as it was, file by file",
    "proving it from inside",
    "is proven on the CPU alone",
    "no device visible: this plan is for the CPU",
    "serves it, and nothing newer does",
    "passed over:",
    "was preferred",
    "is not there; name a root that is",
    "is not among the backends that were asked for",
    "none of the run can",
    "from inside, which takes a minute or two",
    "stays unproven until",
    "1 steps",
    "1 files",
    "a step back costs",
    "does not take",
    "the copy is there already",
    "is no kernel any more",
    "may be any of environments",
    "needed by nobody",
    "nobody needs",
    "though a rollback leads to it",
    "the locks are what the profile and the catalogue give",
    "cut short or damaged: make it again",
    "no environment is called",
    "is there already",
    "there is nothing to go back to",
    "mend it and run again",
    "gave no sign of life",
    "what goes along",
)


def list_help() -> str:
    """Ask every command for its help, and those below it for theirs."""
    parts = [ask("--help")]
    for name in COMMANDS:
        told = ask(name, "--help")
        parts.append(told)
        # checkpoints: {scan,show,…} are commands of their own
        below = re.findall(r"^    (\w+) {2,}[A-Z]", told, re.MULTILINE) if " ACTION " in told else []
        parts += [ask(name, word, "--help") for word in below]
    return "\n\n".join(parts) + "\n"


def ask(*words: str) -> str:
    """Return the lines of a help, without how they are laid out and what every command takes."""
    out = io.StringIO()
    # argparse looks into the process for the width: so wide that a line of help is one line.
    assert main(words, {}, "/", None, out, out) == 0
    _, _, lines = out.getvalue().partition("\n\n")
    told = [re.sub(r" {2,}", "  ", line.strip()) for line in lines.splitlines() if line.strip()]
    own = [line for line in told if line not in GENERAL]
    return "\n  ".join([f"$ torchenv {' '.join(words)}", *own])


GENERAL = (
    "options:",
    "positional arguments:",
    "-h, --help  show this help message and exit",
    "--root DIR  Workspace to use (default: the project's .torchenv)",
    "-q, --quiet  Print nothing but results and errors",
    "-v, --verbose  Print the programs that run",
)


@pytest.mark.skipif(sys.version_info[:2] not in {(3, 11), (3, 12)}, reason="argparse words it otherwise")
def test_every_help_is_the_one_that_was_reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert list_help() == FILE.read_text("utf-8"), "write it again: python -m tests.test_messages"


def test_a_line_of_help_begins_large_and_ends_without_a_stop() -> None:
    for says in (line for _, line in COMMANDS.values()):
        assert says[0].isupper()
        assert not says.endswith(".")


def test_every_message_of_the_sources_is_one_that_was_reviewed() -> None:
    assert write_messages() == OF_MODULES.read_text("utf-8"), "write it again: python -m tests.test_messages"


def test_the_sentence_of_every_error_is_among_the_messages() -> None:
    messages = list_messages()
    for path, tree in read_sources():
        assert set(raised_by(tree)) <= set(messages.get(path, ())), path


def test_a_hint_begins_with_what_there_is_to_do() -> None:
    found = [
        f"{path}: {hint}"
        for path, tree in read_sources()
        for hint in hints_of(tree)
        if re.split(r"[ ,:]", hint)[0] not in VERBS and not hint.startswith("{")
    ]
    assert found == []


def write_messages() -> str:
    """List the messages of every module below its name."""
    return "\n".join(
        "\n".join([module, *(f"  {text}" for text in texts), ""]) for module, texts in list_messages().items()
    )


@functools.cache
def read_sources() -> tuple[tuple[str, ast.Module], ...]:
    """Parse every module."""
    return tuple(
        (path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8")))
        for path in PACKAGE.rglob("*.py")
    )


@pytest.mark.parametrize("phrase", PAST)
def test_what_was_said_once_is_said_no_more(phrase: str) -> None:
    assert find(phrase) == []


def find(phrase: str) -> list[str]:
    """Return the places where a text holds the phrase."""
    return [f"{place}: {text}" for place, text in list_texts() if phrase in text]


@functools.cache
def list_texts() -> tuple[tuple[str, str], ...]:
    """Return every text of the sources with its place; docstrings are for readers of the code."""
    found = []
    for path, tree in read_sources():
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        found += [
            (f"{path}:{node.lineno}", node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        ]
    return tuple(found)


if __name__ == "__main__":
    import os
    import tempfile

    from tests.support.index import serving
    from tests.support.walk import FILE as OF_A_WALK
    from tests.support.walk import walk
    from tests.support.world import world

    os.environ["COLUMNS"] = "400"
    FILE.write_text(list_help(), "utf-8")
    OF_MODULES.write_text(write_messages(), "utf-8")
    with tempfile.TemporaryDirectory() as folder, serving(world()) as index:
        OF_A_WALK.write_text(walk(Path(folder), index), "utf-8")
