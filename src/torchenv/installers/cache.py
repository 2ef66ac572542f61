"""Where uv keeps what it fetched: whether that place can be used, and what it holds."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from torchenv.system.values import frozen

# Takes the handle of a file and locks it; raises `OSError` where the file system knows no locks.
LockFile = Callable[[int], None]


@frozen
class UvCache:
    """A cache of uv's."""

    path: Path

    def holds(self, wheel: str) -> bool:
        """Return whether the wheel of this file name was unpacked there, from whatever index."""
        # wheels-v8/index/939bb07a82ff1459/numpy/2.3.0-py3-none-any; wheels-v8/pypi/numpy/…
        name, _, rest = wheel.removesuffix(".whl").partition("-")
        name = name.replace("_", "-").replace(".", "-").lower()
        try:
            places = (*self.path.glob(f"wheels-v*/*/{name}"), *self.path.glob(f"wheels-v*/*/*/{name}"))
            return any(os.path.exists(place / rest) for place in places)
        except OSError:
            return False

    def holds_build(self, name: str, version: str, python: str) -> bool:
        """Return whether a wheel of this version for a Python such as `3.14t` was unpacked there."""
        minor = python.rstrip("t").replace(".", "")
        tag = f"cp{minor}-cp{minor}{'t' if python.endswith('t') else ''}"
        try:
            places = (*self.path.glob(f"wheels-v*/*/{name}"), *self.path.glob(f"wheels-v*/*/*/{name}"))
            found = (path for place in places for path in place.glob(f"{version}-{tag}-*"))
            # Beside them lie 2.15.0+cpu-cp311-cp311-linux_x86_64.msgpack and .http: what was read to choose.
            return any(path.suffix not in _NOTES for path in found)
        except OSError:
            return False

    def explain_unusable(self, lock_file: LockFile | None = None) -> str | None:
        """Return in a few words why uv could not use this place; None if it could."""
        # A plan looks into the cache too, and writes nothing.
        import tempfile

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path) as file:
                (lock_file or _lock)(file.fileno())
        except (OSError, UnicodeEncodeError) as error:
            number = getattr(error, "errno", None)
            if number in _NO_LOCKS:
                return "is on a file system without file locks"
            return f"cannot be written: {getattr(error, 'strerror', None) or error}"
        return None


_NOTES = frozenset({".msgpack", ".http", ".rev", ".lock"})
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP})


def locate_cache(environ: Mapping[str, str], home: Path | None, system: str) -> UvCache | None:
    """Return the cache that uv takes by itself; None where no home says where that is."""
    if named := environ.get("UV_CACHE_DIR"):
        return UvCache(Path(named))
    if system == "win32":
        local = environ.get("LOCALAPPDATA")
        return UvCache(Path(local) / "uv" / "cache") if local else None
    # As uv does: what is not absolute is ignored.
    if (above := Path(environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return UvCache(above / "uv")
    return UvCache(home / ".cache" / "uv") if home else None


def _lock(handle: int) -> None:
    if os.name == "nt":
        return
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def find_noexec(directory: Path) -> bool:
    """Return whether programs in a directory may not be started; its parent counts before it exists."""
    if os.name == "nt":
        return False
    there = next((place for place in (directory, *directory.parents) if os.path.isdir(place)), directory)
    try:
        return bool(os.statvfs(there).f_flag & os.ST_NOEXEC)
    except (OSError, AttributeError):
        return False
