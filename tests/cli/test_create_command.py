"""`torchenv create` as it is typed: what it prints, what it obeys, and what it leaves."""

from __future__ import annotations

import platform
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from tests.support.checkpoints import save
from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.wheels import Wheel
from tests.support.workshop import HOSTS, MINOR, PYTHON
from tests.support.workspace import write_venv

from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)

NAME = f"2.15.0-cpu-py{MINOR}"
NOBODY = "http://127.0.0.1:9"


def test_it_says_what_was_made_and_what_to_do_next(terminal: Terminal) -> None:
    ended = terminal.create()
    path = terminal.workspace / "envs" / f"1-{NAME}"
    assert (ended.code, ended.out) == (
        0,
        (
            f"made environment 1 ({NAME})\n  {path}\n"
            f"  constraints for what is added by hand: {path / 'constraints.txt'}\n"
            f"environment 1 ({NAME}) is now active\n  {path}\n"
            f"  Python {PYTHON} and torch 2.15.0 verified\n"
            'next: eval "$(torchenv activate)", or torchenv run -- COMMAND\n'
        ),
    )
    code = "import torch; print(torch.__version__)"
    assert terminal.start("run", "-e", "1", "--", "python", "-c", code).out == "2.15.0+cpu\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a script for sh")
def test_a_script_that_starts_the_interpreter_is_not_what_the_environment_stands_on(
    terminal: Terminal, tmp_path: Path
) -> None:
    script = tmp_path / "python3"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    made = terminal.type("create", "2.15", "--backend", "cpu", "--python", script)
    assert made.code == 0, made.err
    stands_on = Path(terminal.type("show", "1", "--json").json["python"]["path"])
    assert stands_on.samefile(sys.executable)
    # A module of a cluster, or a shim, comes and goes.
    script.unlink()
    verified = terminal.type("verify", "1")
    assert (verified.code, verified.out) == (0, f"environment 1 ({NAME}) unchanged\n")


def test_as_json_stdout_holds_one_document_which_is_what_show_prints(terminal: Terminal) -> None:
    ended = terminal.create("--json")
    assert ended.code == 0
    document = ended.json
    assert document == terminal.type("show", "1", "--json").json
    assert (document["number"], document["torch"], document["state"]) == (1, "2.15.0+cpu", "ready")
    assert document["plan"]["schema"] == "torchenv.plan/1"
    assert document["lock-path"] == str(terminal.workspace / "locks" / "pylock.1.toml")
    assert f"made environment 1 ({NAME})" in ended.err


def test_what_to_do_next_names_the_workspace_that_was_named(terminal: Terminal, tmp_path: Path) -> None:
    root = tmp_path / "our work"
    made = terminal.create("--root", root)
    assert made.out.splitlines()[-1] == (
        f"next: eval \"$(torchenv --root '{root}' activate)\", or torchenv --root '{root}' run -- COMMAND"
    )
    other = terminal.create("--again", "--root", root)
    assert other.out.splitlines()[-1].startswith(f"next: torchenv --root '{root}' run -e 2 -- ")
    assert terminal.start("--root", root, "run", "--", "python", "-c", "").code == 0


def test_what_is_shown_of_an_environment_tells_its_plan(terminal: Terminal) -> None:
    assert terminal.create().code == 0
    index = terminal.environ["TORCHENV_TORCH_INDEX"]
    lines = terminal.type("show", "1").out.splitlines()
    at = lines.index("plan: 2.15, as-requested: torch==2.15.0+cpu")
    assert lines[at + 1] == f"  for Python {PYTHON}, from {index}/cpu"


