"""The hook of `run` reaches every Python below, notes where torch saves, and changes one module of it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.support.checkpoints import LONG_AGO, save
from tests.support.workspace import Workspace

from torchenv.actions.downgrade import DowngradeTarget
from torchenv.actions.write_for import HOOK, find_new_form, hook_variables, refuse_lost_hook, write_for
from torchenv.environment.base_python import BasePython
from torchenv.environment.startup import STARTUP_FILE, STARTUP_TEXT
from torchenv.errors import InputError, NothingSuits
from torchenv.system.process import Command, Completed, Programs
from torchenv.workspace.records import Environment, EnvironmentKind, State

# What torch.distributed.checkpoint.metadata of 2.15 has that counts here.
METADATA = """
class TensorProperties:
    def __getstate__(self):
        return ("dtype", "layout", False, "memory", False, (3, 1))

class StorageMeta:
    def __init__(self, checkpoint_id):
        self.checkpoint_id = checkpoint_id
"""

ASK = """
import json, sys
import torch.distributed.checkpoint.metadata as metadata
state = metadata.TensorProperties().__getstate__()
print(json.dumps({"items": len(state), "file": metadata.__file__, "path": sys.path}))
"""


def environment(torch: str | None) -> Environment:
    return Environment(
        number=2,
        name="trained",
        kind=EnvironmentKind.BUILT,
        state=State.READY,
        path="/trained",
        python=BasePython("3.12.7", "/usr/bin/python3.12"),
        torch=torch,
        created=datetime(2026, 11, 30, 8, tzinfo=UTC),
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory with a package that looks like torch 2.15.0."""
    package = tmp_path / "site" / "torch" / "distributed" / "checkpoint"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").write_text("")
    (package / "metadata.py").write_text(METADATA)
    put_torch(tmp_path / "site", "2.15.0+cu132")
    return tmp_path / "site"


def put_torch(site: Path, version: str) -> None:
    (site / "torch" / "__init__.py").write_text(f"__version__ = {version!r}\n")


def run(site: Path, variables: Mapping[str, str], code: str = ASK) -> Completed:
    # PYTHONPATH is all that the hook may take up; the package stands in for what is installed.
    around = hook_variables({"PYTHONPATH": str(site)}, site, None) if variables else {"PYTHONPATH": str(site)}
    env = {**around, **variables}
    return Programs({"PATH": ""})(Command((sys.executable, "-B", "-c", code), env=env))


def items(done: Completed) -> int:
    answer: int = json.loads(done.check("ask"))["items"]
    return answer


def test_with_the_hook_the_state_has_five_items_and_without_it_six(site: Path) -> None:
    changed = write_for("2.14", environment("2.15.0+cu132"))
    assert changed.says == "distributed checkpoints are written for torch 2.14 here: without strides"
    assert items(run(site, changed.variables)) == 5
    assert items(run(site, {})) == 6


def test_the_hook_is_nowhere_on_the_path_and_torch_is_where_it_was(site: Path) -> None:
    variables = write_for("2.14", environment("2.15.0")).variables
    with_hook, without = (json.loads(run(site, around).check("ask")) for around in (variables, {}))
    assert with_hook["file"] == without["file"]
    assert str(HOOK) not in with_hook["path"]
    assert with_hook["path"] == without["path"]


def test_a_process_that_a_process_starts_writes_so_too(site: Path) -> None:
    code = f"""
import subprocess, sys
sys.exit(subprocess.run([sys.executable, "-B", "-c", {ASK!r}]).returncode)
"""
    variables = write_for("2.14", environment("2.15.0")).variables
    assert items(run(site, variables, code)) == 5


def test_a_sitecustomize_of_the_users_own_still_runs(site: Path) -> None:
    (site / "sitecustomize.py").write_text("import sys\nsys.users_own = True\n")
    own = str(site / "sitecustomize.py")
    code = f"import sys\nassert sys.users_own\nassert sys.modules['sitecustomize'].__file__ == {own!r}\n"
    variables = write_for("2.14", environment("2.15.0")).variables
    assert items(run(site, variables, code + ASK)) == 5


def test_an_error_in_the_users_own_is_not_swallowed(site: Path) -> None:
    (site / "sitecustomize.py").write_text("import not_there_at_all\n")
    done = run(site, write_for("2.14", environment("2.15.0")).variables, "pass")
    assert "No module named 'not_there_at_all'" in done.err


