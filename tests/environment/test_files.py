"""The files of an environment: its fingerprint, that none is shared, and that none has changed."""

from __future__ import annotations

import json
import os
import shutil
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from threading import Event

import pytest

from torchenv.environment import unshare
from torchenv.environment.base_python import BasePython
from torchenv.environment.fingerprint import Fingerprint, differences, fingerprint
from torchenv.environment.inspect import describe
from torchenv.environment.unshare import can_clone, isolate, isolate_beside, link_mode
from torchenv.environment.verify import digest_of_base, verify
from torchenv.errors import ToolFailed, WorkspaceError

LARGE = 2 << 20
PYTHON = b"\x7fELF python"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A venv as an installer leaves it: scripts, links, a package with its RECORD, byte code."""
    path = tmp_path / "env"
    site = path / "lib" / "python3.12" / "site-packages"
    members = {
        "torch/__init__.py": b"import os\n",
        "torch/version.py": b"__version__ = '2.15.0+cu132'\n",
        "torch/lib/libtorch.so": b"\x7fELF" + bytes(LARGE),
        "torch/data.json": b"[" + b"1," * LARGE + b"1]",
        "torch/lib/small.so": b"\x7fELF\0",
    }
    lines = []
    for name, data in members.items():
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        digest = urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(data)}")
    info = site / "torch-2.15.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: torch\nVersion: 2.15.0\n")
    lines += ["torch/__pycache__/version.cpython-312.pyc,,", "torch-2.15.0.dist-info/RECORD,,"]
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    base = tmp_path / "python3.12"
    base.write_bytes(PYTHON)
    (path / "bin").mkdir()
    (path / "bin" / "python").symlink_to(base)
    (path / "bin" / "torchrun").write_text(f"#!{path}/bin/python\n")
    (path / "bin" / "torchrun").chmod(0o755)
    (path / "lib64").symlink_to("lib")
    (path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.7\n")
    return path


def site(environment: Path) -> Path:
    return environment / "lib" / "python3.12" / "site-packages"


def test_the_fingerprint_has_one_line_a_file_and_reads_only_what_no_record_vouches_for(
    environment: Path,
) -> None:
    found = fingerprint(describe(environment))
    assert list(found.entries) == [
        "bin/python",
        "bin/torchrun",
        "lib/python3.12/site-packages/torch-2.15.0.dist-info/METADATA",
        "lib/python3.12/site-packages/torch-2.15.0.dist-info/RECORD",
        "lib/python3.12/site-packages/torch/__init__.py",
        "lib/python3.12/site-packages/torch/data.json",
        "lib/python3.12/site-packages/torch/lib/libtorch.so",
        "lib/python3.12/site-packages/torch/lib/small.so",
        "lib/python3.12/site-packages/torch/version.py",
        "lib64",
        "pyvenv.cfg",
    ]
    entry = found.entries["lib/python3.12/site-packages/torch/__init__.py"]
    assert (entry.size, entry.content) == (10, "")
    assert found.entries["lib64"].content == "-> lib"
    wanted = sha256((environment / "pyvenv.cfg").read_bytes()).hexdigest()
    assert found.entries["pyvenv.cfg"].content == f"sha256:{wanted}"
    assert found.entries["bin/torchrun"].mode == 0o755


def test_a_fingerprint_reads_back_from_its_lines_whatever_the_names_of_the_files(environment: Path) -> None:
    (environment / "bin" / "odd\tname\n- ü").write_text("")
    (environment / "bin" / "odd").symlink_to("a\tb\nc")
    found = fingerprint(describe(environment))
    assert Fingerprint.parse(found.text) == found
    assert Fingerprint.parse(found.text).digest == found.digest
    assert "bin/odd\\tname\\n- ü" in found.entries


def test_byte_code_caches_change_no_fingerprint(environment: Path) -> None:
    before = fingerprint(describe(environment))
    cache = site(environment) / "torch" / "__pycache__"
    cache.mkdir()
    (cache / "version.cpython-312.pyc").write_bytes(b"1")
    (site(environment) / "old.pyc").write_bytes(b"1")
    assert fingerprint(describe(environment)).digest == before.digest


def _edit(environment: Path) -> None:
    (site(environment) / "torch" / "version.py").write_text("__version__ = '2.15.0+cu134'\n# edited\n")


def _touch(environment: Path) -> None:
    os.utime(site(environment) / "torch" / "version.py", ns=(1, 1))


def _edit_unrecorded_with_the_same_size_and_time(environment: Path) -> None:
    file = environment / "pyvenv.cfg"
    status = file.stat()
    file.write_text(file.read_text().replace("3.12.7", "3.12.8"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_edit, "lib/python3.12/site-packages/torch/version.py: was changed"),
        (_touch, "lib/python3.12/site-packages/torch/version.py: was rewritten"),
        (_edit_unrecorded_with_the_same_size_and_time, "pyvenv.cfg: was changed"),
        (lambda path: (path / "bin" / "torchrun").chmod(0o700), "bin/torchrun: has changed permissions"),
        (lambda path: (path / "bin" / "torchrun").unlink(), "bin/torchrun: is missing"),
        (lambda path: (path / "bin" / "new").write_text(""), "bin/new: was added"),
    ],
)
def test_every_change_shows_in_the_fingerprint_and_is_named(
    environment: Path, change: Callable[[Path], object], said: str
) -> None:
    before = fingerprint(describe(environment))
    change(environment)
    after = fingerprint(describe(environment))
    assert before.digest != after.digest
    assert [str(difference) for difference in differences(before, after)] == [said]


@pytest.fixture
def conda(tmp_path: Path) -> Path:
    """A conda base with a package that conda vouches for, its cache, and another environment inside."""
    path = tmp_path / "miniforge3"
    for name in ("conda-meta/history", "bin/python", "lib/libz.so", "envs/other/lib/x", "pkgs/y/lib/z"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("")
    empty = sha256(b"").hexdigest()
    library = {"_path": "lib/libz.so", "path_type": "hardlink", "sha256": "of the package"}
    paths = [library | {"sha256_in_prefix": empty}, {"_path": "lib/libz.so.1", "path_type": "softlink"}]
    (path / "conda-meta" / "zlib-1.json").write_text(json.dumps({"paths_data": {"paths": paths}}))
    return path


def test_other_environments_inside_a_conda_base_are_none_of_its_own(conda: Path) -> None:
    found = fingerprint(describe(conda))
    assert list(found.entries) == [
        "bin/python",
        "conda-meta/history",
        "conda-meta/zlib-1.json",
        "lib/libz.so",
    ]
    assert found.entries["lib/libz.so"].content == ""


def test_a_file_that_conda_vouches_for_is_verified_too(conda: Path) -> None:
    before = fingerprint(describe(conda))
    base = BasePython("3.12.4", str(conda / "bin" / "python"))
    assert verify(describe(conda), base=base, before=before) == ()
    (conda / "lib" / "libz.so").write_text("edited")
    (finding,) = verify(describe(conda), base=base, before=before)
    assert str(finding) == "lib/libz.so: was changed"


@pytest.mark.parametrize(
    ("wanted", "can_clone", "same", "mode"),
    [
        ("auto", True, True, "clone"),
        ("auto", False, True, "hardlink"),
        ("auto", True, False, "copy"),
        ("auto", False, False, "copy"),
        ("hardlink", True, True, "hardlink"),
        ("hardlink", False, False, "copy"),
        ("copy", True, True, "copy"),
    ],
)
def test_the_link_mode_suits_the_file_system(wanted: str, mode: str, *, can_clone: bool, same: bool) -> None:
    assert link_mode(wanted, can_clone=can_clone, same_file_system=same) == mode


def test_trying_to_clone_leaves_nothing_behind(tmp_path: Path) -> None:
    assert can_clone(tmp_path, tmp_path) in (True, False)
    assert list(tmp_path.iterdir()) == []


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_editing_every_file_of_one_environment_changes_no_byte_of_another_nor_of_the_cache(
    environment: Path, tmp_path: Path
) -> None:
    cache, other = tmp_path / "cache", tmp_path / "other"
    for copy in (cache, other):
        shutil.copytree(environment, copy, symlinks=True, copy_function=os.link)
    before = contents(cache), contents(other)
    looked = fingerprint(describe(environment))
    cloning = can_clone(tmp_path, tmp_path)

    isolated = isolate(environment)
    assert fingerprint(describe(environment)) == looked
    library = site(environment) / "torch" / "lib" / "libtorch.so"
    if not cloning:
        assert library.stat().st_nlink == 3
        assert isolated.files == 8
    edited = [
        path
        for path in environment.rglob("*")
        if path.is_file() and not path.is_symlink() and (cloning or path != library)
    ]
    assert len(edited) >= 8
    for file in edited:
        with file.open("r+b") as opened:
            opened.write(b"# edited")
    assert (contents(cache), contents(other)) == before


def test_isolating_again_finds_nothing_to_do(environment: Path, tmp_path: Path) -> None:
    shutil.copytree(environment, tmp_path / "cache", symlinks=True, copy_function=os.link)
    assert isolate(environment).files > 0
    again = isolate(environment)
    assert (again.files, again.bytes) == (0, 0)


def test_isolating_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="/none: No such file or directory"):
        isolate(tmp_path / "none")


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A directory of files that each have a second name elsewhere."""
    cache = tmp_path / "cache"
    for number in range(1000):
        file = cache / str(number % 7) / f"{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {number}")
    shutil.copytree(cache, tmp_path / "linked", copy_function=os.link)
    return tmp_path / "linked"


