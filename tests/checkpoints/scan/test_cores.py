"""What is much is looked at in several processes, which find the same and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.checkpoints import save

from torchenv.checkpoints import scan as scanning
from torchenv.checkpoints.scan import cores, scan_into
from torchenv.checkpoints.scan.index import ScanIndex
from torchenv.storage import place


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scanning, "_MANY", 4)
    monkeypatch.setattr(cores, "_BATCH", 2)
    for step, sample in enumerate(["dcp-2.14.1", "dcp-2.15.0", "dcp-truncmeta"] * 3):
        save(tmp_path / "runs" / "a" / f"step-{step}", sample)
    (tmp_path / "runs" / "a" / "latest").write_text("step-3")
    return tmp_path / "runs"


def look(runs: Path, workers: int) -> ScanIndex:
    index = ScanIndex()
    scan_into(index, [place(runs)], None, lambda _: None, workers=workers)
    return index


def test_several_processes_find_what_one_does(runs: Path) -> None:
    one, two = look(runs, 1), look(runs, 2)
    assert two.read == one.read == 10

    def describe(index: ScanIndex) -> dict[str, list[object]]:
        return {
            f"{address}/{found.name}": [
                found._replace(reader=0),
                index.readers[found.reader],
                scanned.pointers,
            ]
            for _, address, scanned, found in index
        }

    assert describe(two) == describe(one)
    assert len(describe(two)) == 9


def test_what_was_seen_before_an_interrupt_is_there_and_the_processes_end(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = ScanIndex()
    add = index.number

    def interrupt(reader: object) -> int:
        if len(index.roots[str(runs)]) >= 4:
            raise KeyboardInterrupt
        return add(reader)  # type: ignore[arg-type]

    monkeypatch.setattr(ScanIndex, "number", lambda _, reader: interrupt(reader))
    with pytest.raises(KeyboardInterrupt):
        scan_into(index, [place(runs)], None, lambda _: None, workers=2)
    assert len(index.roots[str(runs)]) >= 4