def test_an_older_torch_is_left_as_it_is(site: Path) -> None:
    variables = write_for("2.14", environment("2.15.0")).variables
    put_torch(site, "2.14.1+cu126")
    assert items(run(site, variables)) == 6  # as this stand-in does


def test_a_torch_that_was_put_in_place_since_is_refused_unless_forced(site: Path) -> None:
    put_torch(site, "2.16.0")
    done = run(site, write_for("2.14", environment("2.15.0")).variables)
    assert done.code == 1
    assert done.err.strip().splitlines()[-1] == (
        "ImportError: `torchenv run --write-for` was not tested with torch 2.16.0;"
        " `--force` uses it all the same"
    )
    assert items(run(site, write_for("2.14", environment("2.15.0"), force=True).variables)) == 5


def test_the_path_that_only_python_3_13_has_is_written_as_text(site: Path) -> None:
    code = """
import json, pathlib
import torch.distributed.checkpoint.metadata as metadata
class Path: pass
Path.__module__ = "pathlib._local"
Path.__str__ = lambda self: "/runs/a"
print(json.dumps([
    metadata.StorageMeta(Path()).__getstate__(), metadata.StorageMeta("/runs/b").__getstate__(),
]))
"""
    done = run(site, write_for("2.14", environment("2.15.0")).variables, code)
    assert json.loads(done.check("ask")) == [{"checkpoint_id": "/runs/a"}, {"checkpoint_id": "/runs/b"}]


@pytest.mark.parametrize(
    ("target", "torch", "says"),
    [
        ("2.14", "2.14.1+cu126", "torch 2.14.1+cu126 writes no strides: nothing is changed for torch 2.14"),
        ("2.15", "2.15.0+cu132", "torch 2.15 reads what 2.15.0+cu132 writes: nothing is changed"),
    ],
)
def test_where_nothing_is_needed_nothing_is_changed(target: str, torch: str, says: str) -> None:
    changed = write_for(target, environment(torch))
    assert (changed.variables, changed.says) == ({}, says)


def test_what_it_was_not_tested_with_is_refused() -> None:
    with pytest.raises(NothingSuits) as raised:
        write_for("2.14", environment("2.16.0"))
    assert str(raised.value) == "writing for torch 2.14 was not tested with torch 2.16.0"
    with pytest.raises(NothingSuits) as raised:
        write_for("2.3", environment("2.15.0"))
    assert str(raised.value) == (
        "torch 2.3 does not read what torch 2.15.0 writes, with strides or without:"
        " its metadata names StorageMeta, which torch 2.4 added"
    )
    with pytest.raises(NothingSuits):
        write_for("2.14", environment(None))
    with pytest.raises(InputError):
        write_for("old", environment("2.15.0"))


@pytest.mark.parametrize(("torch", "target"), [("2.14.1", "2.14"), ("2.15.0", "2.15")])
def test_on_python_3_13_the_path_is_written_for_every_python(site: Path, torch: str, target: str) -> None:
    newer = replace(environment(torch), python=BasePython("3.13.1", "/usr/bin/python3.13"))
    changed = write_for(target, newer)
    assert changed.says == f"distributed checkpoints are written for torch {target} on any Python"
    put_torch(site, torch)
    code = """
import json, pathlib
import torch.distributed.checkpoint.metadata as metadata
class Path: pass
Path.__module__ = "pathlib._local"
Path.__str__ = lambda self: "/runs/a"
state = metadata.TensorProperties().__getstate__()
print(json.dumps([len(state), metadata.StorageMeta(Path()).__getstate__()]))
"""
    assert json.loads(run(site, changed.variables, code).check("ask")) == [6, {"checkpoint_id": "/runs/a"}]


SAVE = """
import os, sys
import torch.serialization
import torch.distributed.checkpoint.filesystem as filesystem
runs = sys.argv[1] if len(sys.argv) > 1 else os.environ["RUNS"]
torch.serialization.save({}, f"{runs}/a/model_1.pt")
torch.serialization.save({}, f=f"{runs}/a/model_2.pt")
with open(f"{runs}/b.pt", "wb") as file:
    torch.serialization.save({}, file)
torch.serialization.save({}, [])
writer = filesystem.FileSystemWriter()
writer.path = f"{runs}/c/step-1"
print(writer.finish("metadata", results=[]))
writer.path = "s3://bucket/runs/d"
writer.finish("metadata", [])
"""


