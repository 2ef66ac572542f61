"""The life of an environment from the command line, with the real uv on a loopback index."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.index import Index, serving
from tests.support.loopback import Torchenv
from tests.support.workspace import write_venv
from tests.support.world import world

from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe
from torchenv.installers.uv import uv_program
from torchenv.workspace.store import constraints_path


@pytest.fixture(scope="module")
def index() -> Iterator[Index]:
    with serving(world()) as served:
        yield served


@pytest.fixture
def torchenv(index: Index, tmp_path: Path) -> Torchenv:
    return Torchenv(tmp_path, index)


def every_file(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_to_2_15_and_back_again_with_nothing_of_the_old_one_changed(
    torchenv: Torchenv, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    old = project / ".venv"
    write_venv(old, {"torch": "2.14.1+cpu"})
    before = fingerprint(describe(old))
    torchenv.cwd = project

    torchenv.succeed("create", "2.15", "--use")
    assert torchenv.torch_in_use() == "2.15.0+cpu"
    switched = json.loads(torchenv.succeed("rollback", "--json"))

    assert (switched["from"], switched["to"], switched["path"]) == (2, 1, str(old))
    assert torchenv.torch_in_use() == "2.14.1+cpu"
    assert torchenv.store.current.resolve() == old.resolve()
    assert [switche["why"] for switche in json.loads(torchenv.succeed("history", "--json"))["switches"]] == [
        "create",
        "rollback",
    ]
    assert fingerprint(describe(old)) == before
    assert torchenv.succeed("verify", "1").startswith("environment 1 ")
    assert torchenv.succeed("verify", "2").startswith("environment 2 ")


def test_an_active_conda_base_is_said_to_be_left_alone_and_is(torchenv: Torchenv, tmp_path: Path) -> None:
    conda = tmp_path / "miniforge3"
    write_venv(conda, {"torch": "2.6.0", "numpy": "2.2.0"})
    (conda / "pyvenv.cfg").unlink()
    (conda / "conda-meta").mkdir()
    (conda / "conda-meta" / "history").write_text("==> 2026-11-02 09:12:44 <==\n")
    before = every_file(conda)
    active = {
        "CONDA_PREFIX": str(conda),
        "CONDA_DEFAULT_ENV": "base",
        "CONDA_SHLVL": "1",
        "PATH": f"{conda}/bin:{torchenv.environ['PATH']}",
    }

    said = torchenv("create", "2.15", "--use", **active)

    assert said.code == 0, said.err
    assert f"conda's base environment {conda} is active in this shell and is not touched" in said.err
    assert torchenv.torch_in_use() == "2.15.0+cpu"
    torchenv.succeed("rollback", **active)
    in_use = torchenv.sound().active
    assert in_use is not None
    assert (in_use.path, in_use.torch, in_use.layout) == (str(conda), "2.6.0", "conda")
    assert every_file(conda) == before


def test_an_install_that_stops_half_way_moves_no_pointer_and_leaves_nothing(
    torchenv: Torchenv, index: Index
) -> None:
    torchenv.succeed("create", "2.14", "--backend", "cpu", "--use")
    in_use = torchenv.sound().active
    assert in_use is not None
    before = fingerprint(describe(Path(in_use.path)))
    wheel = "triton-3.9.0-py3-none-manylinux_2_28_x86_64.whl"
    index.damage(wheel)
    try:
        said = torchenv("create", "2.15", "--backend", "cu132", "--use")
    finally:
        index.mend(wheel)
    assert said.code == 4
    assert "triton" in said.err
    after = torchenv.sound()
    assert (after.active, after.list_unfinished()) == (in_use, ())
    assert fingerprint(describe(Path(in_use.path))) == before

    torchenv.succeed("create", "2.15", "--backend", "cu132", "--use")
    assert torchenv.torch_in_use() == "2.15.0+cu132"


def test_a_removed_environment_is_built_again_from_its_lock(torchenv: Torchenv) -> None:
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.14", "--backend", "cu126")
    torchenv.succeed("remove", "2")
    assert torchenv("use", "2").code == 3
    before = torchenv.sound().number(2)
    assert torchenv.succeed("restore", "2").strip() == "2"
    again = torchenv.sound().number(2)
    assert (again.torch, again.lock, again.path) == (before.torch, before.lock, before.path)
    assert (len(torchenv.sound().environments), again.live) == (2, True)
    assert torchenv("verify", "2").code == 0


def test_one_whose_interpreter_is_gone_is_rebuilt_on_another_as_the_hint_says(
    torchenv: Torchenv, tmp_path: Path
) -> None:
    link = tmp_path / "old" / "python"
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).resolve())
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--python", str(link), "--use")
    torchenv.succeed("create", "2.14", "--backend", "cpu", "--use")
    link.unlink()
    refused = torchenv("rollback")
    assert "torchenv restore 1" in refused.err
    kept = ("restore", "1", "--python", sys.executable)
    assert torchenv.succeed(*kept).strip() == "1"
    assert torchenv.succeed("rollback") != ""
    assert torchenv.torch_in_use() == "2.15.0+cpu"
    assert torchenv.sound().number(1).python.path == sys.executable
    assert "environment 1 (" in torchenv(*kept).err
    assert "hint: switch to it: `torchenv use 1`" in torchenv(*kept).err


def test_the_interpreter_of_a_lock_is_of_its_minor(torchenv: Torchenv) -> None:
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.14", "--backend", "cpu")
    torchenv.succeed("remove", "2", "--offline")
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    said = torchenv("restore", "2", "--python", "3.9")
    assert said.code == 2
    assert f"is locked for Python {minor}, not for 3.9" in said.err
    assert f"hint: run `torchenv restore 2 --python {minor}`" in said.err
    torchenv.succeed("restore", "2", "--python", minor)


def test_a_rebuild_that_fails_keeps_the_lock_for_the_next(torchenv: Torchenv, index: Index) -> None:
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.14", "--backend", "cu126")
    torchenv.succeed("remove", "2", "--offline")
    shutil.rmtree(torchenv.environ["UV_CACHE_DIR"])
    wheel = "triton-3.8.0-py3-none-manylinux_2_28_x86_64.whl"
    index.damage(wheel)
    try:
        assert torchenv("restore", "2").code == 4
    finally:
        index.mend(wheel)
    assert torchenv.sound().number(2).state.value == "removed"
    assert torchenv.succeed("restore", "2").strip() == "2"
    assert torchenv("verify", "2").code == 0


def test_a_file_that_the_index_lost_is_named_before_the_removal_and_after(
    torchenv: Torchenv, index: Index, tmp_path: Path
) -> None:
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.14", "--backend", "cu126")
    lost = [item for item in index.held("simple") if item.project == "nvidia-cudnn-cu12"]
    index.remove("simple", "nvidia-cudnn-cu12")
    try:
        refused = torchenv("remove", "2")
        assert refused.code == 3
        address = f"{index.packages}/{lost[0].file_name}, sha256 {lost[0].sha256}"
        for part in ("nvidia-cudnn-cu12==9.10.2.21", address, "--force"):
            assert part in refused.err
        index.forget()
        torchenv.succeed("remove", "2", "--force")
        assert index.requests == []
        shutil.rmtree(tmp_path / "cache")
        said = torchenv("restore", "2")
        assert said.code == 4
        assert (
            f"nvidia-cudnn-cu12==9.10.2.21 can no longer be fetched: {lost[0].file_name}; it was at {address}"
            in (said.err)
        )
        assert torchenv.sound().list_unfinished() == ()
    finally:
        index.add("simple", *lost)


def test_a_rollback_asks_no_network(torchenv: Torchenv, index: Index) -> None:
    torchenv.succeed("create", "2.14", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    index.forget()
    torchenv.succeed("rollback")
    assert index.requests == []


def test_with_nothing_to_go_back_to_it_ends_with_3(torchenv: Torchenv) -> None:
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    said = torchenv("rollback")
    assert (said.code, said.err) == (
        3,
        "error: no previous environment to roll back to\nhint: make one with `torchenv create 2.14`\n",
    )


def test_asked_and_not_answered_nothing_is_switched(torchenv: Torchenv) -> None:
    torchenv.succeed("create", "2.14", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    said = torchenv("rollback", "--ask")
    assert said.code == 0
    assert said.err.splitlines()[-1] == "nothing was switched"
    assert torchenv.sound().current == 2


def test_where_the_profile_requires_proof_a_new_environment_is_made_and_not_switched_to(
    torchenv: Torchenv, tmp_path: Path
) -> None:
    profile = tmp_path / "careful.toml"
    profile.write_text('schema = 1\nname = "careful"\n[smoke]\nrequired = true\ncommands = [["true"]]\n')
    said = torchenv("create", "2.15", "--backend", "cpu", "--use", "--profile", str(profile))
    assert said.code == 3
    assert "has not passed its smoke commands, which the profile requires" in said.err
    assert torchenv.sound().current is None
    torchenv.succeed("use", "1", "--profile", str(profile), "--force")
    assert torchenv.sound().current == 1


def test_with_its_constraints_a_later_install_fails_rather_than_swap_torch(
    torchenv: Torchenv, index: Index
) -> None:
    torchenv.succeed("create", "2.15", "--backend", "cu132", "--use")
    environment = torchenv.sound().active
    assert environment is not None
    directory = Path(environment.path)
    install = [str(uv_program()), "pip", "install", "--no-config", "--python", str(directory)]
    install += ["--default-index", index.packages, "xformers==0.0.40"]
    held = [*install, "--constraints", str(constraints_path(directory))]
    refused = subprocess.run(held, env=torchenv.environ, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "2.15.0+cu132" in refused.stderr
    assert torchenv.torch_in_use() == "2.15.0+cu132"

    # Without them it is done, and found out.
    subprocess.run(install, env=torchenv.environ, capture_output=True, check=True)
    problems = json.loads(torchenv.succeed("status", "--json"))["problems"]
    assert "drift: torch 2.15.0+cu132 -> 2.14.1+cu130" in [problem["message"] for problem in problems]
    assert torchenv("verify").code == 1


@pytest.mark.skipif(sys.platform != "linux", reason="named by what Linux tells")
def test_a_process_that_still_runs_is_named_and_keeps_its_environment(torchenv: Torchenv) -> None:
    torchenv.succeed("create", "2.14", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.15", "--backend", "cpu", "--use")
    torchenv.succeed("create", "2.15", "--backend", "cu132")
    code = "print(flush=True); import time; time.sleep(60)"
    training = torchenv.start("run", "-e", "3", "--", "python", "-c", code)
    try:
        assert training.stdout is not None
        training.stdout.readline()
        refused = torchenv("remove", "3")
        assert refused.code == 5
        assert f"it is still used by process {training.pid} (python -c {code})" in refused.err
        torchenv.succeed("use", "3")
        assert f"is still used by process {training.pid} (python -c {code})" in torchenv.succeed("rollback")
        assert training.poll() is None
    finally:
        training.kill()
        training.communicate()