def test_what_was_scanned_is_judged_for_what_is_made_and_what_is_restored_later(
    terminal: Terminal, tmp_path: Path
) -> None:
    write_venv(tmp_path / "old", {"torch": "2.14.1+cpu"})
    assert terminal.type("adopt", tmp_path / "old").code == 0
    run = terminal.cwd / "runs" / "a"
    save(run / "step-100", "dcp-2.14.1")
    save(run / "step-200", "dcp-2.15.0")
    terminal.type("checkpoints", "scan", "runs")
    terminal.type("checkpoints", "keep", run / "step-100")

    assert terminal.create().code == 0
    assert terminal.type("list").out.splitlines()[-1].endswith("  2: reads it")
    assert terminal.type("remove", "2", "--offline").code == 0
    assert terminal.type("restore", "2").code == 0
    run_line = terminal.type("list").out.splitlines()[-1]
    assert run_line.endswith("  1: reads step-100 (100 steps behind)  2: reads it")
    kept = terminal.type("checkpoints", "verify", "--json").json["kept"]
    assert kept[0]["readable-by"] == [1, 2]


def test_a_refusal_as_json_is_the_plan_with_its_reasons(terminal: Terminal) -> None:
    ended = terminal.type("create", "2.15", "--host", HOSTS / "gtx-780.json", "--dry-run", "--json")
    assert ended.code == 3
    assert ended.json["outcome"] == "blocked"
    assert {item["code"] for item in ended.json["rejected"]} >= {"capability-unsupported"}
    assert ended.err.count("error: ") == 1
    assert not terminal.workspace.exists()


def test_a_dry_run_decides_and_changes_nothing(terminal: Terminal, index: Index) -> None:
    ended = terminal.create("--dry-run", "--json")
    assert (ended.code, ended.json["environment"]) == (0, NAME)
    assert index.wheels_fetched() == []
    assert not terminal.workspace.exists()


def test_paths_with_spaces_and_letters_of_every_kind_do(tmp_path: Path, index: Index) -> None:
    terminal = Terminal.within(tmp_path / "Ü ber größe" / "моя папка 'x' $HOME", index)
    ended = terminal.create("--json")
    assert ended.code == 0, ended.err
    assert ended.json["path"] == str(terminal.workspace / "envs" / f"1-{NAME}")
    script = terminal.cwd / "vérifie.py"
    script.write_text("import sys, torch; print(sys.prefix)", "utf-8")
    assert terminal.start("run", "-e", "1", "--", "python", script.name).out == f"{ended.json['path']}\n"


def test_an_encoding_that_lacks_a_letter_of_a_path_stops_nothing(tmp_path: Path, index: Index) -> None:
    terminal = Terminal.within(tmp_path / "größe", index)
    ended = terminal.create("--json", PYTHONIOENCODING="ascii")
    assert ended.code == 0, ended.err
    assert ended.json["path"] == str(terminal.workspace / "envs" / f"1-{NAME}")


# The environment in use.


def test_a_plan_that_equals_what_is_in_use_makes_nothing_and_says_so(terminal: Terminal) -> None:
    terminal.create()
    made = terminal.workspace / "envs" / f"1-{NAME}"
    shutil.copytree(made, terminal.cwd / ".venv", symlinks=True)
    shutil.rmtree(terminal.workspace)
    ended = terminal.create()
    assert (ended.code, ended.out) == (
        0,
        f"environment 1 ({NAME}) already has all of it: nothing was made (--again makes another)\n",
    )
    assert terminal.built() == []
    assert terminal.create("--json").json["kind"] == "adopted"


def test_the_first_environment_becomes_active_and_a_second_create_makes_nothing(terminal: Terminal) -> None:
    made = terminal.create()
    assert made.code == 0, made.err
    assert f"environment 1 ({NAME}) is now active" in made.out
    assert terminal.type("list", "--json").json["current"] == 1
    again = terminal.create()
    assert (again.code, again.out) == (
        0,
        f"environment 1 ({NAME}) already has all of it: nothing was made (--again makes another)\n",
    )
    assert "clearing" not in again.err
    assert terminal.built() == [f"1-{NAME}"]
    other = terminal.create("--again", "--json")
    assert other.code == 0, other.err
    assert (other.json["number"], other.json["name"]) == (3, f"{NAME}-3")
    # What is not active counts as well; another one is not made active unasked.
    assert terminal.type("list", "--json").json["current"] == 1
    assert terminal.type("use", "3").code == 0
    assert terminal.create().out.startswith(f"environment 3 ({NAME}-3) already has all of it")
    other_torch = terminal.cwd.parent / "other"
    write_venv(other_torch, {"torch": "2.14.1+cpu"})
    adopted = terminal.type("adopt", other_torch)
    assert adopted.code == 0
    assert terminal.type("use", "2.14.1").code == 0
    assert terminal.create().out.startswith(f"environment 3 ({NAME}-3) already has all of it")
    assert terminal.built() == [f"1-{NAME}", f"3-{NAME}-3"]