@pytest.fixture
def saving(site: Path) -> Path:
    """The same with what saves."""
    (site / "torch" / "serialization.py").write_text(
        "def save(obj, f, pickle_module=None):\n    return None\n"
    )
    (site / "torch" / "distributed" / "checkpoint" / "filesystem.py").write_text(
        "class _FileSystemWriter:\n"
        "    def finish(self, metadata, results):\n        return 'finished'\n"
        "class FileSystemWriter(_FileSystemWriter):\n    pass\n"
    )
    return site


def test_every_folder_that_a_save_is_written_to_is_noted_once(saving: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (runs / "a").mkdir(parents=True)
    written = tmp_path / "written"
    variables = {"TORCHENV_WRITTEN": str(written), "RUNS": str(runs)}
    for _ in range(2):
        assert run(saving, variables, SAVE).check("save") == "finished\n"
    assert written.read_text().splitlines() == [f"{runs}/a", str(runs), f"{runs}/c"]


def test_a_link_in_place_of_the_notes_is_not_followed(saving: Path, tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "written").symlink_to(mine)
    variables = {"TORCHENV_WRITTEN": str(tmp_path / "written"), "RUNS": str(tmp_path / "runs")}
    assert run(saving, variables, SAVE).check("save") == "finished\n"
    assert mine.read_text() == "mine"


def test_the_start_up_file_leads_there_where_python_ignores_its_variables(site: Path) -> None:
    (site / STARTUP_FILE).write_text(STARTUP_TEXT)
    start = f"import site, sys; site.addsitedir({str(site)!r})\n"
    variables = {
        **write_for("2.14", environment("2.15.0")).variables,
        "TORCHENV_HOOK": str(HOOK / "sitecustomize.py"),
    }
    command = (sys.executable, "-I", "-B", "-c", start + ASK)
    assert items(Programs({"PATH": ""})(Command(command, env=variables))) == 5
    assert items(Programs({"PATH": ""})(Command(command))) == 6


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("python -I train.py", "`python -I` ignores it"),
        ("python3.12 -uE -m train", "`python3.12 -E` ignores it"),
        ("python -W ignore -S train.py", "`python -S` ignores it"),
        ("env -i python train.py", "`env -i` clears the variables that it needs"),
        ("env PYTHONPATH=src python train.py", "`PYTHONPATH=src` replaces the path that it needs"),
        (
            "sh -c 'cd x && PYTHONPATH=src python train.py'",
            "`PYTHONPATH=src` replaces the path that it needs",
        ),
    ],
)
def test_a_command_that_would_lose_it_is_refused_before_the_start(line: str, why: str) -> None:
    with pytest.raises(NothingSuits) as raised:
        refuse_lost_hook(shlex.split(line), has_startup=False)
    assert str(raised.value) == f"--write-for would be lost: {why}"
    if "-S" in line or "env -i" in line:
        with pytest.raises(NothingSuits):
            refuse_lost_hook(shlex.split(line), has_startup=True)
    else:
        refuse_lost_hook(shlex.split(line), has_startup=True)


@pytest.mark.parametrize(
    "line",
    [
        "python -u train.py -I -S",
        "python -m torch.distributed.run -E",
        "python -c 'import sys' -I",
        "python -X importtime train.py",
        "env PYTHONPATH=src:$PYTHONPATH python train.py",
        "torchrun --nproc-per-node 2 train.py",
    ],
)
def test_a_command_that_keeps_it_is_not_refused(line: str) -> None:
    refuse_lost_hook(shlex.split(line), has_startup=False)


def test_a_save_of_the_run_that_the_older_torch_cannot_read_is_found(workspace: Workspace) -> None:
    runs = workspace.directory / "runs"
    save(runs / "a" / "step-1", "dcp-2.15.0")
    new = save(runs / "a" / "step-2", "dcp-2.15.0")
    good = save(runs / "a" / "step-3", "dcp-2.14.1")
    for path in (*new.iterdir(), *good.iterdir()):
        os.utime(path, (LONG_AGO + 100, LONG_AGO + 100))
    target = DowngradeTarget(torch="2.14", python="3.11.7", system="linux")
    (found,) = find_new_form((str(runs), "/gone"), workspace.store, target, LONG_AGO + 90)
    assert found.path == str(new)
    assert len(found.reasons) == 1
