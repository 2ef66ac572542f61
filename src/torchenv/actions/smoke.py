"""Prove an environment: what training leans on works in it, and the profile's own commands pass."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from packaging.version import Version

from torchenv.actions.causes.devices import find_label_lies
from torchenv.actions.causes.imports import explain_import_failure
from torchenv.actions.commands import command_in, could_not_start, failure, transcript
from torchenv.actions.expected import Expected, read_expected_devices
from torchenv.actions.ports import Ports
from torchenv.actions.run import ProgramEntry, entry
from torchenv.catalogue import Catalogue
from torchenv.environment.inspect import Installation, describe
from torchenv.errors import ToolFailed, WorkspaceError
from torchenv.host.model import Host
from torchenv.installers import interpreter_in
from torchenv.profile.model import Smoke
from torchenv.system.process import Command, Completed, End
from torchenv.workspace.records import Environment, Proof

SCRIPT = Path(__file__).parent.parent / "guest" / "smoke.py"

# How the script marks its lines among what torch prints.
_MARK = "torchenv-smoke "


class Result(Enum):
    """How a step ended; one that is skipped could not be judged here, and says why."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was tried."""

    name: str
    result: Result
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What is to be proven, and where.

    `packages` are the distributions that must import, `directory` is where the profile's commands run, `node`
    the name of this machine and `environ` the user's variables.
    """

    environment: Environment
    smoke: Smoke
    packages: tuple[str, ...]
    catalogue: Catalogue
    host: Host
    node: str
    directory: Path
    environ: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Smoked:
    """What came of it; `environment` is as it is recorded now."""

    environment: Environment
    proof: Proof
    steps: tuple[Step, ...]
    log: Path


@dataclass(slots=True)
class SmokeOutput:
    """What the script inside told: its steps, what torch says of itself, and in which step it ended."""

    steps: list[Step] = field(default_factory=list)
    torch: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    began: str | None = None


def smoke(trial: Trial, ports: Ports) -> Smoked:
    """Run every check in processes of their own, keep the log, and record the environment proven or failed.

    Raises `ToolFailed` where a command of the profile, or the environment's Python, could not start: that
    says nothing of the environment, and nothing is recorded.
    """
    store, environment = ports.store, trial.environment
    around = entry(environment, store, trial.environ)
    own = [
        command_in(environment, store, words, trial.directory, trial.environ)
        for words in trial.smoke.commands
    ]
    ports.say(f"trying environment {environment} from inside, which takes a minute or two")
    inside = ports.run(_inside(around, trial.packages), timeout=trial.smoke.timeout)
    if error := could_not_start(inside):
        raise error
    seen = parse_output(inside, trial.smoke.timeout)
    installation = describe(around.directory)
    steps = [
        *_explain_steps(seen.steps, installation, trial.catalogue),
        *_compare_with_record(environment, seen),
        *_on_devices(read_expected_devices(environment, store, trial.host), seen),
    ]
    logs = [transcript(inside)]
    for command, words in zip(own, trial.smoke.commands, strict=True):
        step, log = _try_command(command, words, trial, ports, after=steps)
        steps.append(step)
        logs.append(log)
    return _record_outcome(trial, seen, tuple(steps), "\n".join(logs), ports)


def parse_output(completed: Completed, timeout: float) -> SmokeOutput:
    """Read what the script inside told before it ended; a step that it did not come back from has failed.

    Raises `ToolFailed` where it told nothing at all.
    """
    seen = SmokeOutput()
    for line in completed.out.splitlines():
        if line.startswith(_MARK):
            _take(json.loads(line.removeprefix(_MARK)), seen)
    if seen.began is None and not seen.steps:
        completed.check("run the smoke checks inside the environment")
        raise ToolFailed("the smoke checks gave no answer", hint=f"run them: {completed.command}")
    if seen.began is not None or completed.code != 0:
        within = seen.began or "between two checks"
        seen.steps.append(Step(within, Result.FAILED, message=_describe_end(completed, timeout)))
    return seen


def _take(fact: Mapping[str, Any], seen: SmokeOutput) -> None:
    match fact:
        case {"began": name}:
            seen.began = name
        case {"step": name, "result": result, "seconds": seconds, "message": message}:
            seen.began = None
            seen.steps.append(Step(name, Result(result), seconds, message))
        case {"torch": torch}:
            seen.torch = torch
        case {"devices": devices}:
            seen.devices = tuple(devices)
        case _:
            pass


def _describe_end(completed: Completed, timeout: float) -> str:
    if completed.end is End.OUT_OF_TIME:
        return f"it was still running after {timeout:g} s, and was stopped"
    said = f": {completed.reason()}" if completed.code >= 0 else ""
    return f"the process {completed.ending()}{said}"


def _inside(around: ProgramEntry, packages: Sequence[str]) -> Command:
    request = json.dumps({"packages": list(packages)})
    python = str(interpreter_in(around.directory))
    return Command(
        (python, "-I", "-B", str(SCRIPT), request),
        cwd=around.directory,
        env=around.set,
        without=around.unset,
    )


def _explain_steps(steps: Sequence[Step], installation: Installation, catalogue: Catalogue) -> Iterator[Step]:
    for step in steps:
        if step.result is Result.FAILED and step.name.startswith("import "):
            package = step.name.removeprefix("import ")
            yield replace(
                step, message=explain_import_failure(step.message, package, installation, catalogue)
            )
        else:
            yield step


def _compare_with_record(environment: Environment, seen: SmokeOutput) -> Iterator[Step]:
    """Compare torch's word on itself with the record, and its label with what it was compiled for."""
    if not seen.torch:
        return
    wrong = "; ".join(_unlike(environment, seen.torch))
    yield Step("torch is what its label says", Result.FAILED if wrong else Result.PASSED, message=wrong)


