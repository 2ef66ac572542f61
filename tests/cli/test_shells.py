"""Activation, the hook, completion and the commands of other Pythons, in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.workspace import Workspace

from torchenv.actions.switch import use

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the shells are POSIX ones")

SOURCE = Path(__file__).parents[2] / "src"
HOOK = {
    "bash": 'eval "$(torchenv hook bash)"',
    "zsh": 'eval "$(torchenv hook zsh)"',
    "fish": "torchenv hook fish | source",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "a project")
    workspace.built("2.15.0+cu132")
    use("1", workspace.store, workspace.outside)
    return workspace


@pytest.fixture
def environ(tmp_path: Path, workspace: Workspace) -> dict[str, str]:
    """A PATH on which `torchenv` is this one."""
    program = tmp_path / "bin" / "torchenv"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m torchenv "$@"\n', "utf-8")
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:{os.defpath}",
        "HOME": str(tmp_path),
        "PYTHONPATH": str(SOURCE),
        "TORCHENV_HOME": str(workspace.store.root),
    }


def find(shell: str) -> str:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    return program


def type_in(shell: str, lines: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    argv = [find(shell), *(["-f"] if shell == "zsh" else []), "-c", lines]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_activate_prints_for_the_shell_that_asks_whatever_shell_says(
    workspace: Workspace, environ: dict[str, str], shell: str
) -> None:
    printed = type_in(shell, "torchenv activate; true", {**environ, "SHELL": "/bin/other"}).stdout
    assert ("set -gx PATH" in printed) is (shell == "fish")
    assert ("export PATH=" in printed) is (shell != "fish")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_hook_gives_commands_that_act_on_the_shell(
    workspace: Workspace, environ: dict[str, str], shell: str
) -> None:
    steps = (
        HOOK[shell],
        "torchenv activate 1",
        'echo "$VIRTUAL_ENV"',
        "torchenv deactivate",
        'echo ".$VIRTUAL_ENV"',
        "torchenv deactivate",
        "torchenv --version",
    )
    done = type_in(shell, "\n".join(steps), environ)
    active = workspace.store.read().active
    assert active is not None
    assert done.stdout.splitlines()[:2] == [active.path, "."]
    assert done.stdout.splitlines()[2].startswith("torchenv ")
    assert done.stderr == "error: no environment is activated in this shell\n"


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_prompt_is_marked_and_an_environment_without_pip_says_what_to_do(
    workspace: Workspace, environ: dict[str, str], shell: str
) -> None:
    lines = (
        f'PS1=\'$ \'\n{HOOK[shell]}\ntorchenv activate\necho "$PS1"\npip install x\ndeactivate\necho "$PS1"\n'
    )
    done = type_in(shell, lines, environ)
    assert done.stdout == "(2.15.0-cu132) $ \n$ \n"
    assert done.stderr == ("this environment has no pip; add packages with `torchenv add x`\n")
    unmarked = type_in(shell, lines, {**environ, "VIRTUAL_ENV_DISABLE_PROMPT": "1"})
    assert unmarked.stdout == "$ \n$ \n"


def test_fish_marks_its_prompt_and_gives_it_back(workspace: Workspace, environ: dict[str, str]) -> None:
    lines = (
        f"function fish_prompt; echo '> '; end\n{HOOK['fish']}\ntorchenv activate\nfish_prompt\ndeactivate\n"
    )
    assert type_in("fish", f"{lines}fish_prompt\n", environ).stdout == "(2.15.0-cu132) > \n> \n"


COMPLETE_IN_BASH = """\
eval "$(torchenv completion bash)"
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _shtab_torchenv torchenv "${@: -1}" "${@: -2:1}"
    printf '%s ' "${COMPREPLY[@]}"; echo; }
