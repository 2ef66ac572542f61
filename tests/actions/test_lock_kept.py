"""The pins and hashes of a lock survive whatever happens to the files that can still be read."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.index import Index
from tests.support.project import PAIR, Project
from tests.support.wheels import Wheel

from torchenv.lockfile.lock import Lock


@pytest.fixture
def pair(index: Index, team: Project) -> Project:
    """A project with two targets that are locked, on an index that has something newer since."""
    team.write("torchenv.toml", PAIR.replace("{root}", index.root))
    done = team.run("lock")
    assert done.code == 0, done.said
    index.add("simple", Wheel(name="numpy", version="2.9.0"), Wheel(name="filelock", version="3.99.0"))
    return team


def versions(pair: Project, target: str = "ci") -> dict[str, str]:
    return dict(Lock.parse(pair.read(f"pylock.{target}.toml"), target).versions)


def crlf(pair: Project) -> None:
    for name, content in pair.locks().items():
        (pair.directory / name).write_bytes(content.replace(b"\n", b"\r\n"))


def trailing_newlines(pair: Project) -> None:
    for name, content in pair.locks().items():
        (pair.directory / name).write_bytes(content + b"\n\n")


def hand_edit(pair: Project) -> None:
    pair.change("pylock.ci.toml", 'created-by = "torchenv"', 'created-by = "me"')


def delete_tie(pair: Project) -> None:
    (pair.directory / "torchenv.lock.toml").unlink()


def conflict_in_tie(pair: Project) -> None:
    pair.write(
        "torchenv.lock.toml", f"<<<<<<< HEAD\n{pair.read('torchenv.lock.toml')}=======\n>>>>>>> other\n"
    )


def tie_of_the_other_side(pair: Project) -> None:
    pair.change("torchenv.lock.toml", '    "lightning",\n', '    "lightning",\n    "tqdm",\n')


def killed_lock(pair: Project) -> None:
    # One lock was replaced, its tie not yet.
    pair.change("pylock.ci.toml", "lock-version", "# Made in the run that was killed.\nlock-version")


@pytest.mark.parametrize(
    "happen",
    [
        crlf,
        trailing_newlines,
        hand_edit,
        delete_tie,
        conflict_in_tie,
        tie_of_the_other_side,
        killed_lock,
    ],
)
def test_a_lock_keeps_every_pin_of_what_can_be_read(pair: Project, happen: Callable[[Project], None]) -> None:
    before = pair.locks()
    happen(pair)
    done = pair.run("lock")
    assert done.code == 0, done.said
    assert pair.locks() == before
    assert versions(pair)["numpy"] == "2.3.0"


@pytest.mark.parametrize("happen", [crlf, trailing_newlines])
def test_what_an_editor_does_to_line_ends_is_no_change(
    pair: Project, happen: Callable[[Project], None]
) -> None:
    pair.run("sync")
    happen(pair)
    assert pair.run("lock", "--check").code == 0
    pair.index.forget()
    assert pair.run("sync").out == "1"
    assert not pair.index.wheels_fetched()


def test_a_lock_that_cannot_be_read_is_refused_with_the_remedy(pair: Project) -> None:
    good = pair.read("pylock.ci.toml")
    pair.write("pylock.ci.toml", f"<<<<<<< HEAD\n{good}=======\n{good}>>>>>>> other\n")
    before = pair.locks()
    done = pair.run("lock")
    assert done.code == 2
    assert done.said.splitlines()[-2].startswith("error: pylock.ci.toml: not valid TOML: ")
    assert "`git checkout --ours -- pylock.ci.toml`" in done.said.splitlines()[-1]
    assert pair.locks() == before
    pair.write("pylock.ci.toml", good)
    assert pair.run("lock").code == 0


def test_a_tie_that_cannot_be_read_stops_a_sync_with_the_remedy(pair: Project) -> None:
    conflict_in_tie(pair)
    done = pair.run("sync")
    assert done.code == 2
    assert done.said.splitlines()[-1] == (
        "hint: run `torchenv lock` to rebuild it; every pin in the locks is kept"
    )
    assert pair.run("lock").code == 0
    assert pair.run("sync").code == 0


def make_foreign(pair: Project, target: str) -> str:
    """Put the lock of another tool in the place of a target's, and return its text."""
    text = pair.read(f"pylock.{target}.toml").replace('"torchenv"', '"uv"', 1)
    pair.write(f"pylock.{target}.toml", text)
    return text


