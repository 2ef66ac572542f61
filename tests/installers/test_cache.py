"""A cache that cannot be used is left for one that can, and it is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchenv.installers import LockRequest
from torchenv.installers.cache import UvCache, find_noexec, locate_cache
from torchenv.installers.uv import Uv, uv_program
from torchenv.system.process import Command, Programs

Ask = Callable[..., LockRequest]


def refuse_locks(handle: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_place_that_cannot_be_used_is_known_by_its_reason(tmp_path: Path) -> None:
    assert UvCache(tmp_path / "cache").explain_unusable() is None
    said = UvCache(tmp_path / "cache").explain_unusable(refuse_locks)
    assert said == "is on a file system without file locks"
    (tmp_path / "file").write_text("")
    assert UvCache(tmp_path / "file" / "cache").explain_unusable() == "cannot be written: Not a directory"


@pytest.mark.skipif(os.name == "nt", reason="the variables are those of XDG")
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("XDG_CACHE_HOME", ""),
        ("XDG_CACHE_HOME", "relative"),
        ("XDG_CACHE_HOME", "/abso/lute"),
        ("UV_CACHE_DIR", "relative"),
        ("UV_CACHE_DIR", "/abso/lute"),
    ],
)
def test_the_cache_is_where_uv_has_it(tmp_path: Path, variable: str, value: str) -> None:
    environ = {"HOME": str(tmp_path), variable: value}
    asked = Programs(environ)(Command((str(uv_program()), "cache", "dir"))).check("ask for the cache")
    cache = locate_cache(environ, tmp_path, "linux")
    assert cache is not None
    assert Path.cwd() / cache.path == Path.cwd() / asked.strip()


def test_without_a_cache_that_can_be_written_another_one_is_used_and_said(
    environ: dict[str, str], request_for: Ask, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    programs = Programs({**environ, "UV_CACHE_DIR": str(tmp_path / "file" / "cache")})
    uv = Uv(programs, program=uv_program(), fallback_cache=tmp_path / "workspace" / "cache", say=said.append)
    assert "torch" in uv.lock(request_for("cpu")).versions
    assert (tmp_path / "workspace" / "cache" / "CACHEDIR.TAG").is_file()
    assert said == [
        (
            f"note: the cache {tmp_path / 'file' / 'cache'} cannot be written: Not a directory:"
            f" using {tmp_path / 'workspace' / 'cache'}"
        )
    ]


def test_a_wheel_is_found_by_the_name_of_its_file(tmp_path: Path) -> None:
    unpacked = tmp_path / "wheels-v8" / "index" / "939b" / "nvidia-cudnn-cu13" / "9.26.0.51-py3-none-any"
    unpacked.mkdir(parents=True)
    cache = UvCache(tmp_path)
    assert cache.holds("nvidia_cudnn_cu13-9.26.0.51-py3-none-any.whl")
    assert not cache.holds("nvidia_cudnn_cu13-9.27.0-py3-none-any.whl")


def test_what_was_read_to_choose_is_no_build_in_the_cache(tmp_path: Path) -> None:
    name = "2.15.0+cpu-cp311-cp311-manylinux_2_28_x86_64"
    place = tmp_path / "wheels-v8" / "index" / "f219" / "torch"
    place.mkdir(parents=True)
    for suffix in (".msgpack", ".http"):
        (place / f"{name}{suffix}").write_text("")
    assert not UvCache(tmp_path).holds_build("torch", "2.15.0+cpu", "3.11")
    (place / name).mkdir()
    assert UvCache(tmp_path).holds_build("torch", "2.15.0+cpu", "3.11")


def test_a_mount_without_programs_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not find_noexec(tmp_path / "not" / "there")
    # A mount, which a test cannot make.
    flags = os.statvfs_result((*os.statvfs(tmp_path)[:8], os.ST_NOEXEC, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: flags)
    assert find_noexec(tmp_path)
