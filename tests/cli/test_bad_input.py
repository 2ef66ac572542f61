"""Whatever is wrong with the input is one line that names it, one that says what to do, and an exit code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.terminal import Terminal

HOST = Path(__file__).parents[1] / "data" / "hosts" / "rtx-4090-driver-580.json"


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal.within(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("creat 2.15", "command `creat` not found\nhint: did you mean `create`?"),
        ("xyz", "command `xyz` not found\nhint: list the commands with `torchenv --help`"),
        (
            "create --bakend cpu",
            "unexpected argument `--bakend` for `torchenv create`\nhint: did you mean `--backend`?",
        ),
        (
            "create 2.15 2.14",
            "unexpected argument `2.14` for `torchenv create`\nhint: see `torchenv create --help`",
        ),
        (
            "create --root",
            "`--root` needs a value\nhint: see `torchenv create --help`",
        ),
        ("create 2.51", "torch 2.51 is not in the catalogue\nhint: did you mean `2.15`?"),
        (
            "create newest",
            (
                "`newest` is not a torch version\n"
                "hint: write a version (2.15.0), a line (2.15), a range (>=2.14,<2.16) or `latest`"
            ),
        ),
        (
            "create 2.15 --backend cu1322",
            (
                "`cu1322` is not a backend of any release\n"
                "hint: did you mean `cu132`? torch 2.15.0 has cu132, cu134"
            ),
        ),
        (
            "create 2.15 --backend opencl",
            (
                "`opencl` is not a backend of any release\n"
                "hint: name one of cu132, cu134, rocm7.14, rocm10.0, xpu, cpu of torch 2.15.0"
            ),
        ),
        (
            "create 2.15 --backend cu999",
            "`cu999` is not a backend of any release\nhint: name one of cu132, cu134 of torch 2.15.0",
        ),
        (
            "create 2.15 --backend nvidia",
            (
                "`nvidia` is not a backend of any release\n"
                "hint: leave out --backend to have one chosen for this machine's GPU,"
                " or name one of cu132, cu134 of torch 2.15.0"
            ),
        ),
        (
            "create 2.15.0+cu134 --backend cpu",
            (
                "`2.15.0+cu134` and `--backend cpu` name two backends\n"
                "hint: leave out `--backend cpu`, or write the version as `2.15.0`"
            ),
        ),
        (
            "create --offline --online",
            "unexpected argument `--online` for `torchenv create`\nhint: use it with `torchenv plan`",
        ),
        (
            "plan --offline --online",
            "`--offline` and `--online` exclude each other\nhint: leave one of them out",
        ),
        (
            "plan --use",
            (
                "unexpected argument `--use` for `torchenv plan`\n"
                "hint: use it with `torchenv create` or `torchenv sync`"
            ),
        ),
        (
            "plan --prefer newst",
            "`newst` is not a value of `--prefer`\nhint: did you mean `newest`?",
        ),
        ("checkpoints scn", "`torchenv checkpoints scn` not found\nhint: did you mean `scan`?"),
        ("help creat", "command `creat` not found\nhint: did you mean `create`?"),
        (
            "--profile finetune plan",
            "`--profile` must come after the command\nhint: write `torchenv plan --profile finetune`",
        ),
        (
            "create --devices one",
            "--devices `one` is not a list of numbers\nhint: write --devices 0,1, or none",
        ),
        (
            "create --devices 3",
            "--devices 3 names no device of this host\nhint: name some of 0 (NVIDIA GeForce RTX 4090)",
        ),
        (
            "create --capability ada",
            "--capability `ada` is not a compute capability\nhint: write --capability 8.9",
        ),
        ("create --profile finetun", "profile `finetun` not found\nhint: did you mean `finetune`?"),
        (
            "show ../..",
            "environment `../..` not found\nhint: list the environments with `torchenv list`",
        ),
    ],
)
def test_a_word_that_means_nothing_is_named(terminal: Terminal, words: str, said: str) -> None:
    host = ("--host", HOST) if words.startswith("create") else ()
    ended = terminal.type(*words.split(), *host)
    assert (ended.code, ended.out, ended.err) == (2, "", f"error: {said}\n")
    assert left_in(terminal) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[torch]\nversion = "2.15"\n', "schema is missing"),
        (
            "schema = 7\n",
            "schema: is 7, and this torchenv reads 1\nhint: a newer torchenv wrote it: upgrade torchenv",
        ),
        (
            'schema = 1\n[torch]\nverson = "2.15"\n',
            "torch.verson is not a setting\nhint: did you mean `version`?",
        ),
        ("schema = 1\n[troch]\n", "troch is not a setting\nhint: did you mean `torch`?"),
        ("schema = 1\n[torch]\nversion = 2.15\n", "torch.version: must be a string, not a number"),
        (
            'schema = 1\n[torch]\npackages = "torchvision"\n',
            "torch.packages: must be a list, not the string `torchvision`",
        ),
        (
            'schema = 1\n[backend]\nprefer = "newst"\n',
            "backend.prefer: `newst` is not one of default, newest\nhint: did you mean `newest`?",
        ),
        (
            'schema = 1\nname = "../../elsewhere"\n',
            ("name: `../../elsewhere` is not a name\nhint: use lower-case letters, digits and hyphens"),
        ),
        (
            'schema = 1\n[index]\ntorch = "mirror.example/whl"\n',
            "index.torch: `mirror.example/whl` is not an address that begins with https:// or file://",
        ),
    ],
)
def test_a_mistake_in_a_profile_is_named_by_file_and_key(terminal: Terminal, text: str, said: str) -> None:
    (terminal.cwd / "train.toml").write_text(text, "utf-8")
    ended = terminal.type("create", "2.15", "--profile", "train.toml", "--host", HOST)
    assert (ended.code, ended.out, ended.err) == (2, "", f"error: train.toml: {said}\n")
    assert left_in(terminal) == ["train.toml"]


def test_a_profile_that_is_no_toml_is_named_with_the_line(terminal: Terminal) -> None:
    (terminal.cwd / "train.toml").write_text("schema = 1\n[torch\n", "utf-8")
    ended = terminal.type("create", "2.15", "--profile", "train.toml", "--host", HOST)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: train.toml: not valid TOML: ")
    assert "line 2" in ended.err


def test_a_typo_in_the_projects_own_file_is_named(terminal: Terminal) -> None:
    (terminal.cwd / "torchenv.toml").write_text('schema = 1\n[torch]\nverson = "2.15"\n', "utf-8")
    ended = terminal.type("create", "--host", HOST)
    assert ended.error == (
        2,
        "error: torchenv.toml: torch.verson is not a setting\nhint: did you mean `version`?\n",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HOST.read_text("utf-8")[:300],
            "not valid JSON: ",
        ),
        ("[]", "the document is a list, not an object\n"),
        ("{}", "schema is missing\n"),
        ('{"schema": "torchenv.host/9"}', "schema: "),
        (
            '{"schema": "torchenv.host/1", "machine": "x86_64", "system": 5}',
            "system: must be a string, not a whole number\n",
        ),
        (
            HOST.read_text("utf-8").replace('"found"', '"maybe"', 1),
            "nvidia.status: `maybe` is not one of found, absent, unreadable\n",
        ),
    ],
)
def test_a_broken_host_file_is_named(terminal: Terminal, text: str, said: str) -> None:
    (terminal.cwd / "node.json").write_text(text, "utf-8")
    ended = terminal.type("create", "2.15", "--host", "node.json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: node.json: {said}")
    assert left_in(terminal) == ["node.json"]


def test_a_file_that_is_not_there_is_named(terminal: Terminal) -> None:
    assert terminal.type("plan", "--host", "node.json").error == (
        2,
        f"error: the host file {terminal.cwd / 'node.json'} cannot be read: No such file or directory\n",
    )
    assert terminal.type("plan", "--profile", "train.toml").error == (
        2,
        f"error: the profile {terminal.cwd / 'train.toml'} cannot be read: No such file or directory\n",
    )


def test_a_backend_whose_name_would_leave_the_workspace_is_refused(terminal: Terminal) -> None:
    (terminal.cwd / "own.toml").write_text(
        'schema = 1\n[[release]]\nversion = "2.15.0"\n[release.default]\ncpu = "../../../elsewhere"\n'
        '[[release.backend]]\ntag = "../../../elsewhere"\nkind = "cpu"\n'
        'platforms = ["linux-x86_64"]\ncertainty = "inferred"\nsource = "a test"\n',
        "utf-8",
    )
    ended = terminal.type("create", "2.15", "--catalogue", "own.toml", "--backend", "../../../elsewhere")
    assert ended.code == 2
    assert ended.err.startswith(f"error: {terminal.cwd / 'own.toml'}, over the packaged catalogue.toml: ")
    assert ended.err.endswith("tag: `../../../elsewhere` cannot name a backend\n")
    assert left_in(terminal) == ["own.toml"]


def test_no_interpreter_and_no_network_says_what_would_help(terminal: Terminal) -> None:
    ended = terminal.type("create", "2.15", "--backend", "cpu", "--offline", PATH="")
    assert ended.error == (
        3,
        (
            "error: nothing was made: torch 2.15.0 (cpu): no Python was found on this host,"
            " and none may be fetched\n"
            "hint: install one of Python 3.11, 3.12, 3.13, 3.14, 3.15;"
            " with the network and without --offline, one is fetched\n"
        ),
    )
    assert left_in(terminal) == []


def test_an_interpreter_that_is_named_and_not_there_is_named_by_its_whole_path(terminal: Terminal) -> None:
    ended = terminal.type("create", "2.15", "--backend", "cpu", "--python", "py/bin/python")
    assert ended.code == 3
    named = terminal.cwd / "py/bin/python"
    assert f"error: nothing was made: torch 2.15.0 (cpu): {named} is not a Python that runs here\n" in (
        ended.err
    )


def test_a_workspace_that_cannot_be_made_is_named(terminal: Terminal) -> None:
    (terminal.cwd / "file").write_text("", "utf-8")
    ended = terminal.type("adopt", "nowhere", "--root", "file/workspace")
    assert ended.code == 2
    host = ("--host", HOST.with_name("cpu-only-linux.json"))
    ended = terminal.type("create", "2.15", "--root", "file/workspace", "--offline", *host)
    assert ended.error == (
        5,
        (
            f"error: {terminal.cwd}/file/workspace/manifest.toml: Not a directory\n"
            "hint: choose another place with `--root DIR` or TORCHENV_HOME\n"
        ),
    )
    assert left_in(terminal) == ["file"]


def test_where_the_home_cannot_be_written_the_cache_falls_beside_the_workspace(terminal: Terminal) -> None:
    (terminal.cwd / "file").write_text("", "utf-8")
    del terminal.environ["UV_CACHE_DIR"]
    home = terminal.cwd / "file" / "home"
    host = ("--host", HOST.with_name("cpu-only-linux.json"))
    ended = terminal.type("create", "2.15", "--offline", *host, HOME=str(home))
    assert f"{home}/.cache/uv" in ended.err
    assert ended.error == (
        4,
        (
            "error: --offline: the cache does not hold torch\n"
            "hint: run it once without --offline, or bring UV_CACHE_DIR of a machine that has it\n"
        ),
    )
    assert terminal.built() == []


def test_a_directory_that_is_gone_is_said_to_be_gone(terminal: Terminal) -> None:
    gone = terminal.cwd / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *terminal.argv("list")],
        env=terminal.environ,
        cwd=terminal.cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        2,
        "error: the current directory no longer exists\nhint: change to one that does\n",
    )


def left_in(terminal: Terminal) -> list[str]:
    return sorted(path.name for path in terminal.cwd.iterdir() if path.name != ".git")


def test_a_build_is_named_as_torch_and_torchenv_write_it(terminal: Terminal) -> None:
    planned = terminal.type("plan", "2.15.0+cu134", "--host", HOST, "--json").json
    assert (planned["torch"], planned["backend"]) == ("2.15.0", "cu134")


def test_a_directory_to_copy_that_does_not_exist_is_named_as_one(terminal: Terminal) -> None:
    (terminal.cwd / ".venv-old").mkdir()
    (terminal.cwd / ".venv-old" / "pyvenv.cfg").write_text("", "utf-8")
    for named in (".venv", "./.venv", str(terminal.cwd / ".venv")):
        ended = terminal.type("create", "2.15", "--offline", "--like", named)
        said = f"error: `{terminal.cwd / '.venv'}` does not exist\nhint: did you mean `.venv-old`?\n"
        assert ended.error == (2, said)


def test_an_environment_beside_the_name_that_was_typed_is_named(terminal: Terminal) -> None:
    (terminal.cwd / ".venv").mkdir()
    (terminal.cwd / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n", "utf-8")
    ended = terminal.type("create", "--like", ".vnev", "--dry-run", "--offline", "--host", HOST)
    assert (ended.code, ended.err.splitlines()[-1]) == (2, "hint: did you mean `.venv`?")


@pytest.mark.parametrize("words", ["help plan", "plan --help", "help checkpoints scan"])
def test_help_is_a_command_too(terminal: Terminal, words: str) -> None:
    ended = terminal.type(*words.split())
    name = " ".join(word for word in words.split() if word not in {"help", "--help"})
    assert (ended.code, ended.out.startswith(f"usage: torchenv {name} ")) == (0, True)
    assert terminal.type("version").out == terminal.type("--version").out


@pytest.mark.parametrize(
    "words",
    [
        ("use", "1"),
        ("rollback",),
        ("rollback", "1"),
        ("remove", "1"),
        ("prune",),
        ("restore", "1"),
        ("forget", "1"),
        ("commit",),
        ("upgrade", "--abort"),
        ("verify",),
        ("smoke", "1"),
        ("run", "-e", "1", "--", "true"),
        ("activate",),
        ("pack", "1"),
        ("diff", "1", "2"),
        ("status",),
        ("list",),
        ("checkpoints", "verify"),
        ("checkpoints", "keep", "nowhere"),
        ("checkpoints", "keep", "--release", "x"),
    ],
)
def test_what_has_nothing_to_change_makes_no_workspace(
    terminal: Terminal, tmp_path: Path, words: tuple[str, ...]
) -> None:
    there = tmp_path / "new"
    ended = terminal.type("--root", there, *words)
    assert ended.code in (0, 1, 2, 3, 5), ended.err
    assert not there.exists()


@pytest.mark.parametrize("words", [(), ("--from", "requirements.txt"), ("--profile", "inference")])
def test_a_profile_that_is_there_stays_and_the_hint_puts_it_aside(
    terminal: Terminal, words: tuple[str, ...]
) -> None:
    (terminal.cwd / "requirements.txt").write_text("torch==2.15.0\n")
    profile = terminal.cwd / "torchenv.toml"
    profile.write_text("schema = 1\n")
    (terminal.cwd / "torchenv.toml.old").write_text("of yesterday\n")
    ended = terminal.type("init", *words)
    assert (ended.code, profile.read_text()) == (2, "schema = 1\n")
    # Nothing else is said of what is not done.
    assert ended.err.startswith("error: ")
    subprocess.run(ended.err.split("`")[-2], shell=True, check=True)
    assert (terminal.cwd / "torchenv.toml.old2").read_text() == "schema = 1\n"
    assert terminal.type("init", *words).code == 0


@pytest.mark.parametrize("option", [("--mount",), ("--unpack-in", "there")])
def test_an_option_for_packs_asks_for_a_pack(terminal: Terminal, option: tuple[str, ...]) -> None:
    ended = terminal.type("run", *option, "--", "python", "-V")
    assert (ended.code, ended.err) == (
        2,
        f"error: `{option[0]}` is for a pack\nhint: name one with `--packed FILE`\n",
    )


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (("create", "2.15", "-r", "requirements.txt"), "--from"),
        (("create", "2.15", "--requirement=requirements.txt"), "--from"),
        (("create", "2.15", "-p", "3.12"), "--python"),
        (("create", "-n", "mine"), "--name"),
        (("plan", "2.15", "--torch-backend", "auto"), "--backend"),
        (("init", "--requirements", "requirements.txt"), "--from"),
    ],
)
def test_the_names_that_other_tools_have_for_an_option_are_known(
    terminal: Terminal, words: tuple[str, ...], own: str
) -> None:
    ended = terminal.type(*words)
    assert ended.code == 2
    assert ended.err.endswith(f"hint: use `{own}`\n")
