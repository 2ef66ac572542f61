"""Every command that a message names works there and then: each is provoked, and typed as it is printed."""

from __future__ import annotations

import errno
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.actions.test_read_save import Torch as ReadingTorch
from tests.actions.test_repair import KEY
from tests.actions.test_repair import Torch as RepairingTorch
from tests.checkpoints.support import CASES
from tests.support.checkpoints import save
from tests.support.hints import COMMAND, list_commands
from tests.support.index import Index
from tests.support.project import MINOR, PAIR
from tests.support.terminal import Ended, Terminal
from tests.support.wheels import Wheel
from tests.support.workshop import recorded
from tests.support.workspace import Workspace, write_venv

from torchenv.actions.rescan import rescan
from torchenv.checkpoints.lifeboats import describe_unjudged
from torchenv.system.disk import make_refusal
from torchenv.system.packfile import PackFacts
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the wheels are for Linux")

# What a line of a help or of a written file names, and no message: it says how, and not what to do now.
NAMED_ONLY = {
    ("actions/new_patches.py", "torchenv catalogue update"),
    ("actions/update_catalogue.py", "torchenv catalogue update"),
    ("cli/__init__.py", "torchenv --version"),
    ("cli/__init__.py", "torchenv activate"),
    ("cli/__init__.py", "torchenv help COMMAND"),
    ("cli/__init__.py", "torchenv {}"),
    ("cli/building.py", "torchenv show --json"),
    ("cli/environments.py", "torchenv show --json"),
    ("cli/locked.py", "torchenv show --json"),
    ("cli/shells.py", "torchenv activate"),
    ("cli/shells.py", "torchenv activate [ENV]"),
    ("cli/shells.py", "torchenv deactivate"),
    ("cli/shells.py", "torchenv hook --help"),
    ("cli/upgrade.py", "torchenv run"),
    ("cli/upgrade_check.py", "torchenv run"),
    ("lockfile/lockset.py", "torchenv lock --check"),
    ("lockfile/lockset.py", "torchenv sync"),
    ("render/export.py", "torchenv export --requirements {}"),
    ("render/export.py", "torchenv export --uv"),
    ("render/profile.py", "torchenv init"),
    ("workspace/manifest.py", "torchenv remove"),
    ("workspace/manifest.py", "torchenv rollback"),
    ("workspace/manifest.py", "torchenv use"),
}

HOSTS = Path(__file__).parents[1] / "data" / "hosts"

HEEDED: set[tuple[str, str]] = set()
Test = Callable[..., None]


def heeds(module: str, *commands: str) -> Callable[[Test], Test]:
    """Declare which commands of a module a test provokes and types."""

    def declare(test: Test) -> Test:
        named = {(module, command) for command in commands}
        HEEDED.update(named)
        test.named = getattr(test, "named", set()) | named  # type: ignore[attr-defined]
        return test

    return declare


class Heeder:
    """Types the commands that a message names, and keeps book of those that were declared."""

    def __init__(self, declared: set[tuple[str, str]]) -> None:
        self.declared, self.typed = declared, set[tuple[str, str]]()

    def __call__(
        self, terminal: Terminal, ended: Ended | str, *codes: int, only: str = "", **variables: str
    ) -> Ended:
        """Type every command of a message; each ends with 0 or one of the codes. Gives the last.

        `only` takes the lines that hold it alone.
        """
        text = ended if isinstance(ended, str) else ended.out + ended.err
        text = "\n".join(line for line in text.splitlines() if only in line)
        commands = [" ".join(command.split()) for command in COMMAND.findall(text)]
        assert commands, text
        for command in commands:
            meant = {(module, form) for module, form in self.declared if _fits(form, command)}
            assert meant, f"{command} is not declared: {text}"
            done = terminal.type(*shlex.split(command)[1:], **variables)
            assert done.code in (0, *codes), f"{command}\n{done.out}{done.err}"
            self.typed |= meant
        return done


def _fits(form: str, command: str) -> bool:
    return re.fullmatch(re.escape(form).replace(r"\{\}", ".+"), command) is not None


@pytest.fixture
def heed(request: pytest.FixtureRequest) -> Iterator[Heeder]:
    heeder = Heeder(request.function.named)
    yield heeder
    assert heeder.typed == heeder.declared, "what is declared was not typed"


@pytest.fixture
def plain(tmp_path: Path) -> Terminal:
    """A project without an index."""
    return Terminal.within(tmp_path)


@pytest.fixture
def served(tmp_path: Path, index: Index) -> Terminal:
    """A project with an index, on a machine whose only Python is that of the tests."""
    terminal = Terminal.within(tmp_path, index)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / f"python{MINOR}").symlink_to(Path(sys.executable).resolve())
    terminal.environ["PATH"] = f"{tmp_path / 'bin'}:{terminal.environ['PATH']}"
    return terminal


def make(terminal: Terminal, version: str, *words: str) -> None:
    made = terminal.type("create", version, "--backend", "cpu", *words)
    assert made.code == 0, made.err


def fake(terminal: Terminal, *torches: str) -> Workspace:
    """Give the project environments that were made by hand."""
    workspace = Workspace(terminal.cwd)
    for torch in torches:
        workspace.built(torch)
    terminal.environ["TORCHENV_HOME"] = str(workspace.store.root)
    return workspace


def adopt(terminal: Terminal, *torches: str) -> None:
    """Record environments that were made elsewhere."""
    for torch in torches:
        write_venv(terminal.cwd.parent / torch, {"torch": torch})
        assert terminal.type("adopt", terminal.cwd.parent / torch).code == 0


