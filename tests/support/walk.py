"""A walk through the commands as a new user takes it, on a loopback index; it prints the same every time."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.checkpoints import save
from tests.support.index import Index
from tests.support.terminal import Ended, Terminal
from tests.support.workshop import HOSTS, MINOR, PYTHON
from tests.support.workspace import write_venv

FILE = Path(__file__).parents[1] / "messages_of_a_walk.txt"

TRAINING = """\
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("nccl")
dcp.save({"model": torch.zeros(2)}, checkpoint_id="runs/a/step-100")
"""

TEAM = f"""\
schema = 1
name = "team"

[torch]
version = "2.15"

[[target]]
name = "ci"
platform = "linux-x86_64"
python = "{MINOR}"
backend = "cpu"
"""

# One line is one command; `{host}` is where hosts are recorded, `{python}` the Python that runs the tests.
FIRST_LOOK = """
status
list
rollback
use 9
run -- python train.py
plan 2.15 --host {host}/rtx-4090-driver-580.json
plan 2.15 --host {host}/v100-driver-580.json
plan 2.15 --host {host}/h100-driver-550.json --explain
plan 2.15 --host {host}/gtx-780.json
plan 2.15 --host {host}/rtx-5090-beside-gtx-1060.json
plan 2.15 --host {host}/nvidia-beside-amd.json
plan 2.15 --host {host}/unreadable-driver-mismatch.json
plan 2.15 --host {host}/m2-macos-14.json
plan 2.15 --host {host}/cpu-only-linux.json
plan 2.15 --host {host}/mi50.json
plan 2.99
plan nothing
plan --capability 9
plan --bakend cpu
plann
audit src
catalogue show 2.15
"""

UPGRADE = """
upgrade --check --host {host}/cpu-only-linux.json
adopt .venv
create 2.15 --like .venv --backend cpu --python {python}
create 2.15 --like .venv --backend cpu --python {python} --name again --dry-run
list
show 2
diff 1 2
use 1
use 2
use 2
add lightning
drop lightning
status
history
verify 2
checkpoints scan runs
list
checkpoints show runs/a/step-200
checkpoints keep runs/a/step-100
checkpoints verify
checkpoints gate --readable-by 2.14
checkpoints gate
checkpoints downgrade runs/a/step-200 --for 2.14
checkpoints diff runs/a/step-100 runs/a/step-200
checkpoints keep runs/nowhere
rollback
rollback 2
run -e 1 -- no-such-program
remove 2
remove 3
restore 3
prune --dry-run
kernel install 2
upgrade 2.15 --until create --yes
upgrade --abort
doctor nowhere
verify 1
forget 1
commit
report
"""

TEAMWORK = """
sync
lock
lock --check
lock --check --host {host}/v100-driver-580.json
sync --dry-run
sync
sync
fetch ci wheels
export --requirements ci
export --requirements nobody
init
trust .
"""


def walk(folder: Path, index: Index) -> str:
    """Take the walk below a folder, and return what was typed and printed."""
    terminal = Terminal.within(folder, index)
    project = terminal.cwd
    programs = folder / "bin"
    programs.mkdir()
    (programs / f"python{MINOR}").symlink_to(Path(sys.executable).resolve())
    terminal.environ["PATH"] = str(programs)
    write_venv(project / ".venv", {"torch": "2.14.1+cpu", "numpy": "2.2.0"})
    (project / "src").mkdir()
    (project / "src" / "train.py").write_text(TRAINING, "utf-8")
    save(project / "runs" / "a" / "step-100", "dcp-2.14.1")
    save(project / "runs" / "a" / "step-200", "dcp-2.15.0")
    lines = [*_type_all(FIRST_LOOK, terminal), *_type_all(UPGRADE, terminal)]
    (project / "torchenv.toml").write_text(TEAM, "utf-8")
    lines += _type_all(TEAMWORK, terminal)
    return _make_same("\n".join(lines) + "\n", folder, index)


def _type_all(commands: str, terminal: Terminal) -> Iterator[str]:
    for command in commands.strip().splitlines():
        words = shlex.split(command.format(host=HOSTS, python=sys.executable))
        yield from _show(command, terminal.type(*words))


def _show(command: str, ended: Ended) -> Iterator[str]:
    yield f"$ torchenv {command}" + (f"   (ends with {ended.code})" if ended.code else "")
    yield from (f"  {line}".rstrip() for line in ended.err.splitlines())
    yield from (f"| {line}".rstrip() for line in ended.out.splitlines())
    yield ""


def _make_same(text: str, folder: Path, index: Index) -> str:
    """Put names of a usual machine in the place of this one's, and `N` for what is measured."""
    for here, usual in (
        (str(folder), "/home/ada"),
        (str(HOSTS), "HOSTS"),
        (index.root, "https://index.example"),
        ("/home/ada/bin/", "/usr/bin/"),
        (sys.executable, "/usr/bin/python"),
        (str(Path(sys.executable).resolve()), "/usr/bin/python"),
        (PYTHON, f"{MINOR}.N"),
        (platform.node(), "HOST"),
    ):
        text = text.replace(here, usual)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC)?", "DATE", text)
    text = re.sub(r"\b\d+(\.\d)? (s|KiB|MiB|GiB|min ago|h ago)\b", r"N \2", text)
    text = re.sub(r"\b\d+ d ago\b", "N d ago", text)
    text = re.sub(r"glibc [\d.]+(, container)?", "glibc N", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)
    return re.sub(r"/\S*/uv pip\b", "uv pip", text)