def test_the_lock_of_another_tool_is_not_replaced(pair: Project) -> None:
    delete_tie(pair)
    text = make_foreign(pair, "ada")
    path = pair.directory / "pylock.ada.toml"
    done = pair.run("lock")
    assert (done.code, done.said.splitlines()) == (
        2,
        [
            f"error: `{path}` was not made by torchenv and would be replaced",
            f"hint: move it away with `mv {path} {path}.old`, or give the target another name",
        ],
    )
    assert pair.read("pylock.ada.toml") == text
    # Nor is it touched where another target alone is locked.
    assert pair.run("lock", "ci").code == 0
    assert pair.read("pylock.ada.toml") == text
    path.rename(f"{path}.old")
    assert pair.run("lock").code == 0


def test_the_lock_of_another_tool_is_not_deleted_with_its_target(pair: Project) -> None:
    text = make_foreign(pair, "ada")
    pair.write("torchenv.toml", pair.read("torchenv.toml").replace('"ada"', '"bea"'))
    done = pair.run("lock")
    path = pair.directory / "pylock.ada.toml"
    assert (done.code, done.said.splitlines()) == (
        2,
        [
            f"error: `{path}` was not made by torchenv and would be deleted",
            f"hint: move it away with `mv {path} {path}.old`",
        ],
    )
    assert pair.read("pylock.ada.toml") == text
    pair.change("pylock.ada.toml", '"uv"', '"torchenv"')
    assert pair.run("lock").code == 0
    assert not path.exists()


@pytest.mark.parametrize("words", [(), ("--upgrade",), ("--upgrade", "lightning")])
def test_a_file_that_was_replaced_is_refused_until_its_package_is_upgraded_by_name(
    pair: Project, words: tuple[str, ...]
) -> None:
    pair.index.remove("simple", "filelock")
    other = Wheel(name="filelock", version="3.20.0", files={"filelock/__init__.py": "# other\n"})
    pair.index.add("simple", other)
    delete_tie(pair)
    done = pair.run("lock", *words)
    assert done.code == 4
    assert "filelock-3.20.0-py3-none-any.whl is not the file that was locked" in done.said
    assert done.said.endswith("then run `torchenv lock --upgrade filelock`")
    assert pair.run("lock", "--upgrade", "Filelock").code == 0
    assert other.sha256 in pair.read("pylock.ci.toml")


def test_a_file_that_was_replaced_is_refused_for_a_new_target_too(pair: Project) -> None:
    pair.index.remove("simple", "filelock")
    pair.index.add("simple", Wheel(name="filelock", version="3.20.0", files={"filelock/x.py": "# other\n"}))
    pair.write("torchenv.toml", pair.read("torchenv.toml").replace('"ada"', '"bea"'))
    assert "filelock-3.20.0-py3-none-any.whl is not the file that was locked" in pair.run("lock").said


def test_an_upgrade_of_a_name_that_nobody_knows_is_an_error(pair: Project) -> None:
    done = pair.run("lock", "--upgrade", "nunpy")
    assert (done.code, done.said.splitlines()[-2:]) == (
        2,
        ["error: package `nunpy` is in no lock file", "hint: did you mean `numpy`?"],
    )
    assert pair.run("lock", "--upgrade", "NumPy").code == 0
    assert versions(pair)["numpy"] == "2.9.0"
    assert versions(pair)["filelock"] == "3.20.0"


def test_the_tie_holds_a_line_for_each_requirement_and_nothing_of_who_locked(pair: Project) -> None:
    pair.change("torchenv.toml", '    "lightning",\n', '    "numpy",\n    "lightning",\n')
    pair.run("lock")
    text = pair.read("torchenv.lock.toml")
    assert 'requirements = [\n    "lightning",\n    "numpy",\n]' in text
    tie = tomllib.loads(text)
    assert sorted(tie) == ["schema", "target", "wanted"]
    assert {key for target in tie["target"] for key in target} == {
        "name", "platform", "python", "torch", "backend", "lock",
    }  # fmt: skip


def test_the_order_of_requirements_and_a_linters_settings_are_no_drift(pair: Project) -> None:
    pair.write("base.txt", "numpy\n-c bounds.txt\n")
    pair.write("bounds.txt", "numpy<3\n")
    project = '[project]\nname = "p"\ndependencies = ["filelock", "typing-extensions"]\n'
    pair.write("pyproject.toml", project)
    pair.change("torchenv.toml", "[packages]", '[packages]\nfrom = ["base.txt", "pyproject.toml"]')
    assert pair.run("lock").code == 0
    assert pair.run("lock", "--check").code == 0
    reordered = project.replace('"filelock", "typing-extensions"', '"typing-extensions", "filelock"')
    pair.write("pyproject.toml", f"{reordered}[tool.ruff]\nline-length = 99\n")
    pair.write("base.txt", "-c bounds.txt\n# what we train with\nnumpy\n")
    assert pair.run("lock", "--check").code == 0
    pair.write("bounds.txt", "numpy<2.3\n")
    (drifted,) = pair.run("lock", "--check", "--json").json["drift"]
    assert drifted.startswith("[files] base.txt: ")


