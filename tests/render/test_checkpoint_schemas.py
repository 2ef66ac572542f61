"""What the checkpoint commands print is what their published schemas say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from torchenv.actions.gate import Gate, GateFinding
from torchenv.actions.read_save import Converted
from torchenv.actions.repair import Repaired
from torchenv.checkpoints.contents import ContentsDiff, TensorForm
from torchenv.render.checkpoints import (
    encode_contents_diff,
    encode_converted,
    encode_gate,
    encode_repaired,
)
from torchenv.storage import Transfer

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"

GATE = Gate(runs=2, findings=(GateFinding("unreadable", "runs/a/step-200", "torch 2.14 cannot read it"),))
DIFF = ContentsDiff(
    only_before=("module.w",),
    only_after=("w",),
    changed=(("v", TensorForm((3,), "float32"), TensorForm((4, 2), "bfloat16")),),
    same=1,
    schemes=("names of the first contain `module.`: a wrapper was saved with them",),
)
CONVERTED = Converted(
    source="/runs/a/step-1",
    target="/runs/a/step-1.safetensors",
    form="safetensors",
    torch="2.15.0",
    tensors=1,
    bytes=100,
    left_out=("optim.lr",),
)
REPAIRED = Repaired(
    source="/runs/a/step-1",
    copy="/runs/a-repaired/step-1",
    added=("optim.param_groups.0.decoupled_weight_decay",),
    torch="2.14.1",
    carried=frozenset({Transfer.COPIED}),
)


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("gate", encode_gate(GATE, "2.14")),
        ("checkpoints-diff", encode_contents_diff("a", "b", DIFF)),
        ("convert", encode_converted(CONVERTED)),
        ("repair", encode_repaired(REPAIRED)),
    ],
)
def test_a_document_is_as_its_schema_says(name: str, document: Mapping[str, Any]) -> None:
    schema = json.loads((SCHEMAS / f"torchenv.{name}-1.json").read_text("utf-8"))
    check = Draft202012Validator(schema)
    check.validate(json.loads(json.dumps(document)))
    with pytest.raises(ValidationError):
        check.validate({**document, "schema": "another/1"})