def test_where_smoke_commands_are_required_the_first_environment_waits_for_them(terminal: Terminal) -> None:
    profile = 'schema = 1\n[smoke]\nrequired = true\ncommands = [["python", "-c", "pass"]]\n'
    (terminal.cwd / "torchenv.toml").write_text(profile, "utf-8")
    ended = terminal.create()
    assert ended.code == 0, ended.err
    assert "not active yet: the profile requires its smoke commands" in ended.err
    assert terminal.type("list", "--json").json["current"] is None


@pytest.mark.parametrize("words", [("plan",), ("create", "--dry-run"), ("create",)], ids=" ".join)
def test_a_directory_that_no_environment_can_be_used_in_is_refused_first(
    terminal: Terminal, index: Index, words: tuple[str, ...]
) -> None:
    terminal.cwd = terminal.cwd.parent / "a:b"
    (terminal.cwd / ".git").mkdir(parents=True)
    ended = terminal.type(*words, "2.15", "--backend", "cpu", "--python", sys.executable)
    assert ended.code == 2
    assert "PATH is divided at each `:`" in ended.err
    assert index.requests == []
    chosen = ("2.15", "--backend", "cpu", "--python", sys.executable, "--root", terminal.cwd.parent / "w")
    assert terminal.type(*words, *chosen).code == 0