def test_every_command_in_a_message_is_typed_by_a_test() -> None:
    assert sorted(list_commands() - NAMED_ONLY - HEEDED) == [], "write a test that provokes and types it"
    assert sorted(HEEDED - list_commands()) == [], "no message names it any more"
    assert sorted(NAMED_ONLY - list_commands()) == []


# Which environment.


@heeds("workspace/manifest.py", "torchenv list", "torchenv use {}", "torchenv restore {}")
@heeds("cli/__init__.py", "torchenv --help")
@heeds("cli/__init__.py", "torchenv {} {}")
@heeds("cli/parser.py", "torchenv {}")
@heeds("catalogue/releases.py", "torchenv catalogue show")
def test_of_words_that_name_nothing(served: Terminal, heed: Heeder) -> None:
    heed(served, served.type("show", "9"))
    heed(served, served.type("frobnicate"))
    heed(served, served.type("--frobnicate"))
    heed(served, served.type("--profile", "default", "plan"))
    heed(served, served.type("list", "--explain"), only="hint")
    heed(served, served.type("plan", "31.7"))
    adopt(served, "2.13.0+cpu")
    for path in served.workspace.glob("manifest.toml*"):
        text = path.read_text("utf-8")
        path.write_text(re.sub(r"(?m)^current = .*$", "", text), "utf-8")
    heed(served, served.type("show"))
    newest = next(one for one in served.type("list", "--json").json["environments"] if one["kind"] == "built")
    assert served.type("use", "2.13.0-cpu-py" + MINOR).code == 0
    assert served.type("remove", str(newest["number"]), "--force").code == 0
    heed(served, served.type("use", str(newest["number"])))


@heeds("workspace/manifest.py", "torchenv create --use")
@heeds("cli/environments.py", "torchenv create", "torchenv status")
@heeds("render/report.py", "torchenv create")
@heeds("actions/adopt.py", "torchenv create")
def test_of_an_empty_project(served: Terminal, heed: Heeder) -> None:
    write_venv(served.cwd / "torchless", {})
    listed, report = served.type("list"), served.type("report")
    heed(served, served.type("trust", "."))
    heed(served, served.type("show"))
    heed(served, listed)
    heed(served, report, only="none yet")
    heed(served, served.type("adopt", "torchless"))


@heeds("cli/proofs.py", "torchenv create")
def test_of_a_doctor_without_a_patient(served: Terminal, heed: Heeder) -> None:
    (served.cwd / "pyvenv.cfg").unlink(missing_ok=True)
    heed(served, served.start("doctor"))


@heeds("workspace/manifest.py", "torchenv create")
def test_of_an_environment_that_was_never_finished(served: Terminal, heed: Heeder) -> None:
    make(served, "2.14")
    for path in served.workspace.glob("manifest.toml*"):
        path.write_text(path.read_text("utf-8").replace('state = "ready"', 'state = "building"'), "utf-8")
    heed(served, served.type("use", "1"))


@heeds("cli/environments.py", "torchenv adopt {}")
@heeds("actions/forget.py", "torchenv remove {}", "torchenv checkpoints keep --release {}")
@heeds("actions/remove.py", "torchenv forget {}", "torchenv checkpoints keep --release {}")
@heeds("actions/switch.py", "torchenv use {}")
@heeds("render/status.py", "torchenv restore {}")
def test_of_taking_environments_away(served: Terminal, heed: Heeder) -> None:
    adopt(served, "2.13.0+cpu", "2.14.1+cpu")
    assert served.type("use", "2").code == 0
    heed(served, served.type("remove", "1"))
    assert served.type("adopt", served.cwd.parent / "2.13.0+cpu").code == 0
    heed(served, served.type("forget", "2"))
    heed(served, served.type("forget", "2"))
    make(served, "2.14", "--use")
    number = served.type("list", "--json").json["current"]
    heed(served, served.type("remove", f"{number}"))
    assert served.type("rollback").code == 0
    assert served.type("list", "--json").json["current"] == number
    assert served.type("rollback").code == 0
    heed(served, served.type("forget", f"{number}"), 3)
    heed(served, served.type("remove", f"{number}", "--force"))
    assert served.type("remove", f"{number}", "--force").code == 0
    heed(served, served.type("status"), only="rebuild")
    save(served.cwd / "runs" / "step-1", "dcp-2.15.0")
    make(served, "2.15")
    newest = served.type("list", "--json").json["environments"][-1]["number"]
    assert served.type("checkpoints", "keep", "runs/step-1").code == 0
    heed(served, served.type("remove", f"{newest}", "--force"))
    adopt(served, "2.15.0+cpu")
    assert served.type("remove", f"{newest}", "--force").code == 0
    assert served.type("checkpoints", "keep", "runs/step-1").code == 0
    heed(served, served.type("forget", f"{newest + 1}"))


@heeds("actions/switch.py", "torchenv create {}", "torchenv rollback {}", "torchenv restore {}")
@heeds("actions/switch.py", "torchenv list --all", "torchenv plan --explain", "torchenv create")
def test_of_a_rollback_to_nothing(served: Terminal, heed: Heeder) -> None:
    make(served, "2.15", "--use")
    heed(served, served.type("rollback"))
    heed(served, served.type("rollback"))
    assert served.type("remove", "1", "--force").code == 0
    heed(served, served.type("rollback"))
    other = Terminal(served.cwd.with_name("other"), served.environ)
    (other.cwd / ".git").mkdir(parents=True)
    make(other, "2.14", "--use")
    heed(other, other.type("rollback"))
    heed(other, other.type("remove", "1"))
    empty = Terminal(served.cwd.with_name("empty"), served.environ)
    (empty.cwd / ".git").mkdir(parents=True)
    heed(empty, empty.type("rollback"))


