"""What runs torchenv on many machines: the scripts are sound, and bring two machines to their lock."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.support.project import Project, said_by

from torchenv.system.process import Command, Completed, Programs
from torchenv.workspace.store import Store

SCRIPTS = Path(__file__).parents[2] / "scripts"
FLEET = SCRIPTS / "fleet"
BIN = Path(sys.executable).parent

builds_here = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)

# It stands in for srun: the same command once for each of two nodes, whatever its options.
SRUN = """\
#!/bin/sh
while case $1 in --*) true ;; *) false ;; esac; do shift; done
for node in node1 node2; do SLURMD_NODENAME=$node "$@" || exit; done
"""


def shell_scripts() -> list[Path]:
    found = (path for path in SCRIPTS.rglob("*") if path.is_file())
    return sorted(item for item in found if item.read_bytes().startswith(b"#!/bin/sh"))


@pytest.mark.parametrize("script", shell_scripts(), ids=lambda path: path.name)
def test_a_shell_script_is_sound(script: Path) -> None:
    run = Programs(os.environ)
    run(Command(("sh", "-n", str(script)))).check("read it")
    # A sourced file is looked at with the one that sources it.
    checked = run(Command((str(BIN / "shellcheck"), "-x", "-P", str(SCRIPTS.parent), str(script))))
    assert checked.out == ""


@pytest.fixture
def cluster(team: Project, tmp_path: Path) -> Project:
    """A project on storage that two nodes share, with an srun."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "srun").write_text(SRUN, "utf-8")
    (tools / "srun").chmod(0o755)
    team.environ["PATH"] = f"{tools}:{BIN}:{team.environ['PATH']}"
    return team


def script(project: Project, name: str, *words: str, **variables: str) -> Completed:
    run = Programs({**project.environ, **variables})
    return run(Command(("sh", str(FLEET / name), *words), cwd=project.directory))


def test_every_node_is_probed_and_one_plan_is_made_for_all(cluster: Project) -> None:
    done = script(cluster, "slurm-probe.sh", "hosts")
    assert done.code == 0, done.err
    assert sorted(path.name for path in (cluster.directory / "hosts").iterdir()) == [
        "node1.json",
        "node2.json",
    ]
    head, *rows = done.out.splitlines()
    # The two are alike: one line says so.
    assert head.split() == ["hosts", "target", "torch", "backend", "names"]
    count, *_, first, second = rows[0].split()
    assert (count, first, second) == ("2", "node1,", "node2")


@builds_here
def test_nodes_that_share_a_workspace_build_once_and_each_runs_in_it(cluster: Project) -> None:
    cluster.run("lock")
    done = script(cluster, "slurm-sync.sh")
    assert done.out.splitlines() == ["1", "1"], done.err
    assert len(Store(cluster.directory / ".torchenv").read().environments) == 1
    code = "import torch; print(torch.__version__)"
    done = script(cluster, "slurm-run.sh", "python", "-c", code)
    assert done.out.splitlines() == ["2.15.0+cpu", "2.15.0+cpu"], done.err


# It stands in for sbcast: the file of shared storage, on the disk of the node.
SBCAST = """\
#!/bin/sh
[ "$1" = --force ] && cp "$2" "$3"
"""


@builds_here
@pytest.mark.skipif(shutil.which("zstd") is None, reason="there is no zstd here")
def test_nodes_get_one_file_by_sbcast_and_run_in_it_without_the_shared_workspace(
    cluster: Project, tmp_path: Path
) -> None:
    (tmp_path / "bin" / "sbcast").write_text(SBCAST, "utf-8")
    (tmp_path / "bin" / "sbcast").chmod(0o755)
    (tmp_path / "node").mkdir()
    cluster.run("lock")
    packed = script(cluster, "slurm-pack.sh", "env.tar.zst")
    assert packed.code == 0, packed.err
    (cluster.directory / ".torchenv").rename(tmp_path / "away")
    code = "import sys, torch; print(torch.__version__, sys.prefix)"
    words = ("--packed", "env.tar.zst", "python", "-c", code)
    done = script(cluster, "slurm-run.sh", *words, TMPDIR=str(tmp_path / "node"), SLURM_JOB_ID="7")
    assert done.code == 0, done.err
    assert (tmp_path / "node" / "7-env.tar.zst").is_file()
    first, second = done.out.splitlines()
    assert first == second
    assert first.startswith(f"2.15.0+cpu {tmp_path}/node/torchenv-packed-")


