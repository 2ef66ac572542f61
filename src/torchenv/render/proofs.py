"""Smoke runs and evaluations as people and programs read them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchenv.render.environment import columns
from torchenv.system.documents import plain
from torchenv.workspace.keys import as_json

if TYPE_CHECKING:
    from torchenv.actions.evaluate import Evaluated, Judged
    from torchenv.actions.smoke import Smoked


def describe_smoke(smoked: Smoked) -> str:
    """Describe every step, then what is recorded of the environment now."""
    return "\n".join(_smoke_lines(smoked))


def encode_smoke(smoked: Smoked) -> dict[str, Any]:
    """Return the `torchenv.smoke/1` document."""
    return {
        "schema": "torchenv.smoke/1",
        "environment": smoked.environment.number,
        "name": smoked.environment.name,
        "state": smoked.environment.state.value,
        "passed": smoked.proof.passed,
        "proof": as_json(smoked.proof),
        "steps": plain(smoked.steps),
        "log": str(smoked.log),
    }


def describe_evaluation(evaluated: Evaluated) -> str:
    """Describe the metrics of both environments side by side, and what failed."""
    return "\n".join(_evaluation_lines(evaluated))


def encode_evaluation(evaluated: Evaluated) -> dict[str, Any]:
    """Return the `torchenv.evaluation/1` document; a value that JSON has no number for is written as text."""
    return {
        "schema": "torchenv.evaluation/1",
        "old": evaluated.old.environment.number,
        "new": evaluated.new.environment.number,
        "passed": evaluated.has_passed,
        "problems": list(evaluated.problems),
        "metrics": [_metric(metric) for metric in evaluated.metrics],
        "logs": {str(side.environment.number): str(side.log) for side in (evaluated.old, evaluated.new)},
    }


def _smoke_lines(smoked: Smoked) -> Iterator[str]:
    rows = [(step.result.value, f"{step.seconds:6.1f} s", step.name) for step in smoked.steps]
    for line, step in zip(columns(rows).splitlines(), smoked.steps, strict=True):
        yield f"{line}: {step.message}" if step.message else line
    proof = smoked.proof
    if proof.passed and proof.devices:
        yield f"environment {smoked.environment} passed on {', '.join(proof.devices)}"
    elif proof.passed:
        yield f"environment {smoked.environment} passed on the CPU; not yet run on a GPU"
    else:
        yield f"environment {smoked.environment} failed: {'; '.join(proof.said)}"
    yield f"log: {smoked.log}"


def _evaluation_lines(evaluated: Evaluated) -> Iterator[str]:
    old, new = evaluated.old.environment, evaluated.new.environment
    if evaluated.metrics:
        head = ("metric", f"old ({old.number})", f"new ({new.number})", "difference", "allowed", "verdict")
        rows = [(*_row(metric), f"{metric.spread:.6g}") for metric in evaluated.metrics]
        repeated = len(evaluated.old.runs) > 1
        yield columns([row if repeated else row[:-1] for row in ((*head, "spread"), *rows)])
    yield from evaluated.problems
    ended = "within" if evaluated.has_passed else "outside"
    yield f"environment {new} is {ended} the profile's tolerances, compared with environment {old}"
    yield f"logs: {evaluated.old.log} and {evaluated.new.log}"


def _row(judged: Judged) -> tuple[str, ...]:
    return (
        judged.name,
        _number(judged.old),
        _number(judged.new),
        "" if judged.difference is None else f"{judged.difference:+.6g}",
        "" if judged.allowed is None else f"{judged.allowed:.6g}",
        judged.verdict,
    )


def _number(value: Any) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.6g}"
        case _:
            return str(value)


def _metric(judged: Judged) -> dict[str, Any]:
    values: dict[str, Any] = plain(judged)
    for key in ("old", "new"):
        values[key] = _as_json(values[key])
    return values


def _as_json(value: Any) -> Any:
    """Write NaN and Infinity as text, however deep: they are no JSON."""
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {key: _as_json(inner) for key, inner in value.items()}
        case list():
            return [_as_json(inner) for inner in value]
        case _:
            return value