@pytest.mark.parametrize("place", ["workspace", "cache", "temporary"])
def test_a_disk_that_starts_no_program_is_found_before_anything_is_fetched(
    terminal: Terminal, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name in ("cache", "temporary"):
        (tmp_path / name).mkdir()
    mounted = terminal.cwd if place == "workspace" else tmp_path / place
    # A mount, which a test cannot make.
    monkeypatch.setattr("torchenv.actions.room.find_noexec", lambda path: path.is_relative_to(mounted))
    ended = terminal.create("--dry-run", TMPDIR=str(tmp_path / "temporary"))
    assert index.wheels_fetched() == []
    if place == "workspace":
        assert ended.code == 5
        assert f"programs cannot be started from {terminal.workspace / 'envs'}" in ended.err
        return
    assert ended.code == 0
    said = {
        "cache": f"note: the cache {mounted} is on a disk mounted with noexec",
        "temporary": f"note: {mounted} is mounted with noexec: torch.compile and builds from source fail",
    }
    assert said[place] in ended.err


def test_condas_base_is_named_and_not_touched(terminal: Terminal, tmp_path: Path) -> None:
    base = tmp_path / "miniforge3"
    site = base / "lib" / "python3.12" / "site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "version.py").write_text("__version__ = '2.6.0+cu124'\n", "utf-8")
    (base / "conda-meta").mkdir()
    (base / "conda-meta" / "python-3.12.4-h194c7f8_0_cpython.json").write_text("{}", "utf-8")
    (base / "bin").mkdir()
    before = fingerprint(describe(base))
    conda = {"CONDA_PREFIX": str(base), "CONDA_DEFAULT_ENV": "base", "CONDA_SHLVL": "1"}
    ended = terminal.create(**conda)
    assert ended.code == 0, ended.err
    assert f"note: conda's base environment {base} is active in this shell and is not touched\n" in ended.err
    assert f"active: {base} (conda); it is only read\n" in ended.err
    assert ": unchanged (every file compared)\n" in ended.out
    assert fingerprint(describe(base)) == before


def test_a_lock_of_uv_that_would_bring_another_torch_back_is_told_and_recorded(terminal: Terminal) -> None:
    lock = terminal.cwd / "uv.lock"
    lock.write_text('version = 1\n[[package]]\nname = "torch"\nversion = "2.15.0"\n', "utf-8")
    warning = (
        f"{lock} pins torch 2.15.0: `uv sync` installs that again, and so does every `uv run`;"
        " `uv run --no-sync` or UV_NO_SYNC=1 keeps what is there"
    )
    ended = terminal.create("--json")
    assert f"note: {warning}\n" in ended.err
    assert ended.json["choice"]["warnings"] == [warning]


# Other tools' settings.


def test_settings_of_pip_and_uv_do_not_steer_and_are_listed(
    terminal: Terminal, index: Index, tmp_path: Path
) -> None:
    conf = tmp_path / "machine" / "pip" / "pip.conf"
    conf.parent.mkdir(parents=True)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("torch<=2.14.1\n", "utf-8")
    conf.write_text(f"[global]\nextra-index-url = {NOBODY}/simple\nconstraint = {constraints}\n", "utf-8")
    uv = tmp_path / "home" / ".config" / "uv" / "uv.toml"
    uv.parent.mkdir(parents=True)
    uv.write_text(f'[[index]]\nurl = "{NOBODY}/simple"\ndefault = true\n', "utf-8")
    ended = terminal.create(
        "--json",
        PIP_EXTRA_INDEX_URL=f"{NOBODY}/cpu",
        PIP_INDEX_URL=f"{NOBODY}/simple",
        PIP_TARGET=str(tmp_path / "elsewhere"),
        PIP_REQUIRE_HASHES="1",
        PIP_USER="1",
        UV_INDEX_URL=f"{NOBODY}/simple",
        UV_DEFAULT_INDEX=f"{NOBODY}/simple",
        UV_EXTRA_INDEX_URL=f"{NOBODY}/simple",
        UV_FIND_LINKS=str(tmp_path),
        UV_CONSTRAINT=str(constraints),
        UV_TORCH_BACKEND="cu126",
        UV_PYTHON="3.9",
        UV_OFFLINE="1",
        UV_PROJECT_ENVIRONMENT=str(tmp_path / "elsewhere"),
        VIRTUAL_ENV=str(tmp_path / "elsewhere"),
        PYTHONPATH=str(tmp_path),
    )
    assert ended.code == 0, ended.err
    assert ended.json["torch"] == "2.15.0+cpu"
    assert ended.json["choice"]["ignored"] == [
        "PIP_EXTRA_INDEX_URL",
        "PIP_INDEX_URL",
        "PIP_REQUIRE_HASHES",
        "PIP_TARGET",
        "PIP_USER",
        "PYTHONPATH",
        "UV_CONSTRAINT",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
        "UV_FIND_LINKS",
        "UV_INDEX_URL",
        "UV_OFFLINE",
        "UV_PROJECT_ENVIRONMENT",
        "UV_PYTHON",
        "UV_TORCH_BACKEND",
        f"extra-index-url in {conf}",
        f"constraint in {conf}",
        f"index in {uv}",
    ]
    forbids = f"note: ignored, though it forbids what is planned: torch<=2.14.1 ({constraints})\n"
    assert forbids in ended.err
    assert "ignoring your PIP_EXTRA_INDEX_URL, PIP_INDEX_URL, " in ended.err
    assert not (tmp_path / "elsewhere").exists()


def test_an_error_that_an_ignored_setting_would_have_cured_names_it(terminal: Terminal, index: Index) -> None:
    (terminal.cwd / "torchenv.toml").write_text(
        'schema = 1\n[packages]\nrequirements = ["in-house"]\n', "utf-8"
    )
    ended = terminal.create(PIP_EXTRA_INDEX_URL="https://mirror.example/simple")
    assert ended.error == (
        4,
        (
            f"error: {index.packages} has no in-house\n"
            "hint: look at what the index lists, or choose another version or backend\n"
            "hint: set TORCHENV_PACKAGE_INDEX to use that index: your PIP_EXTRA_INDEX_URL is ignored here\n"
        ),
    )
    assert terminal.built() == []


def test_a_place_of_files_that_was_ignored_is_not_called_an_index(terminal: Terminal, tmp_path: Path) -> None:
    profile = terminal.cwd / "torchenv.toml"
    profile.write_text('schema = 1\n[packages]\nrequirements = ["in-house"]\n', "utf-8")
    wheel = Wheel(name="in-house", version="1.0")
    (tmp_path / wheel.file_name).write_bytes(wheel.content)
    ended = terminal.create(PIP_FIND_LINKS=str(tmp_path))
    remedy = "list `NAME @ file:///PATH` under [packages] requirements to use a file there"
    assert ended.err.endswith(f"\nhint: {remedy}: your PIP_FIND_LINKS is ignored here\n")
    address = f"in-house @ {(tmp_path / wheel.file_name).as_uri()}"
    profile.write_text(f'schema = 1\n[packages]\nrequirements = ["{address}"]\n', "utf-8")
    made = terminal.create(PIP_FIND_LINKS=str(tmp_path))
    assert made.code == 0, made.err


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "PIP_PROXY"])
def test_a_proxy_is_kept_by_whatever_name(terminal: Terminal, index: Index, name: str) -> None:
    terminal.environ |= {
        "TORCHENV_TORCH_INDEX": "http://mirror.example/whl",
        "TORCHENV_PACKAGE_INDEX": "http://mirror.example/simple",
    }
    ended = terminal.create("--json", **{name: index.root})
    assert ended.code == 0, ended.err
    assert ended.json["index"] == "http://mirror.example/whl/cpu"