def test_a_catalogue_of_the_workspace_steers_no_lock_and_a_committed_one_is_named(pair: Project) -> None:
    before = pair.locks()
    own = 'schema = 1\n[[release]]\nversion = "2.15.0"\n[[release.backend]]\ntag = "cpu"\nplatforms = []\n'
    (pair.directory / ".torchenv").mkdir()
    pair.write(".torchenv/catalogue.toml", own)
    assert pair.run("lock").code == 0
    assert pair.locks() == before

    pair.write("elsewhere.toml", own)
    done = pair.run("lock", "--catalogue", "elsewhere.toml")
    assert (done.code, "is not a catalogue of this project" in done.said) == (2, True)
    pair.write("torchenv-catalogue.toml", own)
    assert pair.run("lock").code == 0
    assert versions(pair)["torch"] == "2.14.1+cpu"
    assert 'catalogue = "torchenv-catalogue.toml"' in pair.read("torchenv.lock.toml")


def test_targets_ask_for_packages_extras_groups_and_files_of_their_own(pair: Project) -> None:
    pair.write(
        "pyproject.toml",
        '[project]\nname = "p"\ndependencies = ["filelock"]\n'
        '[project.optional-dependencies]\ncu132 = ["numpy"]\n'
        '[dependency-groups]\ntrain = ["tqdm"]\n',
    )
    pair.write("ada.txt", "rich\n")
    pair.index.add(
        "simple", *(Wheel(name=name, version="1.0") for name in ("tqdm", "rich", "triton-kernels"))
    )
    pair.change("torchenv.toml", 'requirements = [\n    "lightning",\n]', "requirements = []")
    more = 'packages = ["triton-kernels"]\nextras = ["cu132"]\ngroups = ["train"]\nfrom = ["ada.txt"]\n'
    pair.change("torchenv.toml", 'backend = "cu132"\n', f'backend = "cu132"\n{more}')
    assert pair.run("lock").code == 0
    asked = {"numpy", "tqdm", "rich", "triton-kernels"}
    assert asked <= versions(pair, "ada").keys()
    assert not asked & versions(pair, "ci").keys()
    assert pair.run("lock", "--check").code == 0
    pair.write("ada.txt", "rich\nsix\n")
    (drifted,) = pair.run("lock", "--check", "--json").json["drift"]
    assert drifted.startswith("[files] ada.txt: ")


def test_a_lock_in_another_folder_is_the_same_bytes(pair: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "clone", pair.index, pair.environ)
    shutil.copytree(pair.directory, other.directory, dirs_exist_ok=True)
    assert other.run("lock").code == 0
    assert other.locks() == pair.locks()


def test_only_the_targets_that_are_named_are_locked(pair: Project) -> None:
    before = pair.locks()
    done = pair.run("lock", "ci", "--upgrade")
    assert done.code == 0, done.said
    assert versions(pair, "ci")["numpy"] == "2.9.0"
    assert pair.locks()["pylock.ada.toml"] == before["pylock.ada.toml"]
    assert "ada: kept as it was, pylock.ada.toml" in done.out.splitlines()
    assert pair.run("lock", "--check").code == 0
    assert pair.run("sync", "ada", "--dry-run").code == 0
    done = pair.run("lock", "adda")
    assert (done.code, done.said.splitlines()) == (
        2,
        ["error: target `adda` not found", "hint: did you mean `ada`?"],
    )


def test_a_target_that_was_not_locked_again_keeps_a_new_wish_drifted(pair: Project) -> None:
    pair.change("torchenv.toml", '    "lightning",\n', '    "lightning",\n    "typing-extensions",\n')
    assert pair.run("lock", "ci").code == 0
    assert pair.run("lock", "--check").code == 1
    assert pair.run("lock").code == 0
    assert pair.run("lock", "--check").code == 0


def test_what_one_index_lacks_stops_only_its_target(pair: Project) -> None:
    before = pair.locks()
    pair.index.remove("whl/cu132", "torch")
    done = pair.run("lock", "--upgrade")
    assert done.code == 4
    assert "error: target ada: " in done.said
    assert versions(pair, "ci")["numpy"] == "2.9.0"
    assert pair.locks()["pylock.ada.toml"] == before["pylock.ada.toml"]
    document = pair.run("lock", "--json").json
    assert list(document["failed"]) == ["ada"]
