"""Prove an environment: what training leans on works in it, and the profile's own commands pass."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from packaging.version import Version

from torchenv.actions.building import find_lock_differences
from torchenv.actions.causes.devices import find_device_causes, find_label_lies, list_total_masks
from torchenv.actions.causes.imports import explain_import_failure
from torchenv.actions.causes.texts import explain_signal, find_known_texts
from torchenv.actions.commands import command_in, could_not_start, failure, transcript
from torchenv.actions.expected import Expected, read_expected_devices
from torchenv.actions.ports import Ports
from torchenv.actions.run import ProgramEntry, entry
from torchenv.catalogue.releases import Catalogue
from torchenv.environment.inspect import Distribution, Installation, canonical, describe, distributions
from torchenv.environment.verify import verify_binaries
from torchenv.errors import ToolFailed, WorkspaceError
from torchenv.host.model import Host
from torchenv.installers import interpreter_in
from torchenv.lockfile.lock import Lock
from torchenv.packages.installed import list_unmet
from torchenv.profile.model import Smoke
from torchenv.system.documents import Table
from torchenv.system.process import Command, Completed, End
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment, Proof
from torchenv.workspace.store import Store

SCRIPT = Path(__file__).parent.parent / "guest" / "smoke.py"

# How the script marks its lines among what torch prints.
_MARK = "torchenv-smoke "


class Result(Enum):
    """How a step ended; one that is skipped could not be judged here, and says why."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@frozen
class Step:
    """One thing that was tried."""

    name: str
    result: Result
    seconds: float = 0.0
    message: str = ""


@frozen(kw_only=True)
class Trial:
    """What is to be proven, and where.

    `profile` is the name of whose commands run in `directory`, `packages` are distributions that must import,
    `node` is the name of this machine and `environ` the user's variables.
    """

    environment: Environment
    smoke: Smoke
    profile: str
    packages: tuple[str, ...]
    catalogue: Catalogue
    host: Host
    node: str
    directory: Path
    environ: Mapping[str, str]


@frozen(kw_only=True)
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
    expected = read_expected_devices(environment, store, trial.host)
    masks = _list_masks(expected, around, trial)
    own = [
        _without(masks, command_in(environment, store, words, trial.directory, trial.environ))
        for words in trial.smoke.commands
    ]
    installation = describe(around.directory)
    installed = distributions(installation)
    ports.say("checking what its packages require, and hashing its libraries")
    steps = [
        *_check_requirements(installation, installed),
        *_compare_with_lock(environment, store, installed),
        *_hash_binaries(installation),
    ]
    packages = _list_imports(trial, installed, store)
    ports.say(f"running the checks in environment {environment} (about 80 s)")
    command = _without(masks, _inside(around, packages, store.root))
    inside = ports.run(command, timeout=trial.smoke.timeout)
    if error := could_not_start(inside):
        raise error
    seen = parse_output(inside, trial.smoke.timeout)
    steps += [
        *_explain_steps(seen.steps, installation, inside, trial.catalogue),
        *_name_harmless_warnings(inside),
        *_compare_with_record(environment, seen),
        *_describe_masks(masks, trial),
        *_on_devices(expected, seen, installation, trial),
    ]
    logs = [transcript(inside)]
    for command, words in zip(own, trial.smoke.commands, strict=True):
        step, log = _try_command(command, words, trial, ports, after=steps)
        steps.append(step)
        logs.append(log)
    return _record_outcome(trial, seen, tuple(steps), "\n".join(logs), ports)


def _list_imports(trial: Trial, installed: Sequence[Distribution], store: Store) -> tuple[str, ...]:
    """Name what must import: what the profile lists, what was planned, and what rests on torch's binaries."""
    present = {canonical(package.name) for package in installed}
    path = store.plan_path(trial.environment.number)
    planned: list[str] = []
    if os.path.isfile(path):
        plan = Table.from_json(path.read_text(encoding="utf-8"), str(path))
        planned = [re.split(r"[^\w.-]", wanted)[0] for wanted in plan.strings("requirements")]
    close = [name for name in sorted(present) if name in trial.catalogue.family or name in _CLOSE_TO_TORCH]
    names = dict.fromkeys(map(canonical, (*trial.packages, *planned, *close)))
    return tuple(name for name in names if name != "torch")


# What torch itself calls, and what goes wrong in another version of it.
_CLOSE_TO_TORCH = frozenset({"numpy", "triton", "triton-rocm", "triton-xpu"})


def _check_requirements(installation: Installation, installed: Sequence[Distribution]) -> Iterator[Step]:
    unmet = list_unmet(installed, installation.python)
    said = "; ".join(
        f"{wanted.package} requires {wanted.requirement}, and has {wanted.found or 'none'}"
        for wanted in unmet
    )
    yield Step("declared requirements hold", Result.FAILED if unmet else Result.PASSED, message=said)


def _compare_with_lock(
    environment: Environment, store: Store, installed: Sequence[Distribution]
) -> Iterator[Step]:
    path = store.lock_path(environment.number)
    if not os.path.isfile(path):
        return
    lock = Lock.parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
    found = {canonical(package.name): package.version for package in installed}
    said = "; ".join(find_lock_differences(lock, found))
    yield Step("packages are those of the lock file", Result.FAILED if said else Result.PASSED, message=said)