@heeds("actions/switch.py", "torchenv smoke {}", "torchenv use {} --force")
def test_of_smoke_commands_that_are_required(plain: Terminal, heed: Heeder) -> None:
    fake(plain, "2.14.1+cpu")
    profile = 'schema = 1\n[smoke]\nrequired = true\ncommands = [["python", "-V"]]\n'
    (plain.cwd / "torchenv.toml").write_text(profile, "utf-8")
    heed(plain, plain.type("use", "1"), 1)


@heeds("actions/restore.py", "torchenv create", "torchenv use {}", "torchenv restore {} --python {}")
@heeds("actions/run.py", "torchenv restore {}", "torchenv adopt {}")
def test_of_what_cannot_be_restored(served: Terminal, heed: Heeder) -> None:
    make(served, "2.15")
    heed(served, served.type("restore", "1"))
    make(served, "2.14")
    assert served.type("remove", "2", "--force").code == 0
    heed(served, served.type("restore", "2", "--python", "3.9"))
    shutil.rmtree(served.workspace / "envs" / Path(served.type("show", "2", "--json").json["path"]).name)
    heed(served, served.type("run", "-e", "2", "--", "true"))
    assert served.type("remove", "2", "--force").code == 0
    (served.workspace / "locks" / "pylock.2.toml").unlink()
    heed(served, served.type("restore", "2"))
    adopt(served, "2.13.0+cpu")
    (served.cwd.parent / "2.13.0+cpu").rename(served.cwd.parent / "elsewhere")
    write_venv(served.cwd.parent / "2.13.0+cpu", {"torch": "2.13.0+cpu"})
    number = served.type("list", "--json").json["environments"][-1]["number"]
    heed(served, served.type("run", "-e", f"{number}", "--", "true"))


@heeds("actions/restore.py", "torchenv restore {}")
def test_of_an_interpreter_that_cannot_be_fetched(
    served: Terminal, heed: Heeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(served, "2.14")
    make(served, "2.15")
    assert served.type("remove", "2", "--force").code == 0
    record = served.workspace / "manifest.toml"
    here = served.type("show", "2", "--json").json["python"]["path"]
    for path in served.workspace.glob("manifest.toml*"):
        path.write_text(path.read_text("utf-8").replace(here, "/gone/python"), "utf-8")
    assert record.is_file()
    with monkeypatch.context() as patched:
        patched.setattr("torchenv.host.probe.pythons.list_pythons", lambda *_, **__: (), raising=False)
        nowhere = {"PATH": "/nowhere", "UV_PYTHON_INSTALL_MIRROR": "http://127.0.0.1:9/"}
        ended = served.type("restore", "2", **nowhere)
    if ended.code == 0:
        pytest.skip("every Python of this machine is found without a PATH")
    heed(served, ended)


# Packages.


@heeds("actions/change.py", "torchenv add {}", "torchenv drop {}", "torchenv create", "torchenv show --json")
@heeds("actions/change.py", "torchenv plan", "torchenv {}", "torchenv create --use")
@heeds("render/environment.py", "torchenv rollback")
def test_of_packages(served: Terminal, heed: Heeder) -> None:
    make(served, "2.15", "--use")
    heed(served, served.type("add", "torchvision==0.1"))
    heed(served, served.type("add", "lightning"))  # rolls back
    assert served.type("rollback").code == 0
    heed(served, served.type("drop", "nothing-like-it"))
    heed(served, served.type("drop", "numpy"))
    heed(served, served.type("drop", "torch"))
    heed(served, served.type("add", "torch==2.14.1"))
    active = served.type("list", "--json").json["current"]
    python = Path(served.type("show", "--json").json["path"]) / "bin" / "python"
    with subprocess.Popen([python, "-c", "input()"], stdin=subprocess.PIPE) as running:
        heed(served, served.type("add", "filelock", "numpy", "--in-place"))
        running.communicate(b"\n")
    active = served.type("list", "--json").json["current"]
    (served.workspace / "plans" / f"{active}.json").write_text("torn", "utf-8")
    heed(served, served.type("add", "numpy"))


@heeds("actions/change.py", "torchenv create --like {} --use")
def test_of_packages_of_an_adopted_environment(served: Terminal, heed: Heeder) -> None:
    adopt(served, "2.14.1+cpu")
    assert served.type("use", "1").code == 0
    heed(served, served.type("add", "numpy"))


@heeds("actions/change.py", "torchenv restore {}")
def test_of_packages_where_the_interpreter_is_gone(served: Terminal, heed: Heeder, tmp_path: Path) -> None:
    link = tmp_path / "old" / "python"
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).resolve())
    made = served.type("create", "2.15", "--backend", "cpu", "--python", link, "--use")
    assert made.code == 0, made.err
    link.unlink()
    heed(served, served.type("add", "numpy"))


@heeds("actions/change.py", "torchenv status")
def test_of_a_package_that_does_not_import(served: Terminal, index: Index, heed: Heeder) -> None:
    make(served, "2.15", "--use")
    index.remove("whl/cpu", "torchvision")
    broken = {"torchvision/__init__.py": "import nowhere"}
    index.add("whl/cpu", Wheel(name="torchvision", version="0.29.2+cpu", files=broken))
    heed(served, served.type("add", "torchvision"))


