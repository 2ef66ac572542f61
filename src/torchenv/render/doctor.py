"""What the doctor found, as people and programs read it."""

from __future__ import annotations

from typing import Any

from torchenv.actions.doctor import Diagnosis
from torchenv.system.documents import plain


def describe_diagnosis(diagnosis: Diagnosis) -> str:
    """Describe one finding a line, the cause first, then the command that cures it."""
    if diagnosis.is_well:
        where = ", ".join(diagnosis.devices) or "the CPU"
        return f"{diagnosis.installation.path}: torch {diagnosis.torch} imports and computes on {where}"
    return "\n".join(f"{finding.advice} [{finding.code}]" for finding in diagnosis.findings)


def encode_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the `torchenv.doctor/1` document."""
    return {
        "schema": "torchenv.doctor/1",
        "path": str(diagnosis.installation.path),
        "layout": diagnosis.installation.layout.value,
        "python": diagnosis.installation.python,
        "torch": diagnosis.torch,
        "devices": list(diagnosis.devices),
        "well": diagnosis.is_well,
        "findings": plain(diagnosis.findings),
    }