@pytest.mark.parametrize("can_exchange", [True, False])
def test_no_file_is_missing_while_an_environment_is_isolated(
    linked: Path, monkeypatch: pytest.MonkeyPatch, *, can_exchange: bool
) -> None:
    if not can_exchange:
        monkeypatch.setattr(unshare, "exchange", lambda *_: False)
    before, over = contents(linked), Event()

    def read() -> int:
        turns = 0
        while not over.is_set() or not turns:
            assert {path: Path(path).read_bytes() for path in before} == before
            turns += 1
        return turns

    turns, _ = isolate_beside(linked, read, over.set)
    assert turns > 0
    assert contents(linked) == before
    assert {path.stat().st_nlink for path in linked.rglob("*.py")} == {1}


def test_a_reader_that_fails_stops_the_rest_and_what_fails_then_is_raised(
    linked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    separate, reached, stopped = unshare._separate, Event(), Event()

    def wait_for_the_stop(path: str, status: os.stat_result, *, cloning: bool) -> None:
        reached.set()
        assert stopped.wait(60)
        separate(path, status, cloning=cloning)

    monkeypatch.setattr(unshare, "_separate", wait_for_the_stop)
    monkeypatch.setattr(unshare, "Event", lambda: stopped)

    def read() -> None:
        assert reached.wait(60)
        raise ToolFailed("torch does not import")

    with pytest.raises(ToolFailed, match="does not import"):
        isolate_beside(linked, read, tuple)
    assert 2 in {path.stat().st_nlink for path in linked.rglob("*.py")}
    with pytest.raises(WorkspaceError, match="No such file"):
        isolate_beside(linked / "none", str, str)


def findings(environment: Path, before: Fingerprint | None) -> list[str]:
    installation = describe(environment)
    assert installation.base is not None
    base = BasePython("3.12.7", str(installation.base), f"sha256:{sha256(PYTHON).hexdigest()}")
    return [str(item) for item in verify(installation, base=base, before=before)]


def test_an_environment_that_is_as_it_was_built_has_no_findings(environment: Path) -> None:
    before = fingerprint(describe(environment))
    (site(environment) / "torch" / "__pycache__").mkdir()
    (site(environment) / "torch" / "__pycache__" / "version.cpython-312.pyc").write_bytes(b"1")
    _touch(environment)
    assert findings(environment, before) == []
    assert findings(environment, None) == []


def _edit_library_keeping_size_and_time(environment: Path) -> None:
    file = site(environment) / "torch" / "lib" / "libtorch.so"
    status = file.stat()
    with file.open("r+b") as opened:
        opened.seek(-1, os.SEEK_END)
        opened.write(b"1")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def _edit_with_its_record(environment: Path) -> None:
    _edit(environment)
    record = site(environment) / "torch-2.15.0.dist-info" / "RECORD"
    lines = [line for line in record.read_text().splitlines() if "version.py" not in line]
    data = (site(environment) / "torch" / "version.py").read_bytes()
    digest = urlsafe_b64encode(sha256(data).digest()).decode().rstrip("=")
    record.write_text("\n".join([*lines, f"torch/version.py,sha256={digest},{len(data)}"]) + "\n")


TORCH = "lib/python3.12/site-packages/torch"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_edit, f"{TORCH}/version.py: was changed"),
        (_edit_library_keeping_size_and_time, f"{TORCH}/lib/libtorch.so: was changed"),
        (_edit_with_its_record, f"{TORCH}-2.15.0.dist-info/RECORD: was changed"),
        (_edit_unrecorded_with_the_same_size_and_time, "pyvenv.cfg: was changed"),
        (lambda path: (path / "bin" / "torchrun").chmod(0o700), "bin/torchrun: has mode 700, and had 755"),
        (lambda path: (site(path) / "torch" / "version.py").unlink(), f"{TORCH}/version.py: is missing"),
        (lambda path: (site(path) / "torch" / "new.py").write_text(""), f"{TORCH}/new.py: was added"),
    ],
)
def test_verify_names_each_file_that_is_not_as_it_was_built(
    environment: Path, change: Callable[[Path], object], said: str
) -> None:
    before = fingerprint(describe(environment))
    change(environment)
    assert findings(environment, before) == [said]


