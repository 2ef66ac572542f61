"""Measure the same in two environments by the profile's own commands, and judge what differs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torchenv.actions.commands import command_in, could_not_start, failure, transcript
from torchenv.actions.ports import Ports
from torchenv.errors import InputError
from torchenv.profile.model import Evaluation, Metric
from torchenv.system.process import Command
from torchenv.workspace.records import Environment, Proof

# A command may write its metrics to the file of this name instead of printing them last.
METRICS_FILE = "TORCHENV_METRICS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What is measured, and in which two environments."""

    old: Environment
    new: Environment
    evaluation: Evaluation
    directory: Path
    environ: Mapping[str, str]
    node: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What the commands gave in one environment, or how they failed."""

    environment: Environment
    metrics: Mapping[str, Any]
    problem: str | None
    log: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One metric of both; `difference` is new less old, None where one is missing or no number.

    `verdict` is better, same, within tolerance, worse, differs, or what is wrong with a value.
    """

    name: str
    old: Any
    new: Any
    difference: float | None
    allowed: float | None
    verdict: str
    passed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluated:
    """The whole comparison; `problems` are commands that failed."""

    old: Measured
    new: Measured
    metrics: tuple[Judged, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(
            f"in environment {each.environment}: {each.problem}"
            for each in (self.old, self.new)
            if each.problem
        )

    @property
    def has_passed(self) -> bool:
        """Whether everything ran and no metric got worse than the profile allows."""
        return not self.problems and all(each.passed for each in self.metrics)


def evaluate(comparison: Comparison, ports: Ports) -> Evaluated:
    """Run the commands in both environments, keep their logs, and note the outcome with the new one.

    Raises `InputError` where the profile measures nothing, `ToolFailed` where a command cannot start.
    """
    evaluation = comparison.evaluation
    if not evaluation.commands or not evaluation.metrics:
        missing = "metrics" if evaluation.commands else "commands"
        hint = 'write commands = [["python", "eval.py"]] and metrics = { loss = { better = "lower" } }'
        raise InputError(f"the profile has no [evaluation] {missing}", hint=hint)
    environments = (comparison.old, comparison.new)
    commands = [_commands(each, comparison, ports) for each in environments]
    measured = [
        _measure(each, own, comparison, ports) for each, own in zip(environments, commands, strict=True)
    ]
    old, new = measured
    metrics: tuple[Judged, ...] = ()
    if old.problem is None and new.problem is None:
        metrics = tuple(
            judge_metric(name, metric, old.metrics.get(name), new.metrics.get(name))
            for name, metric in evaluation.metrics.items()
        )
    evaluated = Evaluated(old=old, new=new, metrics=metrics)
    _note(evaluated, comparison, ports)
    return evaluated


def judge_metric(name: str, metric: Metric, old: Any, new: Any) -> Judged:
    """Compare one metric; what is missing or is no number fails."""
    for which, value in (("the old", old), ("the new", new)):
        if (wrong := _no_number(value)) is not None:
            said = f"{which} value {wrong}"
            return Judged(
                name=name, old=old, new=new, difference=None, allowed=None, verdict=said, passed=False
            )
    difference = new - old
    allowed = metric.tolerance * abs(old)
    worse = {"lower": difference, "higher": -difference, "equal": abs(difference)}[metric.better]
    # 1.01 - 1.0 is a little more than 0.01.
    passed = worse <= allowed or math.isclose(worse, allowed, rel_tol=1e-9)
    if difference == 0:
        verdict = "same"
    elif worse < 0:
        verdict = "better"
    elif passed:
        verdict = "within tolerance"
    else:
        verdict = "differs" if metric.better == "equal" else "worse"
    return Judged(
        name=name, old=old, new=new, difference=difference, allowed=allowed, verdict=verdict, passed=passed
    )


def _no_number(value: Any) -> str | None:
    if value is None:
        return "is missing"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is not a number: {json.dumps(value)}"
    try:
        return None if math.isfinite(value) else f"is {value}"
    except OverflowError:
        return "is too large"


def _commands(
    environment: Environment, comparison: Comparison, ports: Ports
) -> list[tuple[tuple[str, ...], Command]]:
    return [
        (words, command_in(environment, ports.store, words, comparison.directory, comparison.environ))
        for words in comparison.evaluation.commands
    ]


def _measure(
    environment: Environment,
    commands: list[tuple[tuple[str, ...], Command]],
    comparison: Comparison,
    ports: Ports,
) -> Measured:
    metrics: dict[str, Any] = {}
    problem: str | None = None
    log = ""
    for words, command in commands:
        ports.say(f"running {' '.join(words)} in environment {environment}")
        found, problem, printed = _run(command, comparison.evaluation.timeout, ports)
        metrics |= found
        log += printed
        if problem is not None:
            problem = f"`{' '.join(words)}` failed: {problem}"
            break
    with ports.store.hold(f"torchenv evaluate {environment.number}"):
        name = f"evaluate-{ports.now():%Y%m%dT%H%M%SZ}.txt"
        path = ports.store.write_log(environment.number, name, log)
    return Measured(environment=environment, metrics=metrics, problem=problem, log=path)


def _run(command: Command, timeout: float, ports: Ports) -> tuple[dict[str, Any], str | None, str]:
    with TemporaryDirectory(prefix="torchenv-evaluate-") as directory:
        file = Path(directory, "metrics.json")
        command = replace(command, env={**command.env, METRICS_FILE: str(file)})
        completed = ports.run(command, timeout=timeout)
        if error := could_not_start(completed):
            raise error
        written = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None
    lines = completed.out.strip().splitlines()
    problem = failure(completed, timeout)
    metrics = {} if problem else _object(written if written is not None else "".join(lines[-1:]))
    return metrics, problem, transcript(completed) + (written or "")


def _object(text: str) -> dict[str, Any]:
    # A command that only prepares prints no metrics; one that is missed by name is told as missing.
    # A number of more than 4300 digits is a ValueError of Python's own.
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    return {}


def _note(evaluated: Evaluated, comparison: Comparison, ports: Ports) -> None:
    number = comparison.new.number
    proof = Proof(
        at=ports.now(),
        passed=evaluated.has_passed,
        what=f"evaluate against {comparison.old.number}",
        host=comparison.node,
        said=(
            *evaluated.problems,
            *(f"{each.name}: {each.old} to {each.new}, {each.verdict}" for each in evaluated.metrics),
        ),
    )
    with ports.store.hold(f"torchenv evaluate {number}"):
        ports.store.write(ports.store.read().record_note(number, proof))
