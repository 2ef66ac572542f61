"""A shell with conda's base environment active: nothing goes into it, and it is said."""

from __future__ import annotations

from pathlib import Path

from tests.support.index import Index
from tests.support.terminal import Terminal
from tests.support.workshop import PYTHON
from tests.support.workspace import write_venv

from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.inspect import describe


def test_the_only_target_is_the_new_environment(terminal: Terminal, index: Index, tmp_path: Path) -> None:
    base = tmp_path / "home" / "miniforge3"
    write_venv(base, {"torch": "2.6.0"})
    (base / "pyvenv.cfg").unlink()
    (base / "conda-meta").mkdir()
    (base / "conda-meta" / f"python-{PYTHON}-0_cpython.json").write_text('{"files": []}', "utf-8")
    before = fingerprint(describe(base)).digest
    ended = terminal.create(
        CONDA_PREFIX=str(base), CONDA_DEFAULT_ENV="base", CONDA_SHLVL="1", PIP_TARGET=str(base / "target")
    )
    assert ended.code == 0, ended.err
    assert len(terminal.built()) == 1
    assert fingerprint(describe(base)).digest == before
    assert not (base / "target").exists()
    assert f"{base} (conda)" in ended.err
    assert "not touched" in ended.err
    assert f"{base} unchanged" in ended.err
