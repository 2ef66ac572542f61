"""What an environment is known by, wherever its directory goes."""

from __future__ import annotations

import os
from pathlib import Path

# torchenv leaves this file in what it built.
IDENTITY_FILE = ".torchenv-id"


def identity(path: Path) -> str | None:
    """Return what an environment is known by; None where nothing tells.

    Where torchenv may not leave its own file, a venv is known by its pyvenv.cfg and the moment that was
    written, and a conda environment by the first entry of its history: renaming keeps both, and an
    environment made anew at the same place has others.
    """
    own = _read(path / IDENTITY_FILE)
    if own is not None:
        return own.strip()
    settings = path / "pyvenv.cfg"
    if (text := _read(settings)) is not None:
        return f"venv-{_digest(f'{settings.stat().st_mtime_ns} {text}')}"
    # ==> 2026-11-02 09:12:44 <==
    if (text := _read(path / "conda-meta" / "history")) is not None:
        return f"conda-{_digest(text.partition('<==')[0])}"
    return None


def new_identity() -> str:
    """Make up what a new environment will be known by."""
    return os.urandom(16).hex()


def _digest(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode()).hexdigest()[:32]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