try torchenv roll
try torchenv use 2.15
try torchenv plan --backend cu13
try torchenv plan --profile fine
try torchenv checkpoints down
"""


def test_bash_completes_commands_environments_backends_and_profiles(
    workspace: Workspace, environ: dict[str, str]
) -> None:
    done = type_in("bash", COMPLETE_IN_BASH, environ)
    active = workspace.store.read().active
    assert active is not None
    assert [line.strip() for line in done.stdout.splitlines()] == [
        "rollback",
        active.name,
        "cu130 cu132 cu134",
        "finetune",
        "downgrade",
    ]
    assert done.stderr == ""


def test_fish_completes_the_same(workspace: Workspace, environ: dict[str, str]) -> None:
    asked = (
        "torchenv roll",
        "torchenv use 2.15",
        "torchenv plan --backend cu134",
        "torchenv checkpoints down",
    )
    lines = "\n".join(f"complete -C '{words}'" for words in asked)
    done = type_in("fish", f"torchenv completion fish | source\n{lines}\n", environ)
    active = workspace.store.read().active
    assert active is not None
    found = [line.partition("\t")[0] for line in done.stdout.splitlines()]
    assert found == ["rollback", active.name, "cu134", "downgrade"]


# Completion of zsh works only in its line editor, which needs a terminal: it types the lines itself there.
COMPLETE_IN_ZSH = """\
autoload -Uz compinit
compinit -u -D
eval "$(torchenv completion zsh)"
zle-line-init() {
    local line
    for line in "torchenv roll" "torchenv use 2.15" "torchenv plan --backend rocm10" \\
        "torchenv plan --profile fine" "torchenv checkpoints down" \\
        "torchenv checkpoints diff $ZDOTDIR/.zsh"; do
        BUFFER=$line CURSOR=$#line
        zle complete-word
        print -r -- "$BUFFER" >> "$ZDOTDIR/completed"
    done
    exit
}
zle -N zle-line-init
"""


def test_zsh_completes_the_same(workspace: Workspace, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".zshrc").write_text(COMPLETE_IN_ZSH, "utf-8")
    ours, theirs = os.openpty()
    subprocess.run(
        [find("zsh"), "-d", "-i"],
        env={**environ, "ZDOTDIR": str(tmp_path), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        check=False,
        timeout=60,
    )
    os.close(theirs)
    os.close(ours)
    active = workspace.store.read().active
    assert active is not None
    assert [line.split()[-1] for line in (tmp_path / "completed").read_text("utf-8").splitlines()] == [
        "rollback",
        active.name,
        "rocm10.0",
        "finetune",
        "downgrade",
        f"{tmp_path}/.zshrc",
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_what_the_shell_can_read(environ: dict[str, str], shell: str) -> None:
    for words in (f"hook {shell}", f"completion {shell}"):
        written = type_in("bash", f"torchenv {words}", environ)
        assert (written.returncode, written.stderr) == (0, "")
        argv = [find(shell), "--no-execute" if shell == "fish" else "-n"]
        read = subprocess.run(argv, input=written.stdout, capture_output=True, text=True, check=False)
        assert (read.returncode, read.stderr) == (0, "")


def write_program(folder: Path, name: str, first: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"{first}\necho from outside\n", "utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "first", ["#!/opt/module/bin/python3.12", "#!/usr/bin/env python3", "#!/bin/sh\n'''exec' x"]
)
def test_a_command_of_another_python_is_not_run_unless_it_is_allowed(
    workspace: Workspace, environ: dict[str, str], tmp_path: Path, first: str
) -> None:
    path = write_program(tmp_path / "module", "accelerate", first)
    around = {**environ, "PATH": f"{environ['PATH']}:{path.parent}"}
    done = type_in("bash", "torchenv run -- accelerate launch", around)
    active = workspace.store.read().active
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"error: environment {active} has no `accelerate`, and {path} runs another Python\n"
        "hint: install it in the environment, or run it anyway with"
        " `torchenv run --outside -- accelerate launch`\n"
    )
    again = type_in("bash", "torchenv run --outside -- accelerate launch", around)
    assert again.stderr.startswith(f"note: environment {active} has no `accelerate`; running {path}\n")


def test_a_program_of_the_system_is_run_and_named(
    workspace: Workspace, environ: dict[str, str], tmp_path: Path
) -> None:
    path = write_program(tmp_path / "tools", "launcher", "#!/bin/sh")
    around = {**environ, "PATH": f"{environ['PATH']}:{path.parent}"}
    done = type_in("bash", "torchenv run -- launcher", around)
    assert (done.returncode, done.stdout) == (0, "from outside\n")
    assert done.stderr.endswith(f"has no `launcher`; running {path}\n")
    assert type_in("bash", "torchenv -q run -- launcher", around).stderr == ""
