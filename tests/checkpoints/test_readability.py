"""Every measured sample gets the verdict that real releases gave."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.checkpoints.support import DATA, SAMPLES

from torchenv.checkpoints import inspect
from torchenv.storage.tree import LocalTree

MANIFEST: list[dict[str, Any]] = json.loads((DATA / "manifest.json").read_text())
FORMATS = {"dcp": "dcp", "sh": "dcp", "hf": "hf", "ts": "torch-zip", "jit": "torchscript"}


@pytest.mark.parametrize("sample", MANIFEST, ids=lambda sample: sample["path"])
def test_a_sample_is_read_by_the_releases_that_read_it_when_measured(
    sample: dict[str, Any],
) -> None:
    checkpoint = inspect(LocalTree(SAMPLES / sample["path"]))

    assert checkpoint is not None
    reader = checkpoint.reader
    python = sample["writer_python"]
    for measured in ("readers_2rank", "readers_1proc", "readers_wo_False"):
        if measured == "readers_1proc" and reader.ranks_min > 1:
            continue
        table = sample.get(measured, {"ok": [], "fails": []})
        assert [item for item in table["ok"] if reader.reads(item, python) is False] == []
        # What Python 3.13 wrote was read with 3.11, which is the whole of the failure.
        on = "3.11" if python.startswith("3.13") else python
        assert [fail for fail in table["fails"] if reader.reads(fail, on) is not False] == []
    restricted = sample.get("readers_wo_True", {"ok": [], "fails": []})
    allowed = reader.weights_only
    for outcome, releases in restricted.items():
        if outcome in {"ok", "fails"}:
            reads = [allowed is not None and release in allowed for release in releases]
            assert reads == [outcome == "ok"] * len(releases)


@pytest.mark.parametrize("sample", MANIFEST, ids=lambda sample: sample["path"])
def test_a_sample_is_complete_and_of_its_format(sample: dict[str, Any]) -> None:
    checkpoint = inspect(LocalTree(SAMPLES / sample["path"]))

    assert checkpoint is not None
    kind = sample["kind"]
    expected = FORMATS[kind.partition("_")[0]]
    if kind == "sh_hf":
        expected = "hf"
    if kind in {"ts_legacy", "ts_legacy_shared"}:
        expected = "torch-legacy"
    assert (checkpoint.format, checkpoint.state) == (expected, "complete")
    foreign = ["subcls.MyTensor"] if kind == "ts_subclass" else []
    assert list(checkpoint.foreign) == foreign
    assert [note.code for note in checkpoint.problems] == ["foreign-names"] * len(foreign)
    if kind.startswith(("dcp", "sh")) and kind != "sh_hf":
        assert checkpoint.tensors == len(sample["tensors"])


def test_a_verdict_is_written_as_the_contract_says() -> None:
    checkpoint = inspect(LocalTree(SAMPLES / "2.15.0-py313" / "dcp_async"))

    assert checkpoint is not None
    written = checkpoint.as_json()
    assert written.pop("path").endswith("2.15.0-py313/dcp_async")
    because = written["reader"].pop("because")
    assert [note["code"] for note in because] == [
        "dcp-metadata-module",
        "dcp-storage-meta",
        "python-path",
        "dcp-strides",
    ]
    assert written == {
        "format": "dcp",
        "state": "complete",
        "problems": [],
        "reader": {
            "torch_min": "2.15",
            "torch_max": None,
            "python_min": "3.13",
            "system": None,
            "weights_only": True,
            "allow": [],
            "packages": {},
            "imports": [],
            "ranks_min": 1,
            "nobody": False,
            "certainty": "confirmed",
        },
        "tensors": 2,
        "bytes": 5540,
        "foreign": [],
    }
