"""An environment as one file: it starts wherever its Python is, or says what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.support.workspace import Workspace

from torchenv.actions.switch import use
from torchenv.errors import InputError
from torchenv.system.packfile import PackFacts, write_pack
from torchenv.system.process import Programs

SOURCE = Path(__file__).parents[2] / "src"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="packs are for clusters, whose nodes are POSIX ones")


def needs(*programs: str) -> pytest.MarkDecorator:
    lacking = [name for name in programs if shutil.which(name) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"there is no {', '.join(lacking)} here")


KINDS = [
    pytest.param("tar.zst", marks=needs("zstd")),
    pytest.param("squashfs", marks=needs("sqfstar", "unsquashfs")),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "a project")
    home = Path(workspace.built("2.15.0+cpu").path)
    use("1", workspace.store, workspace.outside)
    (home / "bin" / "python3").symlink_to("python")
    script(home / "bin" / "hello", f"#!{home}/bin/python3\n")
    script(home / "bin" / "long", f"#!/bin/sh\n'''exec' '{home}/bin/python' \"$0\" \"$@\"\n' '''\n")
    script(home / "bin" / "activate", f"VIRTUAL_ENV='{home}'\n")
    return workspace


def script(path: Path, first: str) -> None:
    path.write_text(f"{first}import sys, torch\nprint(sys.prefix, torch.__version__)\n", "utf-8")
    path.chmod(0o755)


def start(
    workspace: Workspace, *words: str, path: str | None = None, **variables: str
) -> subprocess.Popen[str]:
    environ = {"PATH": path or os.environ["PATH"], "HOME": str(workspace.directory)}
    environ |= {"PYTHONPATH": str(SOURCE), "TMPDIR": str(workspace.directory.parent / "node")}
    environ |= variables
    return subprocess.Popen(
        [sys.executable, "-m", "torchenv", "--root", str(workspace.store.root), *words],
        cwd=workspace.directory.parent,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def torchenv(
    workspace: Workspace, *words: str, path: str | None = None, **variables: str
) -> tuple[int, str, str]:
    process = start(workspace, *words, path=path, **variables)
    out, err = process.communicate()
    return process.returncode, out.strip(), err.strip()


def unpacked(workspace: Workspace) -> list[Path]:
    place = workspace.directory.parent / "node" / f"torchenv-packed-{os.getuid()}"
    return sorted(path for path in place.iterdir() if path.is_dir())


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_environment_starts_from_the_disk_of_the_node_without_the_original(
    workspace: Workspace, kind: str
) -> None:
    home = Path(workspace.store.read().number(1).path)
    code, out, err = torchenv(workspace, "pack", "1", f"env.{kind}")
    assert code == 0, err
    assert f"next: torchenv run --packed env.{kind} -- python train.py" in out
    # Its modules are compiled, so that no node does it again.
    assert list(home.rglob("torch/__pycache__/*.pyc"))
    home.rename(home.with_name("gone"))

    for name in ("hello", "long"):
        code, out, err = torchenv(workspace, "run", "--packed", f"env.{kind}", "--", name)
        assert code == 0, err
        (directory,) = unpacked(workspace)
        assert out == f"{directory} 2.15.0+cpu"
    assert not (directory / "bin" / "activate").exists()
    code, _, err = torchenv(workspace, "run", "--packed", f"env.{kind}", "--", "python", "-c", "exit(7)")
    assert (code, err) == (7, "")


@needs("zstd")
def test_links_lead_to_the_same_wherever_it_is_unpacked(workspace: Workspace, tmp_path: Path) -> None:
    home = Path(workspace.store.read().number(1).path)
    (home / "bin" / "python").unlink()
    (tmp_path / "base").symlink_to(sys.executable)
    (home / "bin" / "python").symlink_to(os.path.relpath(tmp_path / "base", home / "bin"))
    (home / "bin" / "python3").unlink()
    (home / "bin" / "python3").symlink_to(home / "bin" / "python")
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    home.rename(home.with_name("gone"))
    words = ("run", "--packed", "env.tar.zst", "--", "hello")
    code, out, err = torchenv(workspace, *words)
    assert code == 0, err
    (directory,) = unpacked(workspace)
    assert out == f"{directory} 2.15.0+cpu"
    assert (directory / "bin" / "python").readlink() == tmp_path / "base"
    assert (directory / "bin" / "python3").readlink() == Path("python")


@needs("zstd")
def test_of_several_that_start_at_once_one_unpacks(workspace: Workspace) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    command = ("run", "--packed", "env.tar.zst", "--", "hello")
    started = [start(workspace, *command) for _ in range(4)]
    answers = [process.communicate() for process in started]
    assert [out.split()[-1:] for out, _ in answers] == [["2.15.0+cpu"]] * 4, answers
    assert sum("unpacking" in err for _, err in answers) == 1
    assert len(unpacked(workspace)) == 1


@needs("zstd")
def test_what_a_killed_run_or_a_tidy_system_left_is_unpacked_anew(workspace: Workspace) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    command = ("run", "--packed", "env.tar.zst", "--", "hello")
    assert torchenv(workspace, *command)[0] == 0
    (directory,) = unpacked(workspace)
    (directory / "pyvenv.cfg").unlink()
    directory.with_name(f"{directory.name}.new-1").mkdir()
    code, out, err = torchenv(workspace, *command)
    assert (code, out) == (0, f"{directory} 2.15.0+cpu"), err
    assert unpacked(workspace) == [directory]


@pytest.mark.parametrize("kind", KINDS)
def test_a_pack_says_what_it_is_without_being_unpacked(workspace: Workspace, kind: str) -> None:
    code, out, _ = torchenv(workspace, "pack", "1", f"env.{kind}", "--json")
    document = json.loads(out)
    assert code == 0
    schema = json.loads((SOURCE.parent / "docs" / "schemas" / "torchenv.pack-1.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(document)
    path = workspace.directory.parent / f"env.{kind}"
    facts = PackFacts.read(path)
    assert document == {**facts.to_document(), "path": str(path), "size": path.stat().st_size}
    assert (facts.torch, facts.interpreter) == ("2.15.0+cpu", sys.executable)


@needs("zstd")
@pytest.mark.parametrize("kept", [0.999, 0.5, 0])
def test_a_pack_that_was_cut_or_is_none_is_refused(workspace: Workspace, kept: float) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    path = workspace.directory.parent / "env.tar.zst"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    code, _, err = torchenv(workspace, "run", "--packed", "env.tar.zst", "--", "python")
    assert code == 2
    assert "is not a pack, or was cut short" in err


@needs("zstd")
def test_a_damaged_pack_leaves_nothing_that_another_run_takes(workspace: Workspace) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    path = workspace.directory.parent / "env.tar.zst"
    content = bytearray(path.read_bytes())
    content[500:600] = bytes(100)
    path.write_bytes(content)
    code, _, err = torchenv(workspace, "run", "--packed", "env.tar.zst", "--", "python")
    assert code in (2, 4), err
    assert "env.tar.zst" in err
    assert unpacked(workspace) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pack", "1", "env.tar.zst"), "there is no program `zstd` on this machine"),
        (("pack", "1", "env.squashfs"), "there is no program `sqfstar` on this machine"),
        (("pack", "1", "env.zip"), "`env.zip` is not the name of a pack"),
    ],
)
def test_a_machine_that_lacks_a_program_is_told_which(
    workspace: Workspace, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    code, _, err = torchenv(workspace, *words, path=str(tmp_path / "empty"))
    assert code == (2 if "zip" in said else 4)
    assert said.replace("env.zip", str(tmp_path / "env.zip")) in err
    assert "hint: " in err


@needs("zstd")
def test_nothing_is_packed_over_a_file_that_is_there(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "env.tar.zst").write_text("mine", "utf-8")
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 2
    assert (tmp_path / "env.tar.zst").read_text("utf-8") == "mine"
    (tmp_path / "link.tar.zst").symlink_to("/not/mounted/now")
    assert torchenv(workspace, "pack", "1", "link.tar.zst")[0] == 2
    assert (tmp_path / "link.tar.zst").is_symlink()


@needs("zstd")
def test_what_appears_under_the_name_of_a_pack_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "env.tar.zst"
    (tmp_path / "env").mkdir()

    def describe(digest: str, files: int, size: int) -> PackFacts:
        path.write_text("of another", "utf-8")
        return PackFacts(
            id=digest,
            environment="a",
            torch=None,
            python="3",
            interpreter="/p",
            platform="l",
            files=files,
            bytes=size,
        )

    with pytest.raises(InputError) as raised:
        write_pack(path, tmp_path / "env", Programs(dict(os.environ)), lambda _, content: content, describe)
    assert str(raised.value) == f"`{path}` already exists"
    assert path.read_text("utf-8") == "of another"
    assert sorted(tmp_path.iterdir()) == [tmp_path / "env", path]


@needs("zstd")
@pytest.mark.parametrize("name", ["", "..", "mine", "../../mine"])
def test_a_pack_that_names_a_directory_of_the_user_is_refused(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    content = (tmp_path / "env.tar.zst").read_bytes()
    digest = PackFacts.read(tmp_path / "env.tar.zst").id
    padded = f'"{name}"'.encode().ljust(len(digest) + 2)
    (tmp_path / "env.tar.zst").write_bytes(content.replace(f'"{digest}"'.encode(), padded))
    place = tmp_path / "below" / "place"
    for kept in (tmp_path / "mine" / "file", place / "mine" / "file", tmp_path / "below" / "file"):
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("mine", "utf-8")
    before = sorted(tmp_path.rglob("file"))
    words = ("run", "--packed", "env.tar.zst", "--unpack-in", str(place), "--", "python", "-V")
    code, _, err = torchenv(workspace, *words)
    assert (code, sorted(tmp_path.rglob("file"))) == (2, before), err
    assert "is not a sha256" in err


@needs("zstd")
def test_a_pack_for_another_machine_or_without_its_python_is_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    path = tmp_path / "env.tar.zst"
    for old, new, said in (
        (b'"linux-x86_64"', b'"linux-riscv0"', "is for linux-riscv0"),
        (sys.executable.encode(), b"/nowhere" + b"x" * (len(sys.executable) - 8), "is not on this machine"),
    ):
        content = path.read_bytes()
        assert old in content
        (tmp_path / "other.tar.zst").write_bytes(content.replace(old, new))
        code, _, err = torchenv(workspace, "run", "--packed", "other.tar.zst", "--", "python")
        assert code == 3
        assert said in err


@needs("zstd")
def test_a_directory_that_others_can_change_is_not_unpacked_in(workspace: Workspace, tmp_path: Path) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    words = ("run", "--packed", "env.tar.zst", "--unpack-in", "open", "--", "python")
    code, _, err = torchenv(workspace, *words)
    assert code == 5
    assert f"`{tmp_path / 'open'}` can be changed by other users" in err


@needs("zstd")
def test_a_place_is_taken_as_the_user_means_it(workspace: Workspace, tmp_path: Path) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    pack = ("run", "--packed", "env.tar.zst")
    look = (
        "--",
        "python",
        "-c",
        "import os, sys; print(os.environ['VIRTUAL_ENV'] == sys.prefix, sys.prefix)",
    )

    # The user's own link leads to another disk.
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("disk")
    code, out, err = torchenv(workspace, *pack, "--unpack-in", "link", *look)
    assert (code, out.rpartition("/")[0]) == (0, f"True {tmp_path / 'disk'}"), err

    # A program may go to another directory, where a relative PATH leads elsewhere.
    code, out, err = torchenv(workspace, *pack, *look, TMPDIR="relative")
    assert (code, out.rpartition("/torchenv-packed")[0]) == (0, f"True {tmp_path / 'relative'}"), err

    code, _, err = torchenv(workspace, *pack, "--unpack-in", "a:b", *look)
    said = f"error: an environment cannot be activated in `{tmp_path / 'a:b'}`: PATH is divided at each `:`"
    assert (code, err.splitlines()[0]) == (2, said)
    assert "hint: name another directory with --unpack-in DIR" in err
    assert not (tmp_path / "a:b").exists()

    code, _, err = torchenv(workspace, "run", "--packed", "disk", *look)
    assert (code, err.splitlines()[0]) == (2, "error: `disk` is not a file")


@needs("zstd")
def test_the_hint_to_run_another_python_stays_in_the_pack(workspace: Workspace, tmp_path: Path) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    script(tmp_path / "accelerate", f"#!{sys.executable}\n")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    code, _, err = torchenv(
        workspace, "run", "--packed", "env.tar.zst", "--unpack-in", "node", "--", "accelerate", path=path
    )
    assert code == 3
    assert "run --packed=env.tar.zst --unpack-in=node --outside -- accelerate`" in err


@needs("zstd")
def test_a_pack_that_cannot_be_written_is_an_error_of_the_user(workspace: Workspace, tmp_path: Path) -> None:
    # Its name is as long as one may be, and the unfinished file beside it has a longer one.
    name = f"{'e' * 244}.tar.zst"
    code, _, err = torchenv(workspace, "pack", "1", name)
    said = f"error: `{tmp_path / name}` cannot be written: File name too long"
    assert (code, said in err) == (2, True), err


@needs("sqfstar", "squashfuse", "fusermount3")
@pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="there is no /dev/fuse here")
def test_a_squashfs_is_mounted_for_as_long_as_the_command_runs(workspace: Workspace) -> None:
    assert torchenv(workspace, "pack", "1", "env.squashfs")[0] == 0
    code, out, err = torchenv(workspace, "run", "--packed", "env.squashfs", "--mount", "--", "hello")
    assert code == 0, err
    mounted, version = out.split(" ")
    assert version == "2.15.0+cpu"
    assert not Path(mounted).exists()


@needs("zstd")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--packed", "env.tar.zst", "--mount"), "cannot be mounted"),
        (("--packed", "env.tar.zst", "-e", "1"), "`-e` and `--packed` exclude each other"),
        (("--packed", "env.tar.zst", "--write-for", "2.14"), "`--write-for` does not reach"),
        (("--packed", "none.tar.zst"), "`none.tar.zst` does not exist"),
    ],
)
def test_what_a_pack_cannot_do_is_refused(workspace: Workspace, words: tuple[str, ...], said: str) -> None:
    assert torchenv(workspace, "pack", "1", "env.tar.zst")[0] == 0
    code, _, err = torchenv(workspace, "run", *words, "--", "python")
    assert code == 2
    assert said in err