def test_verify_sees_that_a_link_leads_elsewhere(environment: Path) -> None:
    before = fingerprint(describe(environment))
    (environment / "lib64").unlink()
    (environment / "lib64").symlink_to("elsewhere")
    assert findings(environment, before) == ["lib64: was changed"]


def test_verify_sees_a_base_interpreter_that_was_changed_or_is_gone(environment: Path) -> None:
    before = fingerprint(describe(environment))
    base = environment.parent / "python3.12"
    base.write_bytes(b"\x7fELF another")
    assert findings(environment, before) == [f"{base}: its base interpreter was changed"]
    base.unlink()
    assert digest_of_base(base) is None
    assert findings(environment, before) == [f"{base}: its base interpreter is gone"]


def test_verify_sees_that_the_directory_was_moved(environment: Path) -> None:
    (environment / "bin" / "activate").write_text(f"VIRTUAL_ENV='{environment}'\n")
    before = fingerprint(describe(environment))
    moved = environment.rename(environment.with_name("moved"))
    scripts = "1 of its scripts no longer run (`python -m NAME` does)"
    said = f"{moved}: was moved here from {environment}; {scripts}"
    assert findings(moved, before) == [said]


def test_verify_tells_how_far_it_has_come(environment: Path) -> None:
    told: list[tuple[int, int]] = []
    installation = describe(environment)
    base = BasePython("3.12.7", str(installation.base))
    verify(installation, base=base, progress=lambda done, total: told.append((done, total)))
    recorded = ("__init__.py", "version.py", "data.json", "lib/libtorch.so", "lib/small.so")
    total = sum((site(environment) / "torch" / name).stat().st_size for name in recorded)
    assert told[-1] == (total, total)
    assert told == sorted(told)