def test_certificates_are_kept_and_a_file_of_them_that_is_gone_is_named(
    terminal: Terminal, tmp_path: Path
) -> None:
    gone = tmp_path / "corporate.pem"
    ended = terminal.create(PIP_CERT=str(gone))
    assert ended.error == (
        2,
        (
            f"error: the certificates in `{gone}` cannot be read: No such file or directory\n"
            "hint: set SSL_CERT_FILE, REQUESTS_CA_BUNDLE or PIP_CERT to a file of certificates\n"
        ),
    )


# Mirrors.


def test_the_profile_names_mirrors_and_a_variable_beats_it(terminal: Terminal, index: Index) -> None:
    del terminal.environ["TORCHENV_TORCH_INDEX"], terminal.environ["TORCHENV_PACKAGE_INDEX"]
    (terminal.cwd / "torchenv.toml").write_text(
        f'schema = 1\n[index]\ntorch = "{index.torch_root}"\npackages = "{index.packages}"\n', "utf-8"
    )
    assert terminal.create("--json").json["index"] == index.backend("cpu")
    lock = tomllib.loads((terminal.workspace / "locks" / "pylock.1.toml").read_text("utf-8"))
    assert {package["index"] for package in lock["packages"]} == {index.backend("cpu"), index.packages}

    ended = terminal.create(TORCHENV_PACKAGE_INDEX=f"{NOBODY}/simple")
    assert ended.code == 4
    assert ended.error[1].startswith(f"error: cannot reach {NOBODY}/simple/")