def _unlike(environment: Environment, torch: Mapping[str, Any]) -> Iterator[str]:
    found = str(torch["version"])
    if environment.torch is not None and not _same(environment.torch, found):
        yield f"torch says that it is {found}, and {environment.torch} was recorded"
    yield from find_label_lies(torch)


def _same(recorded: str, found: str) -> bool:
    # Wheels of macOS carry no label, whatever the plan called the build.
    if "+" in recorded and "+" in found:
        return recorded == found
    return Version(recorded).public == Version(found).public


def _on_devices(expected: Expected, seen: SmokeOutput) -> Iterator[Step]:
    """Fail what was planned for a device and computed on the CPU alone."""
    if not expected.needed or not seen.torch:
        return
    name = "a planned device is there"
    if seen.devices:
        yield Step(name, Result.PASSED, message=", ".join(seen.devices))
        return
    planned = ", ".join(expected.names) or "a device"
    said = f"{planned} was planned for, and torch sees no device here: it computed on the CPU alone"
    yield Step(name, Result.FAILED, message=said)


def _try_command(
    command: Command,
    words: Sequence[str],
    trial: Trial,
    ports: Ports,
    *,
    after: Sequence[Step],
) -> tuple[Step, str]:
    name = " ".join(words)
    if any(each.result is Result.FAILED for each in after):
        return Step(name, Result.SKIPPED, message="not run, since a check before it failed"), ""
    ports.say(f"running {name}")
    began = ports.now()
    completed = ports.run(command, timeout=trial.smoke.timeout)
    if error := could_not_start(completed):
        raise error
    wrong = failure(completed, trial.smoke.timeout)
    seconds = (ports.now() - began).total_seconds()
    step = Step(name, Result.FAILED if wrong else Result.PASSED, seconds, wrong or "")
    return step, transcript(completed)


def _record_outcome(
    trial: Trial, seen: SmokeOutput, steps: tuple[Step, ...], log: str, ports: Ports
) -> Smoked:
    store, number = ports.store, trial.environment.number
    failed = [each for each in steps if each.result is Result.FAILED]
    proof = Proof(
        at=ports.now(),
        passed=not failed,
        what="smoke",
        host=trial.node,
        devices=() if failed else seen.devices,
        git=seen.torch.get("git"),
        said=tuple(f"{each.name}: {each.message}" for each in failed),
    )
    with store.hold(f"torchenv smoke {number}"):
        manifest = store.read()
        if not manifest.number(number).on_disk:
            raise WorkspaceError(f"environment {trial.environment} was removed while it was tried")
        manifest = manifest.record_check(number, proof)
        path = store.write_log(number, f"smoke-{proof.at:%Y%m%dT%H%M%SZ}.txt", log)
        store.write(manifest)
    return Smoked(environment=manifest.number(number), proof=proof, steps=steps, log=path)
