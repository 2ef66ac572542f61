"""What stands around an environment and may undo it, or lead its Python elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torchenv.host.model import Problem


def find_surroundings(
    environ: Mapping[str, str], project: Path | None, *, torch: str | None = None
) -> tuple[Problem, ...]:
    """Look for what a person should know: a lock of uv's beside the project, conda's base, PYTHONPATH.

    `torch` is the version that is wanted (2.14.1+cu126); a lock that holds the very same is no trouble.
    Codes: project-resync, conda-base-active, python-path.
    """
    return (*_resync(environ, project, torch), *_conda_base(environ), *_python_path(environ))


def _resync(environ: Mapping[str, str], project: Path | None, torch: str | None) -> Iterator[Problem]:
    """Describe which torch `uv sync`, and every `uv run`, would put in the place of the one that is there."""
    lock = project / "uv.lock" if project else None
    pinned = _read_pins(lock) if lock else ()
    if not pinned or set(pinned) == {torch}:
        return
    would = f"{lock} pins torch {' and '.join(pinned)}: `uv sync` installs that again"
    if environ.get("UV_NO_SYNC", "").lower() in {"1", "true", "yes", "on"}:
        yield Problem("project-resync", str(lock), f"{would}; UV_NO_SYNC keeps `uv run` from it")
    else:
        cure = "`uv run --no-sync` or UV_NO_SYNC=1 keeps what is there"
        yield Problem("project-resync", str(lock), f"{would}, and so does every `uv run`; {cure}")


def _read_pins(lock: Path) -> tuple[str, ...]:
    # [[package]]
    # name = "torch"
    # version = "2.15.0"
    try:
        text = lock.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    if '"torch"' not in text:
        return ()
    import tomllib

    try:
        packages: list[dict[str, Any]] = tomllib.loads(text).get("package", [])
        found = [package.get("version") for package in packages if package.get("name") == "torch"]
    except (ValueError, RecursionError, TypeError, AttributeError):
        return ()
    return tuple(dict.fromkeys(str(found_item) for found_item in found if found_item))


def _conda_base(environ: Mapping[str, str]) -> Iterator[Problem]:
    base = environ.get("CONDA_PREFIX")
    if base and environ.get("CONDA_DEFAULT_ENV") == "base":
        message = f"conda's base environment {base} is active in this shell and is not touched"
        yield Problem("conda-base-active", "CONDA_PREFIX", message)


def _python_path(environ: Mapping[str, str]) -> Iterator[Problem]:
    for name in ("PYTHONHOME", "PYTHONPATH"):
        if environ.get(name):
            message = f"{name} points every Python of this shell at {environ[name]}"
            yield Problem("python-path", name, f"{message}; unset it first")