def test_a_login_in_the_users_netrc_opens_a_mirror(terminal: Terminal, index: Index, tmp_path: Path) -> None:
    index.login = ("u", "open-sesame")
    refused = terminal.create()
    assert refused.error == (
        4,
        (
            f"error: the index at {index.backend('cpu')}/torch/ asks for a login (401 Unauthorized)\n"
            "hint: write `machine 127.0.0.1 login NAME password TOKEN` into ~/.netrc,"
            " or store the login in keyring\n"
        ),
    )
    netrc = tmp_path / "home" / ".netrc"
    netrc.write_text("machine 127.0.0.1 login u password open-sesame\n", "utf-8")
    netrc.chmod(0o600)
    ended = terminal.create("--json")
    assert ended.code == 0, ended.err
    kept = [path for path in terminal.workspace.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert not any(b"open-sesame" in path.read_bytes() for path in kept)


def test_a_file_that_is_not_the_listed_one_is_refused(terminal: Terminal, index: Index) -> None:
    tag = f"cp{MINOR.replace('.', '')}"
    index.damage(f"torch-2.15.0+cpu-{tag}-{tag}-manylinux_2_28_x86_64.whl")
    ended = terminal.create()
    code, said = ended.error
    assert code == 4
    assert said.startswith("error: torch==2.15.0+cpu is not the file that was locked: expected sha256 ")
    assert said.endswith("hint: find out whether it was damaged on its way or replaced on the index\n")
    assert terminal.built() == []


def test_without_the_network_an_empty_cache_is_named(terminal: Terminal, index: Index) -> None:
    ended = terminal.create("--offline")
    assert ended.error == (
        4,
        (
            "error: --offline: the cache does not hold torch\n"
            "hint: run it once without --offline, or bring UV_CACHE_DIR of a machine that has it\n"
        ),
    )
    assert index.requests == []


def test_without_the_network_pip_is_refused(terminal: Terminal) -> None:
    assert terminal.create("--offline", "--installer", "pip").error == (
        2,
        (
            "error: pip cannot install from a cache alone, as --offline asks\n"
            "hint: leave out --offline or `--installer pip`\n"
        ),
    )


def test_pip_installs_the_same_lock(terminal: Terminal) -> None:
    ended = terminal.create("--json", "--installer", "pip")
    assert ended.code == 0, ended.err
    code = "import torch; print(torch.__version__)"
    assert terminal.start("run", "-e", "1", "--", "python", "-c", code).out == "2.15.0+cpu\n"


# The interpreter, and another machine.


def test_an_interpreter_is_found_by_its_path_alone(terminal: Terminal) -> None:
    link = terminal.cwd / "my python" / "python"
    link.parent.mkdir()
    link.symlink_to(Path(sys.executable).resolve())
    ended = terminal.type(
        "create", "2.15", "--backend", "cpu", "--python", "my python/python", "--json", PATH=""
    )
    assert ended.code == 0, ended.err
    assert ended.json["python"]["path"] == str(link)


def test_a_machine_that_is_described_is_built_for_here_and_stays_unproven(terminal: Terminal) -> None:
    ended = terminal.type(
        "create", "2.15", "--host", HOSTS / "rtx-4090-driver-580.json", "--python", sys.executable
    )
    assert ended.code == 0, ended.err
    assert "made environment 1 (2.15.0-cu132-" in ended.out
    assert "  untested until run on a GPU\n" in ended.out


def test_a_machine_of_another_kind_is_only_planned_for(terminal: Terminal) -> None:
    file = HOSTS / "m2-macos-15.json"
    assert terminal.type("create", "2.15", "--host", file).error == (
        2,
        (
            f"error: {file} describes darwin-arm64, and this machine is linux-x86_64\n"
            f"hint: look at the plan for it with `torchenv plan --host {file}`, and create it there\n"
        ),
    )
    assert not terminal.workspace.exists()


# Names for people, and what a workspace brings along.


def test_a_name_for_people_is_listed_with_its_torch_and_found_again(terminal: Terminal) -> None:
    ended = terminal.create("--name", "baseline")
    assert ended.code == 0, ended.err
    assert terminal.built() == ["1-baseline"]
    assert "  baseline (torch 2.15.0+cpu)  " in terminal.type("list").out
    assert terminal.type("show", "baseline", "--json").json["number"] == 1
    assert terminal.create("--name", "baseline").error == (
        2,
        (
            "error: the name `baseline` belongs to environment 1\n"
            "hint: choose another --name, or look at that one with `torchenv show 1`\n"
        ),
    )


@pytest.mark.parametrize("name", ["2.15", "3", "a/b", "../up"])
def test_a_name_that_would_be_taken_for_something_else_makes_nothing(terminal: Terminal, name: str) -> None:
    assert terminal.create("--name", name).code == 2
    assert terminal.built() == []


def test_git_sees_nothing_of_a_workspace_until_a_person_decides_otherwise(terminal: Terminal) -> None:
    terminal.create()
    ignored = terminal.workspace / ".gitignore"
    assert ignored.read_text() == "*\n"
    ignored.unlink()
    assert terminal.type("use", "1").code == 0
    assert not ignored.exists()
