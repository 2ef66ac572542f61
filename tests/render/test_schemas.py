"""What the commands print with `--json` is what the published schemas say."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.support.checkpoints import save
from tests.support.index import Index
from tests.support.terminal import Terminal

from torchenv.host.model import Host

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
HOSTS = sorted((ROOT / "tests" / "data" / "hosts").glob("*.json"))

PROFILE = """\
schema = 1
[checkpoints]
roots = ["runs"]
[smoke]
commands = [["python", "-c", "import torch"]]
[evaluation]
commands = [["python", "-c", "print('{\\"loss\\": 1.5, \\"name\\": \\"a\\"}')"]]
metrics = { loss = { better = "lower", relative = 0.1 } }
[[target]]
name = "node"
platform = "linux-x86_64"
python = "3.12"
backend = "cu132"
[[target]]
name = "old"
platform = "linux-x86_64"
python = "3.10"
torch = "2.15"
"""


def check(document: dict[str, Any]) -> str:
    """Validate a document against the schema that it names, and return that name."""
    name: str = document["schema"]
    schema = json.loads((SCHEMAS / f"{name.replace('/', '-')}.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(document)
    return name


def list_published() -> set[str]:
    """Return the names of the documents that have a schema."""
    return {path.stem.removeprefix("torchenv.").removesuffix("-1") for path in SCHEMAS.glob("*.json")}


def test_every_document_that_the_code_names_has_a_schema() -> None:
    text = "".join(path.read_text("utf-8") for path in (ROOT / "src" / "torchenv").rglob("*.py"))
    named = set(re.findall(r'"torchenv\.([a-z-]+)/1"', text))
    # Files that torchenv alone reads.
    assert named - {"checkpoint-index", "upgrade-journal"} == list_published()


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_a_schema_is_a_schema_and_names_its_document(path: Path) -> None:
    schema = json.loads(path.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema"] == {"const": schema["$id"]}
    assert path.name == f"{schema['$id'].replace('/', '-')}.json"


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_a_host_and_its_plan_are_as_their_schemas_say(path: Path, tmp_path: Path) -> None:
    assert check(Host.from_json(path.read_text("utf-8"), path.name).to_document()) == "torchenv.host/1"
    planned = Terminal.within(tmp_path).type("plan", "2.15", "--host", path, "--json")
    assert check(planned.json) == "torchenv.plan/1"


def test_what_the_commands_print_is_as_the_schemas_say(tmp_path: Path, index: Index) -> None:
    terminal = Terminal.within(tmp_path, index)
    (terminal.cwd / "train.py").write_text(
        "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
    )
    (terminal.cwd / "torchenv.toml").write_text(PROFILE, "utf-8")
    save(terminal.cwd / "runs" / "a" / "step-100", "dcp-2.15.0")
    chosen = ("--backend", "cpu", "--python", sys.executable)
    for release in ("2.14.1", "2.15"):
        made = terminal.type("create", release, *chosen, "--use")
        assert made.code == 0, made.err

    asked: tuple[tuple[str | Path, ...], ...] = (
        ("probe",),
        ("plan", "2.15", *chosen),
        ("plan", "2.15", "--host", *HOSTS),
        ("checkpoints", "scan", "runs"),
        ("rollback",),
        ("use", "2"),
        ("list",),
        ("history",),
        ("show", "9"),
        ("smoke", "2"),
        ("evaluate", "2", "--against", "1"),
        ("lock",),
        ("lock", "--check"),
        ("catalogue", "show"),
        ("catalogue", "check"),
        ("doctor", "2"),
        ("status",),
        ("diff", "1", "2"),
        ("verify", "2"),
        ("audit", "."),
        ("checkpoints", "downgrade", "runs/a/step-100", "--for", "2.14"),
        ("checkpoints", "keep", "runs/a/step-100"),
        ("checkpoints", "verify"),
        ("checkpoints", "gate", "--readable-by", "2.14", "runs"),
        ("checkpoints", "diff", "runs/a/step-100", "runs/a-for-2.14/step-100"),
        ("upgrade", "--check"),
        ("upgrade", "--check", "--host", *HOSTS),
    )
    printed = {check(terminal.type(*words, "--json").json) for words in asked}

    # Those that these commands do not print have tests of their own.
    assert printed == {
        f"torchenv.{name}/1" for name in list_published() - {"bundle", "convert", "pack", "repair"}
    }
