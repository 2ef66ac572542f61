"""`run` and `activate` put a program or a shell into an environment, and leave no trace behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.workspace import Workspace, write_venv

from torchenv.actions.activate import script
from torchenv.actions.run import ProgramEntry, build_environ, entry
from torchenv.actions.switch import use
from torchenv.errors import WorkspaceError
from torchenv.system.processes import in_proc
from torchenv.workspace.records import Activation, Environment

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the shells and signals are POSIX ones")

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "a project")
    workspace.built("2.15.0+cu132")
    use("1", workspace.store, workspace.outside)
    return workspace


def in_use(workspace: Workspace) -> Environment:
    environment = workspace.store.read().active
    assert environment is not None
    return environment


def torchenv(workspace: Workspace, *words: str) -> subprocess.Popen[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(workspace.directory), "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        [sys.executable, "-m", "torchenv", "--root", str(workspace.store.root), *words],
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_program_runs_with_the_python_of_the_environment_by_its_own_path(workspace: Workspace) -> None:
    code = "import sys, torch; print(sys.prefix); print(torch.__version__)"
    out, err = torchenv(workspace, "run", "--", "python", "-c", code).communicate()
    assert (out.splitlines(), err) == ([in_use(workspace).path, "2.15.0+cu132"], "")


def test_the_exit_code_is_that_of_the_program(workspace: Workspace) -> None:
    process = torchenv(workspace, "run", "-e", "1", "--", "python", "-c", "raise SystemExit(7)")
    process.communicate()
    assert process.returncode == 7


def test_a_signal_reaches_the_program_itself(workspace: Workspace) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = torchenv(workspace, "run", "--", "python", "-c", code)
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == -signal.SIGTERM


def test_what_nohup_ignores_stays_ignored(workspace: Workspace) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = torchenv(workspace, "run", "--", "python", "-c", code)
    finally:
        signal.signal(signal.SIGHUP, ignored)
    assert process.communicate()[0] == "True\n"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_runs_from_an_environment_is_found_by_its_start(workspace: Workspace) -> None:
    code = "print(flush=True); import time; time.sleep(60)"
    process = torchenv(workspace, "run", "--", "python", "-c", code)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        (found,) = in_proc([Path(in_use(workspace).path)])
        assert (found.pid, found.command) == (process.pid, f"python -c {code}")
        assert in_proc([workspace.directory / "elsewhere"]) == ()
    finally:
        process.kill()
        process.communicate()


def test_variables_that_lead_astray_are_out_and_the_path_begins_inside(workspace: Workspace) -> None:
    environ = {"PATH": "/usr/bin", "PYTHONPATH": "/mine", "PYTHONHOME": "/x", "VIRTUAL_ENV": "/old", "A": "1"}
    path = in_use(workspace).path
    assert build_environ(entry(in_use(workspace), workspace.store, environ), environ) == {
        "PATH": f"{path}/bin:/usr/bin",
        "PYTHONPATH": "/mine",
        "VIRTUAL_ENV": path,
        "A": "1",
    }


def test_devices_that_the_plan_left_out_are_hidden_unless_the_user_has_chosen(workspace: Workspace) -> None:
    around = Activation(set={"HIP_VISIBLE_DEVICES": "1"}, unset=("HSA_OVERRIDE_GFX_VERSION",))
    environment = replace(in_use(workspace), activation=around)
    mine = {"HSA_OVERRIDE_GFX_VERSION": "9.0.0"}
    assert entry(environment, workspace.store, mine).set["HIP_VISIBLE_DEVICES"] == "1"
    assert "HSA_OVERRIDE_GFX_VERSION" not in build_environ(entry(environment, workspace.store, mine), mine)
    chosen_by_user = {"ROCR_VISIBLE_DEVICES": "0"}
    chosen = build_environ(entry(environment, workspace.store, chosen_by_user), chosen_by_user)
    assert "HIP_VISIBLE_DEVICES" not in chosen
    assert chosen["ROCR_VISIBLE_DEVICES"] == "0"


def test_a_conda_environment_goes_by_its_own_variable(workspace: Workspace, tmp_path: Path) -> None:
    conda = tmp_path / "miniforge3"
    write_venv(conda, {"torch": "2.14.1"})
    (conda / "pyvenv.cfg").unlink()
    (conda / "conda-meta").mkdir()
    environment = replace(in_use(workspace), path=str(conda), layout="conda", identity=None)
    change = entry(environment, workspace.store, {"VIRTUAL_ENV": "/old"})
    assert change.set == {"CONDA_PREFIX": str(conda)}
    assert "VIRTUAL_ENV" in change.unset


def test_what_holds_packages_alone_cannot_be_entered(workspace: Workspace, tmp_path: Path) -> None:
    user = tmp_path / ".local"
    (user / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    environment = replace(in_use(workspace), path=str(user), layout="user", identity=None)
    with pytest.raises(WorkspaceError) as caught:
        entry(environment, workspace.store, {})
    assert caught.value.message == f"there is no Python in {user}"


TRAVEL = """\
before="$(env | sort | grep -v '^_=')"
{enter}
command -v python
echo "$VIRTUAL_ENV|${{PYTHONPATH-none}}|$HIP_VISIBLE_DEVICES"
{enter}
deactivate
after="$(env | sort | grep -v '^_=')"
[ "$before" = "$after" ] && echo "as before"
[ -z "${{_TORCHENV_PATH+x}}${{_TORCHENV_OLD_VIRTUAL_ENV+x}}" ] && echo "nothing left"
"""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_posix_shell_enters_and_leaves_without_a_trace(workspace: Workspace, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    around = Activation(set={"HIP_VISIBLE_DEVICES": "1"})
    environment = replace(in_use(workspace), activation=around)
    lines = TRAVEL.format(enter=script(entry(environment, workspace.store, {}), shell))
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": "/my 'own'", "HOME": "/"}
    done = subprocess.run([program, "-c", lines], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        f"{environment.path}/bin/python",
        f"{environment.path}|none|1",
        "as before",
        "nothing left",
    ]
    assert done.stderr == ""


def test_a_fish_shell_enters_and_leaves_without_a_trace(workspace: Workspace) -> None:
    program = shutil.which("fish")
    if program is None:
        pytest.skip("there is no fish here")
    enter = script(entry(in_use(workspace), workspace.store, {}), "fish")
    lines = f"{enter}\ncommand -v python\necho $VIRTUAL_ENV\ndeactivate\nset -q VIRTUAL_ENV; or echo out\n"
    environ = {"PATH": os.environ["PATH"], "HOME": "/"}
    done = subprocess.run([program, "-c", lines], env=environ, capture_output=True, text=True, check=False)
    path = in_use(workspace).path
    assert done.stdout.splitlines() == [f"{path}/bin/python", path, "out"]


def test_each_shell_quotes_in_its_own_way() -> None:
    odd = ProgramEntry(
        directory=Path("/it's"), scripts=Path("/it's/bin"), set={"VIRTUAL_ENV": "/it's"}, unset=()
    )
    assert """export VIRTUAL_ENV='/it'"'"'s'""" in script(odd, "bash")
    assert "set -gx VIRTUAL_ENV '/it\\'s'" in script(odd, "fish")
    assert "$env:VIRTUAL_ENV = '/it''s'" in script(odd, "powershell")


def test_where_the_interpreter_is_gone_nothing_runs_on_the_next_one_on_the_path(workspace: Workspace) -> None:
    environment = in_use(workspace)
    python = next(Path(environment.path, "bin").glob("python"))
    python.unlink()
    python.symlink_to("/nowhere/python3")
    with pytest.raises(WorkspaceError) as caught:
        entry(environment, workspace.store, {})
    assert caught.value.message == f"the interpreter of {environment} is gone: {python}"
