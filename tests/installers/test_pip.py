"""pip puts the same files into an environment as uv does, from the same lock."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torchenv.errors import InputError, ToolFailed
from torchenv.installers import LockRequest, interpreter_in
from torchenv.installers.pip import Pip, write_hashed_requirements
from torchenv.lockfile.lock import Lock
from torchenv.system.process import Command, Programs

if TYPE_CHECKING:
    from tests.support.index import Index

    from torchenv.installers.uv import Uv

Ask = Callable[..., LockRequest]

builds_here = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels are for Linux x86_64"
)


@pytest.fixture
def misled(environ: dict[str, str], index: Index, tmp_path: Path, uv: Uv) -> Pip:
    settings = tmp_path / "home" / ".config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[global]\nindex-url = http://127.0.0.1:9/\ntarget = {tmp_path}/target\n")
    inherited = {"PIP_INDEX_URL": f"{index.root}/whl/cpu", "PIP_TARGET": f"{tmp_path}/target"}
    return Pip(Programs({**environ, **inherited}), locker=uv)


def files_in(environment: Path) -> dict[str, bytes]:
    """Every file of site-packages, but for what says who installed it."""
    command = Command(
        (str(interpreter_in(environment)), "-Ic", "import sysconfig; print(sysconfig.get_path('purelib'))")
    )
    folder = Path(Programs({})(command).check("find site-packages").strip())
    marks = {"INSTALLER", "RECORD", "REQUESTED", "_virtualenv.py", "_virtualenv.pth"}
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in marks and path.suffix != ".pyc"
    }


@builds_here
def test_pip_and_uv_make_the_same_files_whatever_else_is_set(
    uv: Uv, misled: Pip, request_for: Ask, tmp_path: Path
) -> None:
    family = frozenset({"triton-rocm", "rocm", "rocm-sdk-core", "rocm-sdk-libraries"})
    lock = misled.lock(request_for("rocm7.14", family=family, packages=("lightning",)))
    path = tmp_path / "pylock.toml"
    path.write_text(lock.text, "utf-8")
    for name, installer in (("by uv", uv), ("by pip", misled)):
        installer.create(tmp_path / name, Path(sys.executable))
        installer.install(tmp_path / name, path)
    assert files_in(tmp_path / "by pip") == files_in(tmp_path / "by uv")
    assert "torch/version.py" in files_in(tmp_path / "by pip")
    assert not (tmp_path / "target").exists()


@builds_here
def test_a_file_that_was_replaced_is_refused(
    misled: Pip, request_for: Ask, index: Index, tmp_path: Path
) -> None:
    lock = misled.lock(request_for("cpu"))
    (tmp_path / "pylock.toml").write_text(lock.text, "utf-8")
    file = next(package for package in lock.packages if package.name == "torch").files[0]
    index.damage(file.name)
    misled.create(tmp_path / "env", Path(sys.executable))
    with pytest.raises(ToolFailed) as caught:
        misled.install(tmp_path / "env", tmp_path / "pylock.toml")
    expected = f"torch==2.15.0+cpu is not the file that was locked: expected sha256 {file.sha256}, got "
    assert str(caught.value).startswith(expected)


def test_the_requirements_name_every_file_by_its_hash() -> None:
    text = """\
lock-version = "1.0"
created-by = "torchenv"
[[packages]]
name = "torch"
version = "2.15.0+cpu"
wheels = [
    { url = "https://m.example/torch-2.15.0%2Bcpu-cp312-cp312-win_amd64.whl", hashes = { sha256 = "aa" } },
    { url = "https://m.example/torch-2.15.0%2Bcpu-cp313-cp313-win_amd64.whl", hashes = { sha256 = "bb" } },
]
"""
    lock = Lock.parse(text, "pylock.toml")
    assert write_hashed_requirements(lock, "pylock.toml") == (
        "torch==2.15.0+cpu --hash=sha256:aa --hash=sha256:bb\n"
    )


def test_what_pip_cannot_prove_is_refused() -> None:
    text = """\
lock-version = "1.0"
created-by = "torchenv"
[[packages]]
name = "mine"
vcs = { type = "git", url = "https://git.example/mine", commit-id = "0" }
"""
    with pytest.raises(InputError) as caught:
        write_hashed_requirements(Lock.parse(text, "pylock.toml"), "pylock.toml")
    assert str(caught.value) == "pylock.toml: pip cannot prove mine: it has no hash"
    assert caught.value.hint == "use `--installer uv`, or lock a released version of it"
