"""Whether an environment is as it was built or adopted: every byte against what its installer wrote down."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path

from torchenv.environment.base_python import BasePython
from torchenv.environment.findings import EnvironmentFinding, find_wrong
from torchenv.environment.fingerprint import FileEntry, Fingerprint, content, files_of, link, relative, roots
from torchenv.environment.inspect import Installation, distributions, read_recorded_digests

# libtorch_cpu.so, libcudnn.so.9, _C.cpython-312-x86_64-linux-gnu.so, c10.dll
_BINARY = re.compile(r"\.(?:so|dylib|pyd|dll)(?:\.[0-9.]+)?$")

# Told now and then: bytes read so far, bytes in all.
Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    del done, total


def verify(
    installation: Installation,
    *,
    base: BasePython,
    before: Fingerprint | None = None,
    progress: Progress = _silent,
) -> tuple[EnvironmentFinding, ...]:
    """Read a whole environment on every core, and name what is not as it was, byte-code caches aside.

    `base` is the interpreter that was recorded and `before` the fingerprint that was kept; without one,
    only what a RECORD lists is checked. A file that was only written again, with the same bytes, is none.
    Codes beside those of `find_wrong`: added, missing, changed, mode and base.
    """
    recorded = _read_digests(installation)
    entries = before.entries if before else {}
    found = {relative(path, installation.path): (path, status) for path, status in files_of(installation)}
    expected = recorded.keys() | entries.keys()
    missing = [EnvironmentFinding("missing", path, "is missing") for path in expected - found.keys()]
    added = [EnvironmentFinding("added", path, "was added") for path in found.keys() - expected if before]
    contents = _contents(found, expected, progress)
    changed = [
        finding
        for path, now in contents.items()
        for finding in _compare(path, now, found[path][1], recorded.get(path), entries.get(path))
    ]
    files = sorted([*missing, *added, *changed], key=lambda finding: (finding.path, finding.code))
    changed_base = tuple(_find_base_change(base))
    wrong = find_wrong(installation)
    if changed_base:
        wrong = tuple(finding for finding in wrong if finding.code != "interpreter-gone")
    return (*wrong, *changed_base, *files)


def verify_binaries(
    installation: Installation, progress: Progress = _silent
) -> tuple[int, tuple[EnvironmentFinding, ...]]:
    """Hash every library and extension whose digest its installer wrote down, and name those that differ.

    Also returns how many there were: without any, nothing is known of them.
    """
    recorded = {path: digest for path, digest in _read_digests(installation).items() if _BINARY.search(path)}
    found = {
        relative(path, installation.path): (path, status)
        for path, status in files_of(installation)
        if _BINARY.search(path)
    }
    contents = _contents(found, set(recorded), progress)
    findings = [
        EnvironmentFinding("changed", path, "was changed")
        for path, digest in recorded.items()
        if path in contents and contents[path] != digest and not contents[path].startswith("-> ")
    ]
    findings += [EnvironmentFinding("missing", path, "is missing") for path in recorded.keys() - found.keys()]
    return len(recorded), tuple(sorted(findings, key=lambda finding: finding.path))


def find_cut_files(installation: Installation) -> Iterator[tuple[str, EnvironmentFinding]]:
    """Yield each file whose size is not what RECORD says, or that is missing, with its package's name.

    A file that was cut in an installer's cache is linked into the environment as it is there.
    """
    for package in distributions(installation):
        for line in package.record():
            if line.size is None or line.path.endswith(".pyc"):
                continue
            try:
                status = os.lstat(line.path)
            except OSError:
                yield package.name, EnvironmentFinding("missing", line.path, "is missing")
                continue
            if status.st_size != line.size and not stat.S_ISLNK(status.st_mode):
                message = f"has {status.st_size} bytes, and its RECORD says {line.size}"
                yield package.name, EnvironmentFinding("changed", line.path, message)


def digest_of_base(path: Path) -> str | None:
    """Return the digest of a base interpreter, to be recorded with an environment; None where it is gone."""
    return content(str(path)) if os.path.isfile(path) else None


def find_base(installation: Installation, named: BasePython) -> BasePython:
    """Return what an environment stands on: what was `named` may be a script that starts an interpreter."""
    base = installation.base
    with suppress(OSError):
        if base is not None and not base.samefile(named.path):
            return BasePython(named.version, str(base), digest_of_base(base))
    return named


def _read_digests(installation: Installation) -> dict[str, str]:
    # A system's RECORD lists scripts in a directory that is not only its own, and a venv may show
    # packages of its base: neither is looked at.
    inside = tuple(f"{root}{os.sep}" for root in roots(installation))
    return {
        relative(path, installation.path): f"sha256:{digest}"
        for path, digest in read_recorded_digests(installation).items()
        if path.startswith(inside) and not path.endswith(".pyc")
    }


def _contents(
    found: dict[str, tuple[str, os.stat_result]], wanted: set[str], progress: Progress
) -> dict[str, str]:
    read = [path for path in found if path in wanted and stat.S_ISREG(found[path][1].st_mode)]
    contents = {path: link(found[path][0]) for path in found if stat.S_ISLNK(found[path][1].st_mode)}
    # The largest first, so that at the end no core waits for one that is still reading a library of 1 GB.
    read.sort(key=lambda path: found[path][1].st_size, reverse=True)
    total = sum(found[path][1].st_size for path in read)
    done = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {
            pool.submit(_read_all, [found[path][0] for path in part]): part for part in _parts(read, found)
        }
        for finished in as_completed(running):
            part = running[finished]
            contents.update(zip(part, finished.result(), strict=True))
            done += sum(found[path][1].st_size for path in part)
            progress(done, total)
    return contents


def _parts(paths: list[str], found: dict[str, tuple[str, os.stat_result]]) -> Iterator[list[str]]:
    # Handing over a file costs as much as reading a small one.
    part: list[str] = []
    size = 0
    for path in paths:
        part.append(path)
        size += found[path][1].st_size
        if size >= 16 << 20 or len(part) == 200:
            yield part
            part, size = [], 0
    if part:
        yield part


def _read_all(paths: list[str]) -> list[str]:
    return list(map(content, paths))


def _compare(
    path: str, now: str, status: os.stat_result, recorded: str | None, before: FileEntry | None
) -> Iterator[EnvironmentFinding]:
    # Where RECORD vouches for a file, the fingerprint holds no digest of it.
    wanted = recorded or (before.content if before else None)
    if wanted and now != wanted:
        yield EnvironmentFinding("changed", path, "cannot be read" if now == "unreadable" else "was changed")
    if before and not stat.S_ISLNK(status.st_mode) and stat.S_IMODE(status.st_mode) != before.mode:
        message = f"has mode {stat.S_IMODE(status.st_mode):o}, and had {before.mode:o}"
        yield EnvironmentFinding("mode", path, message)


def _find_base_change(base: BasePython) -> Iterator[EnvironmentFinding]:
    now = digest_of_base(Path(base.path))
    if now is None:
        yield EnvironmentFinding("base", base.path, "its base interpreter is gone")
    elif base.digest and now != base.digest:
        yield EnvironmentFinding("base", base.path, "its base interpreter was changed")
