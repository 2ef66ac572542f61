"""`status`, `diff` and `verify` say what is there, by what is on the disk."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from tests.support.workspace import START, Workspace, install, site_of

from torchenv.actions.diff import Differences, PackageChange, diff
from torchenv.actions.remove import remove
from torchenv.actions.status import Machine, StatusReport, status
from torchenv.actions.switch import rollback, use
from torchenv.actions.verify import verify_environment
from torchenv.catalogue import resources
from torchenv.environment.findings import EnvironmentFinding
from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe
from torchenv.host.model import Host, Problem
from torchenv.render.status import describe_diff, describe_status, encode_status
from torchenv.system.processes import Process


def looked(workspace: Workspace, project: Path | None = None, **environ: str) -> StatusReport:
    return status(workspace.store, environ, project, workspace.running)


def messages(found: StatusReport) -> list[str]:
    return [problem.message for problem in found.problems]


def test_one_look_says_what_is_in_use_and_where_a_rollback_leads(workspace: Workspace) -> None:
    old, new = workspace.built("2.14.1+cu130"), workspace.built("2.15.0+cu132")
    use("1", workspace.store, workspace.outside)
    use("2", workspace.store, workspace.outside)
    workspace.processes = {new.path: (Process(4711, "python train.py"),)}
    shown = describe_status(replace(looked(workspace), sizes={1: 0, 2: 0}), workspace.store.root, START)
    assert shown.splitlines() == [
        f"workspace: {workspace.store.root}",
        f"active: environment {new}, built, ready",
        f"  {new.path}",
        f"  torch 2.15.0+cu132 on Python {new.python.version}",
        f"rollback: to environment {old}",
        "disk: 0 bytes in 2 built environments",
        "in use by: process 4711 (python train.py)",
    ]


def test_it_says_how_much_is_on_the_disk_and_what_can_be_rebuilt(workspace: Workspace) -> None:
    first, second, third = (workspace.built(f"2.15.0+{tag}") for tag in ("cu132", "cu134", "cpu"))
    use("1", workspace.store, workspace.outside)
    remove(["3"], workspace.store, workspace.running, lambda _: None)
    found = looked(workspace)
    whole = fingerprint(describe(Path(first.path)))
    assert found.sizes[1] == sum(entry.size for entry in whole.entries.values()) > 0
    shown = describe_status(replace(found, sizes={1: 3 << 30, 2: 3 << 29}), workspace.store.root, START)
    assert (
        f"disk: 4.5 GiB in 2 built environments\nremoved: {third}; rebuild with `torchenv restore 3`" in shown
    )
    document = encode_status(found, workspace.store.root)
    assert (list(document["disk"]["bytes"]), document["removed"]) == (["1", "2"], [3])
    assert second.number == 2


def test_before_there_is_anything_it_says_so(workspace: Workspace) -> None:
    assert describe_status(looked(workspace), workspace.store.root, START).splitlines()[1:] == [
        "No active environment",
        "No previous environment to roll back to",
    ]


def test_a_torch_that_was_replaced_by_hand_is_drift_with_its_lost_label(workspace: Workspace) -> None:
    environment = workspace.built("2.15.0+cu132", packages={"numpy": "2.3.0", "filelock": "3.20.0"})
    use("1", workspace.store, workspace.outside)
    site = site_of(environment)
    install(site, "torch", "2.14.1")
    install(site, "numpy", "2.2.0")
    install(site, "xformers", "0.0.40")
    shutil.rmtree(next(site.glob("filelock-*.dist-info")))
    assert messages(looked(workspace)) == [
        "drift: torch 2.15.0+cu132 -> 2.14.1",
        "drift: filelock 3.20.0 -> removed",
        "drift: numpy 2.3.0 -> 2.2.0",
        "installed by hand, and in no lock file: xformers",
    ]


def test_a_development_build_is_told_to_expire(workspace: Workspace) -> None:
    workspace.built("2.16.0.dev20261120+cu132")
    use("1", workspace.store, workspace.outside)
    assert messages(looked(workspace)) == [
        "torch 2.16.0.dev20261120+cu132 is a development build: its wheel expires, and its lock file with it"
    ]


def test_a_renamed_folder_is_told_with_both_names_and_its_environment_can_still_be_gone_back_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "work" / "old").mkdir(parents=True)
    before = Workspace(tmp_path / "work" / "old")
    venv = tmp_path / "work" / "old" / ".venv"
    before.adopted(venv)
    script = venv / "bin" / "torchrun"
    script.write_text(f"#!{venv}/bin/python\n")
    (tmp_path / "work" / "old").rename(tmp_path / "work" / "new")
    moved = tmp_path / "work" / "new" / ".venv"
    untouched = fingerprint(describe(moved))

    after = Workspace(tmp_path / "work" / "new", hours=9)
    found = looked(after)

    assert [problem.code for problem in found.problems] == ["moved"]
    (message,) = messages(found)
    scripts = "1 of its scripts no longer run (`python -m NAME` does)"
    assert message == f"{moved}: was moved here from {venv}; {scripts}; run `torchenv create`"
    after.built("2.15.0+cu132")
    use("2", after.store, after.outside)
    assert rollback(None, after.store, after.outside).now.path == str(moved)
    assert fingerprint(describe(moved)) == untouched


def test_it_is_found_again_too_where_the_workspace_lies_elsewhere(workspace: Workspace) -> None:
    venv = workspace.directory / "work" / "old" / ".venv"
    workspace.adopted(venv)
    venv.parent.rename(workspace.directory / "work" / "new")
    moved = workspace.directory / "work" / "new" / ".venv"
    (message,) = messages(looked(workspace))
    assert message == f"{moved}: was moved here from {venv}; run `torchenv create`"
    # A switch to where it is already records where that is now.
    use("1", workspace.store, workspace.outside)
    assert workspace.store.read().number(1).path == str(moved)
    assert str(workspace.store.current.readlink()) == str(moved)


def test_a_new_folder_at_the_old_path_is_not_taken_for_the_recorded_one(workspace: Workspace) -> None:
    path = workspace.directory / "project" / ".venv"
    adopted = workspace.adopted(path)
    path.rename(workspace.directory / "elsewhere")
    shutil.copytree(workspace.directory / "elsewhere", path, symlinks=True)
    (path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    assert messages(looked(workspace)) == [
        f"environment {adopted} cannot be used: {path} is another environment than the recorded {adopted}"
    ]


def test_a_shell_that_is_in_another_environment_is_told(workspace: Workspace) -> None:
    environment = workspace.built()
    use("1", workspace.store, workspace.outside)
    (message,) = messages(looked(workspace, VIRTUAL_ENV="/home/ada/.venv"))
    assert message == (
        f"this shell is in /home/ada/.venv, and {environment.path} is in use:"
        ' eval "$(torchenv activate)" enters it'
    )
    assert messages(looked(workspace, VIRTUAL_ENV=environment.path)) == []


def test_what_stands_around_it_is_told(workspace: Workspace, tmp_path: Path) -> None:
    workspace.built()
    use("1", workspace.store, workspace.outside)
    (tmp_path / "uv.lock").write_text('version = 1\n[[package]]\nname = "torch"\nversion = "2.14.1"\n')
    environ = {"CONDA_PREFIX": "/conda", "CONDA_DEFAULT_ENV": "base", "PYTHONPATH": "/mine"}
    found = looked(workspace, tmp_path, **environ)
    assert [problem.code for problem in found.problems] == [
        "project-resync",
        "conda-base-active",
        "python-path",
    ]


def test_a_difference_is_one_line_a_package(workspace: Workspace) -> None:
    old = workspace.built("2.14.1+cu130", packages={"numpy": "2.2.0", "six": "1.17.0"})
    new = workspace.built("2.15.0+cu132", packages={"numpy": "2.3.0", "rich": "14.0.0"})
    found = diff(old, new, workspace.store)
    assert found == Differences(
        python=None,
        backend=PackageChange("backend", "cu130", "cu132"),
        packages=(
            PackageChange("numpy", "2.2.0", "2.3.0"),
            PackageChange("rich", None, "14.0.0"),
            PackageChange("six", "1.17.0", None),
            PackageChange("torch", "2.14.1+cu130", "2.15.0+cu132"),
        ),
    )
    assert describe_diff(found).splitlines() == [
        "  backend cu130 -> cu132",
        "  numpy 2.2.0 -> 2.3.0",
        "+ rich 14.0.0",
        "- six 1.17.0",
        "  torch 2.14.1+cu130 -> 2.15.0+cu132",
    ]


def test_a_removed_environment_is_compared_by_its_lock(workspace: Workspace) -> None:
    old, new = workspace.built("2.14.1+cu130"), workspace.built("2.15.0+cu132")
    there = diff(old, new, workspace.store)
    store = workspace.store
    with store.hold("torchenv remove 1"):
        store.discard(old)
        store.write(store.read().mark_removed(1))
        store.empty_trash()
    assert diff(store.read().number(1), new, store) == there


def test_verify_names_what_was_changed_added_or_lost(workspace: Workspace) -> None:
    environment = workspace.built("2.15.0+cu132", packages={"numpy": "2.3.0"})
    told: list[tuple[int, int]] = []
    assert verify_environment(environment, workspace.store, lambda *far: told.append(far)) == ()
    assert told[-1][0] == told[-1][1] > 0
    site = site_of(environment)
    (site / "torch" / "version.py").write_text("__version__ = '0'\n")
    (site / "numpy" / "version.py").unlink()
    (site / "sneaked.py").touch()
    inside = f"lib/{site.parent.name}/site-packages"
    assert verify_environment(environment, workspace.store, lambda *_: None) == (
        EnvironmentFinding("missing", f"{inside}/numpy/version.py", "is missing"),
        EnvironmentFinding("added", f"{inside}/sneaked.py", "was added"),
        EnvironmentFinding("changed", f"{inside}/torch/version.py", "was changed"),
    )


def test_what_the_doctor_knows_of_the_machine_and_the_packages_is_told_here_too(workspace: Workspace) -> None:
    environment = workspace.built("2.15.0+cu132", packages={"torchaudio": "2.8.0"})
    use("1", workspace.store, workspace.outside)
    lost = Problem("gpu-lost", "nvidia-smi", "GPU 0 has fallen off the bus")
    around = Machine(Host(system="linux", machine="x86_64", problems=(lost,)), resources.catalogue())
    other = workspace.directory / "other"
    (other / "torch").mkdir(parents=True)
    environ = {"PYTHONPATH": str(other)}
    found = status(workspace.store, environ, None, workspace.running, around=around)
    # PYTHONPATH is told once.
    assert [problem.code for problem in found.problems] == ["python-path", "gpu-lost", "other-build"]
    assert f"{other}: PYTHONPATH puts torch of this directory before the environment's" in messages(found)[0]
    assert str(site_of(environment)) in found.problems[2].source


def test_a_damaged_journal_is_told_and_hides_nothing(workspace: Workspace) -> None:
    workspace.built()
    use("1", workspace.store, workspace.outside)
    (workspace.store.root / "upgrade.json").write_text("{}")
    (problem,) = looked(workspace).problems
    assert (problem.code, looked(workspace).is_on_trial) == ("journal-damaged", False)
    assert problem.message.endswith("start again with `torchenv upgrade --restart`")
