"""Measure the same in two environments by the profile's own commands, and judge what differs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from statistics import median_low
from typing import Any

from torchenv.actions.commands import command_in, could_not_start, failure, transcript
from torchenv.actions.ports import Ports
from torchenv.errors import InputError
from torchenv.profile.model import Evaluation, Metric
from torchenv.system.process import Command
from torchenv.system.scratch import make_scratch
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment, Proof
from torchenv.workspace.store import Store

# A command may write its metrics to the file of this name instead of printing them last.
METRICS_FILE = "TORCHENV_METRICS"


@frozen(kw_only=True)
class Comparison:
    """What is measured, and in which two environments."""

    old: Environment
    new: Environment
    evaluation: Evaluation
    directory: Path
    environ: Mapping[str, str]
    node: str


@frozen(kw_only=True)
class Measured:
    """What the commands gave in one environment, one mapping a run, or how they failed."""

    environment: Environment
    runs: tuple[Mapping[str, Any], ...]
    problem: str | None
    log: Path


@frozen(kw_only=True)
class Judged:
    """One metric of both; `difference` is new less old, None where one is missing or no number.

    `verdict` is better, same, within tolerance, worse, differs, noisy, or what is wrong with a value. Of
    several runs, `old` and `new` are the middle ones and `spread` is how far those of one side lie apart.
    """

    name: str
    old: Any
    new: Any
    difference: float | None
    allowed: float | None
    verdict: str
    passed: bool
    spread: float = 0.0


@frozen(kw_only=True)
class Evaluated:
    """The whole comparison; `problems` are commands that failed."""

    old: Measured
    new: Measured
    metrics: tuple[Judged, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(
            f"in environment {measured.environment}: {measured.problem}"
            for measured in (self.old, self.new)
            if measured.problem
        )

    @property
    def has_passed(self) -> bool:
        """Whether everything ran and no metric got worse than the profile allows."""
        return not self.problems and all(metric.passed for metric in self.metrics)


def evaluate(comparison: Comparison, ports: Ports) -> Evaluated:
    """Run the commands in both environments, keep their logs, and note the outcome with the new one.

    A run that was finished before an interruption is not run again.
    Raises `InputError` where the profile measures nothing, `ToolFailed` where a command cannot start.
    """
    evaluation = comparison.evaluation
    if not evaluation.commands or not evaluation.metrics:
        missing = "metrics" if evaluation.commands else "commands"
        hint = 'write commands = [["python", "eval.py"]] and metrics = { loss = { better = "lower" } }'
        raise InputError(f"the profile has no [evaluation] {missing}", hint=hint)
    environments = (comparison.old, comparison.new)
    commands = [_commands(environment, comparison, ports) for environment in environments]
    unfinished = _Unfinished.read(comparison, ports.store)
    old, new = (
        _measure(environment, own, comparison, unfinished, ports)
        for environment, own in zip(environments, commands, strict=True)
    )
    metrics: tuple[Judged, ...] = ()
    if old.problem is None and new.problem is None:
        metrics = tuple(
            judge_runs(name, metric, [run.get(name) for run in old.runs], [run.get(name) for run in new.runs])
            for name, metric in evaluation.metrics.items()
        )
    evaluated = Evaluated(old=old, new=new, metrics=metrics)
    _note(evaluated, comparison, ports)
    unfinished.forget(ports.store)
    return evaluated


def judge_runs(name: str, metric: Metric, old: Sequence[Any], new: Sequence[Any]) -> Judged:
    """Compare one metric by its middle runs; a change within the spread of one environment is noise."""
    judged = judge_metric(name, metric, _middle(old), _middle(new))
    if judged.difference is None:
        return judged
    spread = float(max(max(old) - min(old), max(new) - min(new)))
    if judged.passed or abs(judged.difference) > spread:
        return replace(judged, spread=spread)
    return replace(judged, spread=spread, verdict="noisy", passed=True)


def judge_metric(name: str, metric: Metric, old: Any, new: Any) -> Judged:
    """Compare one metric; what is missing or is no number fails."""
    for which, value in (("the old", old), ("the new", new)):
        if (wrong := _no_number(value)) is not None:
            said = f"{which} value {wrong}"
            return Judged(
                name=name, old=old, new=new, difference=None, allowed=None, verdict=said, passed=False
            )
    difference = new - old
    allowed = max(metric.relative * abs(old), metric.absolute)
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


def _middle(values: Sequence[Any]) -> Any:
    """Return the middle value, or the first that is no number."""
    wrong = next((value for value in values if _no_number(value) is not None), None)
    if wrong is not None or any(value is None for value in values):
        return wrong
    return median_low(values)


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
    unfinished: _Unfinished,
    ports: Ports,
) -> Measured:
    runs: list[Mapping[str, Any]] = list(unfinished.runs.get(environment.number, ()))
    problem: str | None = None
    log = f"{len(runs)} runs were finished before\n" if runs else ""
    while len(runs) < comparison.evaluation.repeat and problem is None:
        metrics, problem, printed = _run_once(environment, commands, comparison, ports)
        log += printed
        if problem is None:
            runs.append(metrics)
            unfinished.keep(environment.number, runs, ports.store)
    with ports.store.hold(f"torchenv evaluate {environment.number}"):
        name = f"evaluate-{ports.now():%Y%m%dT%H%M%SZ}.txt"
        path = ports.store.write_log(environment.number, name, log)
    return Measured(environment=environment, runs=tuple(runs), problem=problem, log=path)


def _run_once(
    environment: Environment,
    commands: list[tuple[tuple[str, ...], Command]],
    comparison: Comparison,
    ports: Ports,
) -> tuple[dict[str, Any], str | None, str]:
    metrics: dict[str, Any] = {}
    log = ""
    for words, command in commands:
        ports.say(f"running {' '.join(words)} in environment {environment}")
        found, problem, printed = _run(command, comparison.evaluation.timeout, ports)
        metrics |= found
        log += printed
        if problem is not None:
            return metrics, f"`{' '.join(words)}` failed: {problem}", log
    return metrics, None, log


@frozen
class _Unfinished:
    """The runs that an interrupted evaluation has finished, for the very same comparison alone."""

    number: int
    key: str
    runs: dict[int, list[Mapping[str, Any]]]

    @classmethod
    def read(cls, comparison: Comparison, store: Store) -> _Unfinished:
        evaluation, pair = comparison.evaluation, (comparison.old, comparison.new)
        what = [[one.number, one.fingerprint, one.torch] for one in pair]
        programs = [_digest(comparison.directory / word) for words in evaluation.commands for word in words]
        parts = [what, evaluation.commands, str(comparison.directory), programs]
        key = sha256(json.dumps(parts).encode()).hexdigest()
        try:
            kept = json.loads(store.read_log(comparison.new.number, _UNFINISHED) or "{}")
            if isinstance(kept, dict) and kept.get("key") == key:
                runs = {int(number): list(found) for number, found in kept["runs"].items()}
                return cls(comparison.new.number, key, runs)
        except (ValueError, LookupError, TypeError, AttributeError):
            # A damaged note costs a run, not the evaluation.
            pass
        return cls(comparison.new.number, key, {})

    def keep(self, number: int, runs: Sequence[Mapping[str, Any]], store: Store) -> None:
        self.runs[number] = list(runs)
        with store.hold(f"torchenv evaluate {self.number}"):
            store.write_log(self.number, _UNFINISHED, json.dumps({"key": self.key, "runs": self.runs}))

    def forget(self, store: Store) -> None:
        with store.hold(f"torchenv evaluate {self.number}"):
            store.write_log(self.number, _UNFINISHED, "{}")


_UNFINISHED = "evaluate-unfinished.json"


def _digest(path: Path) -> str | None:
    """Return the digest of a file that a command names, so that a changed program is measured anew."""
    try:
        return sha256(path.read_bytes()).hexdigest() if os.path.isfile(path) else None
    except OSError:
        return None


def _run(command: Command, timeout: float, ports: Ports) -> tuple[dict[str, Any], str | None, str]:
    with make_scratch() as directory:
        file = directory / "metrics.json"
        command = replace(command, env={**command.env, METRICS_FILE: str(file)})
        completed = ports.run(command, timeout=timeout)
        if error := could_not_start(completed):
            raise error
        written = file.read_text(encoding="utf-8", errors="replace") if os.path.isfile(file) else None
    problem = failure(completed, timeout)
    metrics = {} if problem else read_metrics(completed.out if written is None else written)
    return metrics, problem, transcript(completed) + (written or "")


def read_metrics(text: str) -> dict[str, Any]:
    """Return the last JSON object that a command printed, pretty-printed or not, whatever comes after it.

    A command that only prepares prints none; a metric that is missed by name is told as missing.
    """
    lines = text.splitlines(keepends=True)
    # One that begins a line; what is inside another one is indented, or follows a bracket.
    for at in [at for at, line in enumerate(lines) if line.startswith("{")][: -_TRIED - 1 : -1]:
        # A number of more than 4300 digits is a ValueError of Python's own.
        with suppress(ValueError, RecursionError):
            value, _ = json.JSONDecoder().raw_decode("".join(lines[at:]))
            if isinstance(value, dict):
                return value
    return {}


# A text of nothing but brackets must not take for ever.
_TRIED = 100


def _note(evaluated: Evaluated, comparison: Comparison, ports: Ports) -> None:
    number = comparison.new.number
    proof = Proof(
        at=ports.now(),
        passed=evaluated.has_passed,
        what=f"evaluate against {comparison.old.number}",
        host=comparison.node,
        said=(
            *evaluated.problems,
            *(
                f"{metric.name}: {metric.old} to {metric.new}, {metric.verdict}"
                for metric in evaluated.metrics
            ),
        ),
    )
    with ports.store.hold(f"torchenv evaluate {number}"):
        ports.store.write(ports.store.read().record_note(number, proof))
