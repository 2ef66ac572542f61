"""Move the pointer: to another environment, or back to the one that was in use before."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from torchenv.actions.run import directory_of
from torchenv.checkpoints.lifeboats import describe_run
from torchenv.environment.inspect import describe
from torchenv.errors import NothingSuits, TorchenvError, WorkspaceError
from torchenv.profile.model import Smoke
from torchenv.system.processes import Process, Running
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, EnvironmentKind, Kept, Run, State
from torchenv.workspace.store import Store

# A person reads of this many runs; the document holds all.
_WARNED = 10


@frozen(kw_only=True)
class Switched:
    """One move of the pointer, and what a person should know of it.

    `running` still run from the environment before; `runs` are the training runs as the last scan saw them.
    """

    before: Environment | None
    now: Environment
    said: tuple[str, ...] = ()
    running: tuple[Process, ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def has_moved(self) -> bool:
        """Whether the pointer led elsewhere before."""
        return self.before is None or self.before.number != self.now.number


@frozen(kw_only=True)
class Outside:
    """What a switch needs beside the workspace: who runs, the time in UTC, and who is warned beforehand.

    `find_fallback` names the line of releases to fall back to from a torch; None where there is none.
    """

    running: Running
    now: Callable[[], datetime]
    say: Callable[[str], None] = lambda _: None
    find_fallback: Callable[[str], str | None] = lambda _: None


def use(
    named: str,
    store: Store,
    outside: Outside,
    *,
    why: str = "use",
    force: bool = False,
    proof: Smoke | None = None,
) -> Switched:
    """Make the environment that `named` means the active one; `proof` is whose commands it must have passed.

    Where these are required, a proof by other commands does not count. The previous environment and those
    that were made elsewhere need none: they were in use before.

    Raises `NothingSuits` where that needs `force`, `WorkspaceError` where the environment cannot be used.
    """
    with store.hold_existing(f"torchenv {why} {named}"):
        manifest = store.settle()
        target = manifest.find(named)
        if not force and target.number != manifest.current:
            previous = manifest.rollback_target(lambda _: True)
            known = target == previous or target.kind is EnvironmentKind.ADOPTED
            _refuse_unproven(target, None if known else proof)
        return _switch_to(manifest, target, store, outside, why=why)


def rollback(named: str | None, store: Store, outside: Outside, *, advice: bool = True) -> Switched:
    """Go back to the environment that `named` means, else to the one before; reads no package and no network.

    Without `advice` the command that makes copies of what cannot be read there goes untold.
    Raises `NothingSuits` where there is nothing to go back to.
    """
    with store.hold_existing("torchenv rollback"):
        manifest = store.settle()
        target, passed_over = way_back(manifest, named, store, outside)
        return _switch_to(manifest, target, store, outside, why="rollback", said=passed_over, advice=advice)


def way_back(
    manifest: Manifest, named: str | None, store: Store, outside: Outside
) -> tuple[Environment, tuple[str, ...]]:
    """Return the environment that a rollback leads to, with a sentence on each that was passed over.

    One more says so where it leads to an environment whose smoke commands failed.
    """
    if named is not None:
        return manifest.find(named), ()
    passed_over: dict[Environment, str] = {}

    def usable(environment: Environment) -> bool:
        why = unusable(environment, store)
        if why is not None:
            passed_over[environment] = f"skipping environment {environment}: {why}"
        return why is None

    target = manifest.rollback_target(usable)
    if target is None:
        raise _nothing_before(manifest, passed_over, store, outside)
    return target, (*passed_over.values(), *_describe_failed_proofs(target))


def _describe_failed_proofs(target: Environment) -> Iterator[str]:
    failed = [proof for proof in target.proofs if not proof.passed]
    if target.state is State.FAILED and failed:
        when = f"{failed[-1].at:%Y-%m-%d %H:%M}"
        yield f"environment {target} failed its smoke commands at {when}; there is no other previous one"


def unusable(environment: Environment, store: Store) -> str | None:
    """Explain why an environment cannot be used as it is on the disk; None where it can."""
    try:
        installation = describe(directory_of(environment, store))
    except TorchenvError as error:
        return error.message
    if installation.interpreter is None or not os.path.exists(installation.interpreter):
        return f"its interpreter is gone: {installation.interpreter or installation.path}"
    if environment.torch is not None and installation.torch is None:
        return f"torch {environment.torch} is no longer in {installation.path}"
    return None


def name_way_off(manifest: Manifest, store: Store) -> str:
    """Return the hint by which another environment becomes the active one."""
    before = manifest.rollback_target(lambda item: unusable(item, store) is None)
    others = [item for item in manifest.environments if item.live and item.number != manifest.current]
    usable = [before] if before else [item for item in others if unusable(item, store) is None]
    if usable:
        return f"switch to another one first with `torchenv use {usable[-1].number}`"
    return "make another one first; `torchenv plan --explain` shows what there is to choose"


def find_readers(kept: Kept, manifest: Manifest, store: Store) -> tuple[Environment, ...]:
    """Return the environments that can read a lifeboat and that can be used as they are on the disk."""
    return tuple(item for item in manifest.readers(kept) if unusable(item, store) is None)


def is_last_reader(environment: Environment, kept: Kept, manifest: Manifest, store: Store) -> bool:
    """Whether an environment is recorded as a reader of a lifeboat that no other usable one reads.

    It need not be usable itself: its disk may be away for a while.
    """
    if environment not in manifest.readers(kept):
        return False
    return all(item.number == environment.number for item in find_readers(kept, manifest, store))


def drift(environment: Environment, path: Path) -> str | None:
    """Describe which torch someone has put in the place of the one that was recorded; None where none has."""
    found = describe(path).torch
    if found == environment.torch:
        return None
    # Wheels of the default index carry their label inside only, and those of macOS none.
    unlabelled = environment.kind is EnvironmentKind.BUILT and environment.index is None
    if unlabelled and _public(found) == _public(environment.torch):
        return None
    return f"drift: torch {environment.torch} -> {found}"


def _describe_verified(environment: Environment) -> str:
    torch = f" and torch {_public(environment.torch)}" if environment.torch else ""
    return f"Python {environment.python.version}{torch} verified"


def _public(torch: str | None) -> str:
    return (torch or "").partition("+")[0]


def _switch_to(
    manifest: Manifest,
    target: Environment,
    store: Store,
    outside: Outside,
    *,
    why: str,
    said: tuple[str, ...] = (),
    advice: bool = True,
) -> Switched:
    if (reason := unusable(target, store)) is not None:
        again = f"rebuild it with `torchenv restore {target.number}`" if target.lock else None
        raise WorkspaceError(f"environment {target} cannot be used: {reason}", hint=again)
    _warn(manifest.runs, target, outside, advice=advice)
    before = manifest.active
    changed = drift(target, Path(target.path))
    said = (*said, *([changed] if changed else [_describe_verified(target)]))
    after = manifest.use(target.number, why=why, at=outside.now(), said=said)
    if after is not manifest:
        store.write(after)
    store.remake_current(after)
    # Only now: what an earlier run left may take long to delete.
    store.clear(after)
    # Who was started through `current` imports from the other environment from now on.
    left = before if before and before.number != target.number else None
    still = outside.running((Path(left.path), store.current)) if left else ()
    return Switched(before=before, now=target, said=said, running=still, runs=manifest.runs)


def _warn(runs: tuple[Run, ...], target: Environment, outside: Outside, *, advice: bool) -> None:
    concerned = [lines for lines in (list(describe_run(run, target, advice=advice)) for run in runs) if lines]
    for line in (line for lines in concerned[:_WARNED] for line in lines):
        outside.say(line)
    if len(concerned) > _WARNED:
        outside.say(f"and the same for {len(concerned) - _WARNED} more runs")


def _refuse_unproven(target: Environment, proof: Smoke | None) -> None:
    number = target.number
    again = f"run `torchenv smoke {number}`, or use it anyway: `torchenv use {number} --force`"
    if target.state is State.FAILED:
        raise NothingSuits(f"environment {target} failed its smoke commands", hint=again)
    if proof is None or not proof.required:
        return
    commands = tuple(map(shlex.join, proof.commands))
    smoked = [run for run in target.proofs if run.what == "smoke" and run.passed]
    if not smoked or target.state is not State.PROVEN:
        said = f"environment {target} has not passed its smoke commands, which the profile requires"
        raise NothingSuits(said, hint=again)
    if all(run.commands != commands for run in smoked):
        others = ", ".join(sorted({run.profile or "unknown" for run in smoked}))
        said = (
            f"environment {target} passed the smoke commands of another profile ({others}), not of this one"
        )
        raise NothingSuits(said, hint=again)


def _nothing_before(
    manifest: Manifest, passed_over: Mapping[Environment, str], store: Store, outside: Outside
) -> NothingSuits:
    """Return the error, with each way on: another environment, one to build again, one to make."""
    current = manifest.active
    line = outside.find_fallback(current.torch) if current and current.torch else None
    others = [environment for environment in manifest.environments if environment.number != manifest.current]
    # A person may know better: the profile may have asked for what the old one never had.
    hints = [
        f"switch to {item}, whose smoke commands failed, with `torchenv rollback {item.number}`"
        for item in others
        if item.state is State.FAILED
    ]
    unused = [item for item in others if item.live and unusable(item, store) is None]
    hints += [f"switch to {item} with `torchenv rollback {item.number}`" for item in unused[-1:]]
    if line is not None:
        hints.append(f"make one with `torchenv create {line}`")
    removed = [environment for environment in manifest.environments if environment.state is State.REMOVED]
    locked = [item for item in (*passed_over, *reversed(removed)) if item.lock]
    hints += [
        f"rebuild {environment} with `torchenv restore {environment.number}`" for environment in locked[:1]
    ]
    said = "; ".join(["no previous environment to roll back to", *passed_over.values()])
    if not hints:
        is_empty = not manifest.environments
        hints = [
            "make one with `torchenv create`" if is_empty else "see what there is with `torchenv list --all`"
        ]
    return NothingSuits(said, hint="; ".join(hints))