@heeds("actions/create.py", "torchenv show {}", "torchenv plan --explain")
def test_of_a_creation_that_fails(served: Terminal, index: Index, heed: Heeder) -> None:
    make(served, "2.15", "--name", "mine")
    heed(served, served.type("create", "2.14", "--name", "mine"))
    index.remove("whl/cpu", "torchvision")
    broken = {"torchvision/__init__.py": "import nowhere"}
    index.add("whl/cpu", Wheel(name="torchvision", version="0.29.2+cpu", files=broken))
    profile = 'schema = 1\n[torch]\nversion = "2.15"\npackages = ["torchvision"]\n'
    (served.cwd / "torchenv.toml").write_text(profile, "utf-8")
    heed(served, served.type("create", "--backend", "cpu"), only="hint")


@heeds("actions/activate.py", "torchenv show --json")
def test_of_a_shell_without_pip(plain: Terminal, heed: Heeder) -> None:
    fake(plain, "2.15.0+cpu")
    assert plain.type("use", "1").code == 0
    lines = f"{plain.type('activate', '--shell', 'bash').out}\npip list"
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=False)
    heed(plain, done.stderr)
    lines = lines.replace("pip list", "pip install -U wandb rich")
    done = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=False)
    assert "`torchenv add wandb rich`" in done.stderr


@heeds("actions/kernel.py", "torchenv kernel remove {}")
def test_of_a_kernel_that_was_edited(plain: Terminal, heed: Heeder) -> None:
    Workspace(plain.cwd).built("2.15.0+cpu", packages={"ipykernel": "6.0"})
    plain.environ["TORCHENV_HOME"] = str(plain.cwd / "workspace")
    assert plain.type("kernel", "install", "1").code == 0
    (written,) = Path(plain.environ["HOME"]).rglob("kernel.json")
    written.write_text(
        written.read_text("utf-8").replace('"display_name": "', '"display_name": "my '), "utf-8"
    )
    heed(plain, plain.type("kernel", "install", "1"))


# Indexes and machines.


@heeds("actions/ask_index.py", "torchenv plan --offline")
def test_of_an_index_that_does_not_answer(served: Terminal, heed: Heeder) -> None:
    dead = {"TORCHENV_TORCH_INDEX": "http://127.0.0.1:9/whl"}
    heed(served, served.type("create", "2.15", "--backend", "cu134", **dead), **dead)


def test_of_machines_that_need_another_choice(plain: Terminal) -> None:
    # They are for the machine that the plan is for: there, what they ask for is planned.
    seen = 0
    for path in sorted(HOSTS.glob("*.json")):
        refused = plain.type("plan", "2.15", "--host", path)
        for command in re.findall(r"`(torchenv create [^`]+)`", refused.out + refused.err):
            seen += 1
            words = shlex.split(command)[2:]
            assert plain.type("plan", *words, "--host", path).code == 0, f"{path.name}: {command}"
    assert seen > 2


@heeds("plan/advice.py", "torchenv help checkpoints keep")
@heeds("cli/upgrade.py", "torchenv upgrade --yes")
def test_of_advice_to_wait(served: Terminal, heed: Heeder) -> None:
    profile = 'schema = 1\n[backend]\nonly = ["cpu"]\n[checkpoints]\ndistributed = true\n'
    make(served, "2.14", "--use")
    (served.cwd / "torchenv.toml").write_text(profile, "utf-8")
    heed(served, served.type("plan"), only="protected")
    # The small wheels compute nothing, so that the road ends at its checks.
    heed(served, served.type("upgrade"), 3, only="without being asked")


@heeds("host/model.py", "torchenv probe -o FILE")
@heeds("cli/building.py", "torchenv plan --host {}", "torchenv plan")
def test_of_host_files(plain: Terminal, heed: Heeder) -> None:
    (plain.cwd / "host.json").write_text('{"schema": "other/9"}', "utf-8")
    heed(plain, plain.type("plan", "--host", "host.json"))
    heed(plain, plain.type("create", "--host", HOSTS / "m2-macos-15.json"))
    heed(plain, plain.type("init"))


@heeds("cli/building.py", "torchenv create {}")
def test_of_a_plan_that_is_followed(served: Terminal, heed: Heeder) -> None:
    planned = served.type("plan", "2.15", "--backend", "cpu")
    (following,) = re.findall(r"^next: (.*)$", planned.out, re.MULTILINE)
    heed(served, f"`{following}`")


@heeds("cli/session.py", "torchenv trust {}")
@heeds("cli/environments.py", "torchenv --root {} status")
def test_of_a_workspace_of_someone_else(plain: Terminal, heed: Heeder) -> None:
    write_venv(plain.cwd / ".venv", {"torch": "2.14.1+cpu"})
    assert plain.type("adopt", ".venv").code == 0
    for path in plain.workspace.glob("manifest.toml*"):
        lines = path.read_text("utf-8").splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith("root = ")), "utf-8")
    shutil.rmtree(Path(plain.environ["HOME"]) / ".local")
    refused = plain.type("use", "1")
    state = Path(plain.environ["HOME"]) / ".local"
    state.write_text("in the way", "utf-8")
    heed(plain, plain.type("trust", "."))
    state.unlink()
    heed(plain, refused)
    assert plain.type("use", "1").code == 0


