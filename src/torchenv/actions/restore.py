"""Build a removed or broken environment again from the lock that was kept of it, under its own number."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from torchenv.actions.building import (
    build,
    clear_on_failure,
    commit_environment,
    find_lock_differences,
    prove,
)
from torchenv.actions.fetchable import fetchable
from torchenv.actions.inside import InsideReport, look
from torchenv.actions.ports import Ports
from torchenv.actions.switch import unusable
from torchenv.environment.base_python import BasePython
from torchenv.environment.identity import new_identity
from torchenv.environment.verify import digest_of_base
from torchenv.errors import InputError, ToolFailed, WorkspaceError
from torchenv.host.model import Interpreter
from torchenv.index.pages import Fetch
from torchenv.lockfile.lock import Lock
from torchenv.plan.python import is_path
from torchenv.system.disk import make_refusal
from torchenv.system.processes import Running
from torchenv.system.values import frozen
from torchenv.workspace.records import Environment, EnvironmentKind
from torchenv.workspace.store import Store


@frozen(kw_only=True)
class Interpreters:
    """Which Python to build on: `asked` is a version or a path, `find` looks for those of this machine."""

    find: Callable[[], tuple[Interpreter, ...]]
    asked: str | None = None


def restore(
    named: str, ports: Ports, interpreters: Interpreters, head: Fetch | None, running: Running
) -> Environment:
    """Build it under its number; what is active stays active.

    `head` finds out, where the build fails, which file is no longer there; None asks no network.
    Raises `InputError` for one that can be used as it is, `ToolFailed` naming each file that is lost.
    """
    store, purpose = ports.store, f"torchenv restore {named}"
    before = store.read().find(named, removed=True)
    lock = _read_lock(before, ports)
    base = _choose_python(before, interpreters, ports)
    with ExitStack() as own:
        with store.hold(purpose):
            manifest = store.clear_unfinished()
            before = manifest.find(named, removed=True)
            _refuse_usable(before, store)
            if processes := running([Path(before.path)]):
                said = f"environment {before} is still used by {', '.join(map(str, processes))}"
                raise WorkspaceError(said, hint="stop it first")
            manifest, new = manifest.begin_again(
                before.number,
                within=store.environments,
                python=base,
                identity=new_identity(),
                at=ports.now(),
            )
            own.enter_context(store.build(new.number, lock.digest, purpose))
            own.enter_context(clear_on_failure(ports, purpose))
            # Only what is its own is cleared, by the identity that it had.
            if before.on_disk:
                store.discard(before)
            store.make_place(new)
            store.write(manifest)
        try:
            build(new, lock, Path(base.path), ports)
        except ToolFailed as error:
            raise _explain_failure(error, before, lock, head) from None

        ports.say("checking that torch imports and computes")
        built, _ = prove(new, lock, ports, lambda: _look_for(before, lock, new, ports))
        with store.hold(purpose):
            manifest, ready = commit_environment(store.read(), new, ports, what="restore", built=built)
            store.write(manifest)
            store.remake_current(manifest)
        return ready


def _look_for(before: Environment, lock: Lock, new: Environment, ports: Ports) -> InsideReport:
    """Look whether what was built is what was there before; raises `ToolFailed` where it is not."""
    report = look(ports.run, Path(new.path), around=new.activation)
    wrong = tuple(find_lock_differences(lock, report.data["packages"]))
    if wrong or "torch_error" in report.data:
        said = "; ".join(wrong) or f"torch does not import: {report.data['torch_error']}"
        raise ToolFailed(f"what was built is not environment {before}: {said}")
    return report


def _refuse_usable(before: Environment, store: Store) -> None:
    if before.on_disk and unusable(before, store) is None:
        raise InputError(
            f"environment {before} is already on disk", hint=f"switch to it: `torchenv use {before.number}`"
        )


def _read_lock(before: Environment, ports: Ports) -> Lock:
    if before.kind is EnvironmentKind.ADOPTED:
        raise InputError(
            f"environment {before} was adopted: there is no lock file to rebuild it from",
            hint="make an environment with `torchenv create`",
        )
    _refuse_usable(before, ports.store)
    path = ports.store.lock_path(before.number)
    try:
        lock = Lock.parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
    except FileNotFoundError:
        hint = "make a fresh environment with `torchenv create`"
        raise WorkspaceError(f"`{path}` is gone: environment {before} cannot be rebuilt", hint=hint) from None
    except OSError as error:
        raise make_refusal(path, error) from None
    if before.lock is not None and lock.digest != before.lock:
        raise WorkspaceError(
            f"lock file `{path}` was changed: its digest is not the recorded one",
            hint="put back the lock file as it was, or make a fresh environment with `torchenv create`",
        )
    return lock


def _choose_python(before: Environment, interpreters: Interpreters, ports: Ports) -> BasePython:
    """Return the interpreter that was asked for, else the one it stood on, else any of the same minor."""
    minor, asked = read_minor(before, ports.store), interpreters.asked
    recorded = Path(before.python.path)
    if asked is None and os.path.isfile(recorded):
        return BasePython(before.python.version, str(recorded), digest_of_base(recorded))
    if asked is not None and not is_path(asked) and ".".join(asked.split(".")[:2]) != minor:
        raise _make_other_minor(before, minor, asked)
    for found in interpreters.find():
        is_meant = found.path == asked if asked and is_path(asked) else found.minor == minor
        if not is_meant or found.implementation != "cpython":
            continue
        if found.minor != minor:
            raise _make_other_minor(before, minor, f"{found.minor} (`{asked}`)")
        if asked is None:
            ports.say(f"`{recorded}` is gone: building on Python {found.version} (`{found.path}`)")
        return BasePython(str(found.version), found.path, digest_of_base(Path(found.path)))
    if asked is not None and is_path(asked):
        raise InputError(
            f"`{asked}` is not an interpreter", hint=f"name one with --python {minor}, or its path"
        )
    ports.say(f"no Python {minor} here: fetching it")
    try:
        path = ports.installer.fetch_python(minor)
    except ToolFailed as error:
        error.hint = f"install Python {minor}, then run `torchenv restore {before.number}`"
        raise
    return BasePython(before.python.version, str(path), digest_of_base(path))


def _make_other_minor(before: Environment, minor: str, said: str) -> InputError:
    return InputError(
        f"environment {before} is locked for Python {minor}, not for {said}",
        hint=f"run `torchenv restore {before.number} --python {minor}`",
    )


def read_minor(before: Environment, store: Store) -> str:
    """Return the Python that its lock is for, such as `3.12` or `3.14t`."""
    try:
        python = json.loads(store.plan_path(before.number).read_text(encoding="utf-8"))["python"]
        return ".".join(python["version"].split(".")[:2]) + ("t" if python["free_threaded"] else "")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        # 2.15.0-cu132-py3.14t
        named = re.search(r"-py(3\.\d+t?)", before.name)
        return named[1] if named else ".".join(before.python.version.split(".")[:2])


def _explain_failure(error: ToolFailed, before: Environment, lock: Lock, head: Fetch | None) -> ToolFailed:
    lost = fetchable(lock, head).lost if head is not None else ()
    if not lost:
        return error
    said = "; ".join(map(str, lost))
    hint = "find that file elsewhere, or make a fresh environment with `torchenv create`"
    return ToolFailed(f"environment {before} cannot be rebuilt: {said}", hint=hint)