def _hash_binaries(installation: Installation) -> Iterator[Step]:
    began = time.perf_counter()
    count, wrong = verify_binaries(installation)
    seconds = round(time.perf_counter() - began, 3)
    name = "libraries are as installed"
    if not count:
        message = "no installer recorded their digests, so nothing was checked"
        yield Step(name, Result.SKIPPED, seconds, message)
    elif wrong:
        yield Step(name, Result.FAILED, seconds, "; ".join(map(str, wrong[:5])))
    else:
        yield Step(name, Result.PASSED, seconds, f"{count} files hashed")


def _list_masks(expected: Expected, around: ProgramEntry, trial: Trial) -> tuple[str, ...]:
    """Return the variables of the user's that hide every planned device; those of the plan itself stay."""
    if not expected.needed:
        return ()
    return tuple(name for name in list_total_masks(trial.host) if name not in around.set)


def _without(masks: tuple[str, ...], command: Command) -> Command:
    return replace(command, without=(*command.without, *masks)) if masks else command


def _describe_masks(masks: tuple[str, ...], trial: Trial) -> Iterator[Step]:
    for name in masks:
        message = (
            f"{name}={trial.environ.get(name, '')} hides every planned device; the checks ran without it"
        )
        yield Step("no mask hides the devices", Result.SKIPPED, message=message)


# NVIDIA GB10 with CUDA capability 12.1 … (8.0) - (12.0): code for 12.0 runs on 12.1.
_BESIDE = re.compile(
    r"cuda capability (\d+)\.(\d+)\.?.{0,200}?\(\d+\.\d+\) - \((\d+)\.(\d+)\)", re.DOTALL | re.IGNORECASE
)


def _name_harmless_warnings(completed: Completed) -> Iterator[Step]:
    for match in _BESIDE.finditer(completed.err):
        major, minor, newest, below = map(int, match.groups())
        if major == newest and minor > below:
            message = (
                f"torch warns of compute capability {major}.{minor}: its code for {newest}.{below} runs on it"
            )
            yield Step("known harmless warning", Result.PASSED, message=message)
            return


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
        raise ToolFailed("the smoke checks did not answer", hint=f"run them: {completed.command}")
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
        return f"it was stopped after {timeout:g} s"
    said = completed.reason() if completed.code >= 0 else explain_signal(completed.code).why
    return f"the process {completed.ending()}: {said}"


def _inside(around: ProgramEntry, packages: Sequence[str], root: Path) -> Command:
    # Where the temporary directory is full or runs no code, the workspace stands in.
    request = json.dumps({"packages": list(packages), "scratch": str(root)})
    python = str(interpreter_in(around.directory))
    return Command(
        (python, "-I", "-B", str(SCRIPT), request),
        cwd=around.directory,
        env=around.set,
        without=around.unset,
    )


def _explain_steps(
    steps: Sequence[Step], installation: Installation, completed: Completed, catalogue: Catalogue
) -> Iterator[Step]:
    """Add to what failed the cause that is known of it: by the files, else by what was printed."""
    for step in steps:
        if step.result is not Result.FAILED:
            yield step
            continue
        message = step.message
        if step.name.startswith("import "):
            package = step.name.removeprefix("import ")
            message = explain_import_failure(message, package, installation, catalogue)
        if message == step.message:
            printed = f"{message}\n{completed.err}"
            known = next(find_known_texts(printed, str(installation.path)), None)
            message = f"{message} ({known.message})" if known else message
        yield replace(step, message=message)


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


def _on_devices(
    expected: Expected, seen: SmokeOutput, installation: Installation, trial: Trial
) -> Iterator[Step]:
    """Fail what was planned for a device and computed on the CPU alone, with the nearest cause."""
    if not expected.needed or not seen.torch:
        return
    name = "a planned device is there"
    if seen.devices:
        yield Step(name, Result.PASSED, message=", ".join(seen.devices))
        return
    planned = ", ".join(expected.names) or "a device"
    said = f"{planned} was planned for, but torch sees no device here: only the CPU was tested"
    # The checks ran without the masks that hide all of them.
    cause = next(find_device_causes(installation, trial.host, trial.catalogue, {}), None)
    said = f"{said} ({cause.message})" if cause else said
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
    if any(step.result is Result.FAILED for step in after):
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
    failed = [step for step in steps if step.result is Result.FAILED]
    proof = Proof(
        at=ports.now(),
        passed=not failed,
        what="smoke",
        host=trial.node,
        devices=() if failed else seen.devices,
        git=seen.torch.get("git"),
        said=tuple(f"{step.name}: {step.message}" for step in failed),
        profile=trial.profile,
        commands=tuple(map(shlex.join, trial.smoke.commands)),
    )
    with store.hold(f"torchenv smoke {number}"):
        manifest = store.read()
        if not manifest.number(number).on_disk:
            raise WorkspaceError(f"environment {trial.environment} was removed while it was tested")
        manifest = manifest.record_check(number, proof)
        path = store.write_log(number, f"smoke-{proof.at:%Y%m%dT%H%M%SZ}.txt", log)
        store.write(manifest)
    return Smoked(environment=manifest.number(number), proof=proof, steps=steps, log=path)