@heeds("system/disk.py", "torchenv prune")
@heeds("workspace/journal.py", "torchenv upgrade --restart")
def test_of_a_disk_that_is_full_and_a_journal_that_is_torn(served: Terminal, heed: Heeder) -> None:
    full = make_refusal(served.cwd, OSError(errno.ENOSPC, "no space"))
    heed(served, full.hint or "")
    make(served, "2.15", "--use")
    (served.cwd / "torchenv.toml").write_text('schema = 1\n[backend]\nonly = ["cpu"]\n', "utf-8")
    (served.workspace / "upgrade.json").write_text("torn", "utf-8")
    heed(served, served.type("upgrade"))


# Checkpoints.


@heeds("actions/checkpoints.py", "torchenv checkpoints scan")
@heeds("actions/gate.py", "torchenv help checkpoints keep")
@heeds("actions/lifeboat.py", "torchenv checkpoints keep --release {}", "torchenv checkpoints keep {}")
@heeds("actions/lifeboat.py", "torchenv checkpoints scan", "torchenv checkpoints verify")
@heeds("actions/lifeboat.py", "torchenv checkpoints verify {}")
@heeds("render/checkpoints.py", "torchenv checkpoints keep --copy {}", "torchenv checkpoints verify")
@heeds("render/checkpoints.py", "torchenv help checkpoints keep")
@heeds("checkpoints/lifeboats.py", "torchenv checkpoints downgrade {}/{} --for {}")
@heeds("checkpoints/lifeboats.py", "torchenv checkpoints scan")
@heeds("actions/downgrade.py", "torchenv checkpoints downgrade {} {} --for {}")
def test_of_checkpoints(plain: Terminal, heed: Heeder) -> None:
    adopt(plain, "2.14.1+cpu", "2.15.0+cpu")
    assert plain.type("use", "2").code == 0
    first = save(plain.cwd / "runs" / "a" / "step-100", "dcp-2.14.1")
    save(plain.cwd / "runs" / "a" / "step-200", "dcp-2.15.0")
    heed(plain, plain.type("checkpoints", "show"))
    heed(plain, plain.type("checkpoints", "verify"))
    profile = 'schema = 1\n[checkpoints]\nroots = ["runs"]\nlifeboat-max-age = "7d"\n'
    (plain.cwd / "torchenv.toml").write_text(profile, "utf-8")
    heed(plain, plain.type("checkpoints", "gate", "--readable-by", "2.14"), only="no lifeboat")
    heed(plain, plain.type("checkpoints", "keep", "runs/a/step-100"))
    (first / "notes.txt").write_text("more", "utf-8")
    heed(plain, plain.type("checkpoints", "keep", "runs/a/step-100"), 1)
    assert plain.type("checkpoints", "keep", "runs/a/step-200").code == 0
    (plain.cwd / "empty").mkdir()
    heed(plain, plain.type("checkpoints", "keep", "empty"))
    heed(plain, plain.type("checkpoints", "keep", "--release", "runs/b"), 1)
    heed(plain, plain.type("checkpoints", "verify", "runs/a/step-100"))
    for path in plain.workspace.rglob("*.json"):
        if "kept" in path.parent.name or "lifeboat" in str(path):
            path.unlink()
    heed(plain, plain.type("checkpoints", "verify", "runs/a/step-200"))
    heed(plain, plain.type("rollback"), only="copy it with")
    copy = plain.cwd / "runs" / "a-for-2.14" / "step-200"
    shutil.rmtree(copy, ignore_errors=True)
    save(copy, "dcp-2.14.1")
    heed(plain, plain.type("checkpoints", "downgrade", "runs/a/step-200", "--for", "2.14"))
    adopt(plain, "2.13.0+cpu")
    for path in plain.workspace.glob("manifest.toml*"):
        text = path.read_text("utf-8")
        path.write_text(re.sub(r"newest-readable = \{.*\}", "newest-readable = {}", text), "utf-8")
    heed(plain, describe_unjudged(plain_environment(plain)))


def plain_environment(terminal: Terminal) -> Environment:
    return Store(terminal.workspace).read().number(1)