def containers(name: str) -> dict[str, Any]:
    """Return the containers of a Job's template by name; the template must be one that Kubernetes takes."""
    (job,) = yaml.safe_load_all((FLEET / name).read_text("utf-8"))
    kubernetes_validate.validate(job, "1.33", strict=True)
    pod = job["spec"]["template"]["spec"]
    named = (*pod.get("initContainers", ()), *pod["containers"])
    return {container["name"]: container for container in named}


def run_container(
    container: dict[str, Any], project: Project, places: dict[str, str], **more: str
) -> Completed:
    """Run the command of a container here, with the places of its volumes."""
    variables = {entry["name"]: places.get(entry.get("value"), "") for entry in container["env"]}
    environ = {**project.environ, **{name: value for name, value in variables.items() if value}, **more}
    run = Programs(environ)
    return run(Command((*container["command"], *container["args"]), cwd=project.directory))


@builds_here
def test_a_job_of_kubernetes_probes_each_node_and_another_syncs_before_it_runs(
    cluster: Project, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    places = {"/project": str(cluster.directory), "/shared": str(tmp_path / "shared")}
    probe = containers("kubernetes-probe.yaml")["probe"]
    for node in ("node-a", "node-b"):
        done = run_container(probe, cluster, places, NODE=node)
        assert done.code == 0, done.err
    hosts = sorted(path.name for path in (cluster.directory / "hosts").iterdir())
    assert hosts == ["node-a.json", "node-b.json"]

    cluster.run("lock")
    cluster.write("train.py", "import torch\nprint(torch.__version__)\n")
    parts = containers("kubernetes-run.yaml")
    assert parts["sync"]["resources"] == parts["train"]["resources"]
    for name, said in (("sync", ""), ("train", "2.15.0+cpu\n")):
        done = run_container(parts[name], cluster, places)
        assert (done.code, done.out) == (0, said), done.err


INVENTORY = """\
[all]
one torchenv_workspace={root}/one
two torchenv_workspace={root}/two

[all:vars]
ansible_connection=local
ansible_python_interpreter={python}
torchenv_program={torchenv}
project={project}
host_files={root}/hosts
"""


@builds_here
def test_ansible_brings_machines_to_their_lock_and_then_changes_nothing(
    team: Project, tmp_path: Path
) -> None:
    team.run("lock")
    (tmp_path / "hosts").mkdir()
    inventory = tmp_path / "inventory.ini"
    inventory.write_text(
        INVENTORY.format(
            root=tmp_path, python=sys.executable, torchenv=BIN / "torchenv", project=team.directory
        ),
        "utf-8",
    )
    environ = {**team.environ, "ANSIBLE_LOCALHOST_WARNING": "false", "LC_ALL": "C.UTF-8"}
    play = Command((str(BIN / "ansible-playbook"), "-i", str(inventory), str(FLEET / "ansible-sync.yml")))

    # What would change is said first, and nothing does.
    check = Command((*play.argv, "--check"))
    would = Programs(environ)(check)
    assert would.code == 0, would.out + would.err
    assert recap(would.out) == {"one": ("1", "0"), "two": ("1", "0")}
    assert not (tmp_path / "one").exists()

    first = Programs(environ)(play)
    assert first.code == 0, first.out + first.err
    assert recap(first.out) == {"one": ("1", "0"), "two": ("1", "0")}
    for name in ("one", "two"):
        manifest = Store(tmp_path / name).read()
        assert manifest.current == 1
        said = said_by(Path(manifest.number(1).path), "import torch; print(torch.__version__)")
        assert said == "2.15.0+cpu"
    assert sorted(path.name for path in (tmp_path / "hosts").iterdir()) == ["one.json", "two.json"]

    assert recap(Programs(environ)(check).out) == {"one": ("0", "0"), "two": ("0", "0")}
    again = Programs(environ)(play)
    assert recap(again.out) == {"one": ("0", "0"), "two": ("0", "0")}
    assert len(Store(tmp_path / "one").read().environments) == 1


def recap(out: str) -> dict[str, tuple[str, str]]:
    """Read what changed and what failed on each machine."""
    # one : ok=5    changed=2    unreachable=0    failed=0    skipped=0    rescued=0    ignored=0
    rows = out.partition("PLAY RECAP")[2].splitlines()[1:]
    found = {}
    for row in filter(str.strip, rows):
        name, _, counts = row.partition(":")
        numbers = dict(number.split("=") for number in counts.split())
        found[name.strip()] = (numbers["changed"], numbers["failed"])
    return found
