"""A disk without a byte and without an inode left can be freed and gone back on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from torchenv.actions.remove import Pruning, prune, remove
from torchenv.actions.switch import Outside, rollback, use
from torchenv.environment.base_python import BasePython
from torchenv.workspace.store import Store

AT = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
PYTHON = BasePython("3.12.7", sys.executable)
OUTSIDE = Outside(running=lambda _: (), now=lambda: AT)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for two MiB and 150 files."""
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if not sys.platform.startswith("linux") or os.geteuid() != 0 or mount is None or unmount is None:
        pytest.skip("only root on Linux may mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    options = "size=2m,nr_inodes=150"
    done = subprocess.run([mount, "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=False)
    if done.returncode != 0:
        pytest.skip("no file system may be mounted here")
    yield place
    subprocess.run([unmount, "-l", str(place)], check=True)


def build(store: Store, name: str) -> None:
    with store.hold("torchenv create"):
        manifest = store.settle()
        manifest, new = manifest.begin(name, within=store.environments, python=PYTHON, at=AT, identity=name)
        site = Path(new.path) / "lib" / "python3.12" / "site-packages" / "torch"
        site.mkdir(parents=True)
        (site / "version.py").write_text("__version__ = '2.15.0'\n")
        (Path(new.path) / "bin").mkdir()
        (Path(new.path) / "bin" / "python").symlink_to(sys.executable)
        (Path(new.path) / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.7\n")
        (Path(new.path) / ".torchenv-id").write_text(f"{name}\n")
        manifest, _ = manifest.commit(new)
        store.write(manifest)


def fill(place: Path) -> None:
    """Leave neither a byte nor an inode, as a training that logs without end."""
    with pytest.raises(OSError, match="No space left"):
        (place / "log").write_bytes(b"x" * (1 << 22))
    with pytest.raises(OSError, match="No space left"):
        make_files(place)


def make_files(place: Path) -> None:
    for n in range(1000):
        (place / f"log-{n}").touch()


@pytest.mark.parametrize("has_reserve", [True, False], ids=["reserve", "reserve taken by others"])
def test_a_full_disk_is_gone_back_on_and_freed(small: Path, *, has_reserve: bool) -> None:
    store = Store(small / ".torchenv")
    for name in ("one", "two", "three", "four"):
        build(store, name)
    use("1", store, OUTSIDE)
    use("2", store, OUTSIDE)
    if not has_reserve:
        shutil.rmtree(small / ".torchenv" / "reserve")
    fill(small)

    assert rollback(None, store, OUTSIDE).now.number == 1
    assert store.read().current == 1
    assert use("2", store, OUTSIDE).now.number == 2
    assert os.readlink(store.current) == store.read().number(2).path  # noqa: PTH115

    (gone,) = (one.environment for one in remove(["3"], store, lambda _: (), lambda _: None))
    assert not Path(gone.path).exists()
    pruned = prune(Pruning(keep=0), store, lambda _: (), lambda _: None, dry_run=False)
    assert [environment.number for environment in pruned.gone] == [4]
    assert [
        environment.number for environment in Store(store.root).read().environments if environment.live
    ] == [
        1,
        2,
    ]
    assert not list((store.root / "trash").glob("*"))