@heeds("actions/read_save.py", "torchenv checkpoints convert {} {} --to {}", "torchenv create {}")
def test_of_a_conversion_whose_goal_is_taken(
    served: Terminal, heed: Heeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(served.cwd / "runs" / "a" / "step-200", "dcp-2.15.0")
    words = ("checkpoints", "convert", "runs/a/step-200", "--to", "safetensors")
    heed(served, served.type(*words))
    (served.cwd / "runs" / "a" / "step-200.safetensors").write_bytes(b"")
    taken = served.type(*words)
    monkeypatch.setattr("torchenv.cli.programs.ShownPrograms", lambda *_: ReadingTorch())
    heed(served, taken)


@heeds("actions/read_save.py", "torchenv checkpoints show {}")
def test_of_a_conversion_that_would_run_code(plain: Terminal, heed: Heeder) -> None:
    adopt(plain, "2.15.0+cpu")
    save(plain.cwd / "runs" / "a" / "step-200", "2.15.0/ts_numpy")
    heed(plain, plain.type("checkpoints", "convert", "runs/a/step-200/ck.pt", "--to", "safetensors"))


@heeds("actions/repair.py", "torchenv checkpoints repair {} {} --optimizer {}")
def test_of_a_repair_whose_goal_is_taken(
    plain: Terminal, heed: Heeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopt(plain, "2.14.1+cpu")
    step = save(plain.cwd / "runs" / "a" / "step-100", "2.14.1/dcp_modelopt")
    metadata = step / ".metadata"
    metadata.write_bytes(metadata.read_bytes().replace(KEY, b"decoupled_weight_decax"))
    save(plain.cwd / "runs" / "a-repaired" / "step-100", "dcp-2.14.1")
    taken = plain.type("checkpoints", "repair", "runs/a/step-100", "--optimizer", "adam")
    monkeypatch.setattr("torchenv.cli.programs.ShownPrograms", lambda *_: RepairingTorch())
    heed(plain, taken)


@heeds("actions/rescan.py", "torchenv checkpoints scan")
def test_of_a_scan_that_took_too_long(plain: Terminal, heed: Heeder, monkeypatch: pytest.MonkeyPatch) -> None:
    adopt(plain, "2.14.1+cpu")
    for step in range(4):
        save(plain.cwd / "runs" / "a" / f"step-{step}", "dcp-2.14.1")
    assert plain.type("checkpoints", "scan").code == 0
    save(plain.cwd / "runs" / "b" / "step-9", "dcp-2.14.1")
    monkeypatch.setitem(rescan.__kwdefaults__ or {}, "limit", -1.0)
    heed(plain, plain.type("status"), only="reads all of it")


@heeds("cli/switching.py", "torchenv run -- python -V", "torchenv run {} --outside -- {}")
@heeds("cli/switching.py", "torchenv checkpoints downgrade {} --for {}")
@heeds("actions/write_for.py", "torchenv create")
def test_of_runs(served: Terminal, heed: Heeder, tmp_path: Path) -> None:
    adopt(served, "2.15.0+cpu")
    assert served.type("use", "1").code == 0
    started = Started(served)
    heed(started, served.type("run"))
    script = tmp_path / "bin" / "accelerate"
    script.write_text(f"#!{sys.executable}\nprint('outside')\n", "utf-8")
    script.chmod(0o755)
    heed(started, served.type("run", "-e", "1", "--", "accelerate"))
    lost = served.start("run", "--write-for", "2.14", "--", "python", "-I", "-c", "0")
    source = str(CASES / "dcp-2.15.0")
    code = f"import shutil as s; s.copytree({source!r}, 'runs/a/step-9', copy_function=s.copyfile)"
    (served.cwd / "runs" / "a").mkdir(parents=True)
    heed(
        served, served.start("run", "--write-for", "2.14", "--force", "--", "python", "-c", code), only="hint"
    )
    heed(served, lost)


class Started(Terminal):
    """A terminal whose commands have a process of their own: what runs takes the place of torchenv."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(terminal.cwd, terminal.environ)

    def type(self, *words: str | Path, **variables: str) -> Ended:
        return self.start(*words, **variables)


@heeds("audit/rules/checkpoint_save.py", "torchenv help checkpoints downgrade")
@heeds("cli/upgrade_check.py", "torchenv audit .")
def test_of_code(served: Terminal, heed: Heeder) -> None:
    make(served, "2.14", "--use")
    code = "import torch.distributed.checkpoint as dcp\ndcp.save({}, checkpoint_id='x')\n"
    (served.cwd / "train.py").write_text(code, "utf-8")
    heed(served, served.type("audit", "train.py"), only="checkpoints downgrade")
    heed(served, served.type("upgrade", "--check"), 1, only="audit")


# Teams.


@pytest.fixture
def team(served: Terminal, index: Index) -> Terminal:
    """A project with two targets, locked."""
    (served.cwd / "torchenv.toml").write_text(PAIR.replace("{root}", index.root), "utf-8")
    assert served.type("lock").code == 0
    return served


@heeds("actions/sources.py", "torchenv fetch {} {}", "torchenv lock", "torchenv lock --upgrade")
@heeds("actions/sync.py", "torchenv sync")
@heeds("cli/project.py", "torchenv lock")
@heeds("cli/locked.py", "torchenv lock --check")
@heeds("lockfile/lock.py", "torchenv lock")
@heeds("lockfile/lockset.py", "torchenv lock")
def test_of_locks(team: Terminal, index: Index, heed: Heeder) -> None:
    assert team.type("fetch", "ci", "wheels").code == 0
    (team.cwd / "wheels" / "numpy-2.3.0-py3-none-any.whl").unlink()
    heed(team, team.type("sync", "--wheels", "wheels"))
    profile = team.cwd / "torchenv.toml"
    text = profile.read_text("utf-8")
    profile.write_text(text.replace('"lightning",', '"lightning", "filelock",'), "utf-8")
    heed(team, team.type("sync", "ci"), 1, only="see what changed")
    profile.write_text(text, "utf-8")
    tie, lock = team.cwd / "torchenv.lock.toml", team.cwd / "pylock.ci.toml"
    lock.unlink()
    heed(team, team.type("sync", "ci"))
    assert lock.is_file()
    tie.write_text("torn [", "utf-8")
    heed(team, team.type("sync"))
    tie.unlink()
    heed(team, team.type("sync"))
    lock.write_text(f"{lock.read_text('utf-8')}\n[tool.torchenv]\nlocal = ['nonsense']\n", "utf-8")
    tie.unlink()
    refused = team.type("lock", "ci")
    lock.unlink()
    heed(team, refused if "names no folder" in refused.err else "`torchenv lock`")
    text = profile.read_text("utf-8")
    other = text[: text.index("[[target]]")] + '[[target]]\nname = "mac"\nplatform = "darwin-arm64"\n'
    profile.write_text(f'{other}python = "{MINOR}"\n{text[text.index("[[target]]") :]}', "utf-8")
    assert team.type("lock").code == 0
    heed(team, team.type("sync", "mac"))
    (numpy,) = (one for one in index.wheels("simple") if one.file_name.startswith("numpy-2.3.0"))
    index.add("simple", replace(numpy, yanked=True))
    # A mirror that a variable names is asked for the files alone; the index of the lock for its pages, too.
    for name in ("TORCHENV_TORCH_INDEX", "TORCHENV_PACKAGE_INDEX"):
        team.environ.pop(name)
    heed(team, team.type("sync", "ada", "--dry-run"), only="yanked")
    index.remove("simple", "filelock")
    index.add("simple", Wheel(name="filelock", version="3.19.0"))
    team.environ["UV_CACHE_DIR"] += "-cold"
    heed(team, team.type("sync", "ada"), only="hint")


@heeds("actions/lock.py", "torchenv lock --upgrade {}")
def test_of_a_file_that_was_replaced(team: Terminal, index: Index, heed: Heeder) -> None:
    index.remove("simple", "filelock")
    index.add("simple", Wheel(name="filelock", version="3.20.0", files={"filelock/__init__.py": "# other\n"}))
    team.environ["UV_CACHE_DIR"] += "-cold"
    heed(team, team.type("lock"), only="hint")


@heeds("actions/lock.py", "torchenv probe -o node.json", "torchenv lock --host node.json")
@heeds("cli/project.py", "torchenv init")
@heeds("packages/__init__.py", "torchenv init --from {}")
@heeds("packages/documents.py", "torchenv init --from pyproject.toml", "torchenv init --from {}")
@heeds("render/profile.py", "torchenv lock")
@heeds("packages/layouts.py", "torchenv probe -o node.json", "torchenv lock --host node.json")
def test_of_a_project_that_was_not_locked_yet(served: Terminal, heed: Heeder) -> None:
    def begin(name: str, text: str) -> None:
        for path in served.cwd.glob("*.*"):
            if path.is_file():
                path.unlink()
        (served.cwd / name).write_text(text, "utf-8")

    heed(served, served.type("lock"))
    heed(served, served.type("lock"))
    begin("environment.yml", "name: x\ndependencies:\n  - pip:\n    - numpy\n")
    heed(served, served.type("create", "2.15", "--from", "environment.yml"), only="hint")
    begin("pixi.toml", '[workspace]\nname = "x"\nchannels = []\nplatforms = ["linux-64"]\n')
    heed(served, served.type("create", "2.15", "--from", "pixi.toml"), only="hint")
    begin("pyproject.toml", '[tool.poetry]\nname = "x"\n[tool.poetry.dependencies]\nnumpy = "*"\n')
    heed(served, served.type("create", "2.15", "--from", "pyproject.toml"), only="hint")
    project = '[project]\nname = "x"\nversion = "1"\n[tool.pixi.dependencies]\nnumpy = "*"\n'
    begin("pyproject.toml", project)
    heed(served, served.type("create", "2.15", "--from", "pyproject.toml"), only="hint")
    begin("requirements.txt", "numpy\n")
    heed(served, served.type("init", "--from", "requirements.txt"), only="names no index")
    (first, *_) = (served.cwd / "torchenv.toml").read_text("utf-8").splitlines()
    heed(served, first.replace("`torchenv init`", "init"))


@heeds("actions/sync.py", "torchenv lock", "torchenv sync {}")
@heeds("actions/sync.py", "torchenv probe -o here.json", "torchenv lock --host here.json")
@heeds("installers/local.py", "torchenv lock")
def test_of_targets_that_are_not_for_this_machine(
    served: Terminal, index: Index, heed: Heeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAIR.replace("{root}", index.root)
    head, first, second = text.partition("[[target]]")[0], *text.split("[[target]]")[1:]
    profile = served.cwd / "torchenv.toml"

    def lock(*targets: str) -> None:
        profile.write_text(head + "".join(f"[[target]]{target}" for target in targets), "utf-8")
        assert served.type("lock").code == 0

    lock(first.replace("linux-x86_64", "windows-x86_64"))
    heed(served, served.type("sync"))
    lock(second)
    heed(served, served.type("sync"))
    with monkeypatch.context() as patched:
        patched.setattr("torchenv.cli.locked.read_host", lambda *_, **__: recorded("unknown-card-driver-580"))
        refused = served.type("sync")
    heed(served, refused, only="hint")
    folder = served.cwd / "core"
    (folder / "src" / "core").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "core"\nversion = "1"\n', "utf-8")
    profile.write_text(text.replace("[index]", 'editable = ["core"]\n[index]'), "utf-8")
    assert served.type("lock").code == 0
    folder.rename(served.cwd / "elsewhere")
    refused = served.type("sync", "ci")
    profile.write_text(text, "utf-8")
    heed(served, refused, only="hint")


# The road of an upgrade.


@heeds("cli/upgrade.py", "torchenv upgrade", "torchenv upgrade --abort", "torchenv upgrade --check --host {}")
@heeds("cli/upgrade.py", "torchenv commit", "torchenv rollback", "torchenv doctor {}")
@heeds("cli/proofs.py", "torchenv list")
def test_of_an_upgrade(served: Terminal, heed: Heeder) -> None:
    profile = 'schema = 1\n[torch]\nversion = "2.15"\n[backend]\nonly = ["cpu"]\n'
    make(served, "2.14", "--use")
    (served.cwd / "torchenv.toml").write_text(profile, "utf-8")
    heed(served, served.type("evaluate"))
    heed(served, served.type("upgrade", "--host", HOSTS / "cpu-only-linux.json"), 1)
    # The small wheels compute nothing, so that smoke stops the road, each time.
    heed(served, served.type("upgrade", "--until", "create"), 3, only="continue with")
    stopped = served.type("upgrade")
    assert stopped.code == 3
    heed(served, stopped, 1, 3, only="hint")
    heed(served, served.type("commit"), 3)
    journal = served.workspace / "upgrade.json"
    assert served.type("upgrade", "--abort").code == 0
    assert served.type("upgrade", "--until", "create").code == 0
    document = json.loads(journal.read_text("utf-8"))
    journal.write_text(json.dumps({**document, "done": ["check", "create", "smoke"]}), "utf-8")
    ended = served.type("upgrade")
    assert ended.code == 0, ended.err
    heed(served, ended)


@heeds("cli/upgrade.py", "torchenv list", "torchenv upgrade", "torchenv upgrade --abort")
def test_of_an_upgrade_that_built_nothing(
    served: Terminal, heed: Heeder, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(served, "2.14", "--use")
    (served.cwd / "torchenv.toml").write_text('schema = 1\n[backend]\nonly = ["cpu"]\n', "utf-8")
    with monkeypatch.context() as patched:
        patched.setattr("torchenv.actions.upgrade.find_made", lambda *_: None)
        stopped = served.type("upgrade")
    heed(served, stopped, 3, only="hint")


@heeds("render/status.py", "torchenv commit")
@heeds("cli/switching.py", "torchenv status")
@heeds("checkpoints/lifeboats.py", "torchenv checkpoints keep {}")
def test_of_an_upgrade_on_trial(served: Terminal, heed: Heeder) -> None:
    make(served, "2.14", "--use")
    (served.cwd / "torchenv.toml").write_text(
        'schema = 1\n[torch]\nversion = "2.15"\n[backend]\nonly = ["cpu"]\n', "utf-8"
    )
    assert served.type("upgrade", "--until", "create").code == 0
    journal = served.workspace / "upgrade.json"
    document = json.loads(journal.read_text("utf-8"))
    journal.write_text(json.dumps({**document, "done": ["check", "create", "smoke"]}), "utf-8")
    assert served.type("upgrade").code == 0
    for run in "abcd":
        save(served.cwd / "runs" / run / "step-100", "dcp-2.14.1")
        save(served.cwd / "runs" / run / "step-200", "dcp-2.15.0")
    heed(served, served.start("run", "--", "true"), only="see `torchenv status`")
    heed(served, served.type("status"), only="no lifeboat")
    heed(served, served.type("status"), only="on trial")


# Packs and bundles.


@heeds("actions/bundle.py", "torchenv fetch {} wheels", "torchenv sync {} --offline --wheels wheels")
def test_of_a_bundle_for_another_system(served: Terminal, index: Index, heed: Heeder) -> None:
    text = PAIR.replace("{root}", index.root).replace("linux-x86_64", "windows-x86_64")
    (served.cwd / "torchenv.toml").write_text(text, "utf-8")
    assert served.type("lock").code == 0
    # The second one is for the machine of the target, and ends with 3 on any other.
    heed(served, served.type("bundle", "ci", "ci.tar"), 3, only="hint")


@heeds("cli/gather.py", "torchenv list")
@heeds("cli/switching.py", "torchenv help pack")
@heeds("system/packfile.py", "torchenv help pack")
def test_of_what_is_no_pack(plain: Terminal, heed: Heeder) -> None:
    heed(plain, plain.type("create", "2.15", "--like", "./nothing"))
    heed(plain, plain.type("run", "--packed", "nothing.tar.zst", "--", "true"))
    (plain.cwd / "torn.tar.zst").write_bytes(b"torn")
    heed(plain, plain.type("run", "--packed", "torn.tar.zst", "--", "true"))


@heeds("actions/pack.py", "torchenv create --like {}", "torchenv create --python {}")
@heeds("render/packing.py", "torchenv run --packed {} -- python train.py")
def test_of_packs(served: Terminal, heed: Heeder, monkeypatch: pytest.MonkeyPatch) -> None:
    make(served, "2.15")
    (served.cwd / "train.py").write_text("import torch\n", "utf-8")
    packed = served.type("pack", "1", "env.tar.zst")
    if packed.code:
        pytest.skip(f"nothing is packed here: {packed.err}")
    started = Started(served)
    (following,) = re.findall(r"^next: (.*)$", packed.out + packed.err, re.MULTILINE)
    heed(started, f"`{following}`")
    with monkeypatch.context() as patched:
        facts = replace(PackFacts.read(served.cwd / "env.tar.zst"), interpreter="/gone/python")
        patched.setattr(PackFacts, "read", lambda _: facts)
        refused = served.type("run", "--packed", "env.tar.zst", "--", "true")
    heed(served, refused)
    conda = served.cwd.parent / "2.13.0+cpu"
    write_venv(conda, {"torch": "2.13.0+cpu"})
    (conda / "pyvenv.cfg").unlink()
    (conda / "conda-meta").mkdir()
    (conda / "conda-meta" / "history").touch()
    assert served.type("adopt", conda).code == 0
    number = served.type("list", "--json").json["environments"][-1]["number"]
    heed(served, served.type("pack", f"{number}", "other.tar.zst"))
