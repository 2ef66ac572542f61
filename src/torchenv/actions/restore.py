"""Build a removed environment again from the lock that was kept of it."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from torchenv.actions.building import (
    Built,
    build,
    clear_on_failure,
    commit_environment,
    find_lock_differences,
    record_files,
)
from torchenv.actions.fetchable import fetchable
from torchenv.actions.inside import look
from torchenv.actions.ports import Ports
from torchenv.environment.base_python import BasePython
from torchenv.environment.identity import new_identity
from torchenv.environment.verify import digest_of_base
from torchenv.errors import InputError, ToolFailed, WorkspaceError
from torchenv.index.pages import Fetch
from torchenv.lockfile.lock import Lock
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, EnvironmentKind
from torchenv.workspace.store import Gone


def restore(named: str, ports: Ports, head: Fetch | None) -> Environment:
    """Build it under a new number, since no number is used twice; what is in use stays in use.

    `head` finds out, where the build fails, which file is no longer there; None asks no network.
    Raises `InputError` for one that is still there, `ToolFailed` naming each file that is lost.
    """
    store, purpose = ports.store, f"torchenv restore {named}"
    with ExitStack() as own:
        with store.hold(purpose):
            manifest = store.clear_unfinished()
            before = manifest.find(named, removed=True)
            lock = _read_lock(before, ports)
            manifest, new = _begin(manifest, before, _interpreter(before), ports)
            own.enter_context(store.build(new.number, lock.digest, purpose))
            own.enter_context(clear_on_failure(ports, purpose))
            store.write(manifest)
        python = _fetch(before, new, ports)
        if store.plan_path(before.number).is_file():
            store.write_plan(new.number, store.plan_path(before.number).read_text(encoding="utf-8"))
        try:
            directory = build(new, lock, python, ports)
        except ToolFailed as error:
            raise _explain_failure(error, before, lock, head) from None

        ports.say("checking that torch imports and computes")
        report = look(ports.run, directory, around=new.activation)
        wrong = tuple(find_lock_differences(lock, report.data["packages"]))
        if wrong or "torch_error" in report.data:
            said = "; ".join(wrong) or f"torch does not import: {report.data['torch_error']}"
            raise ToolFailed(f"what was built is not environment {before}: {said}")
        after = record_files(new, ports)
        with store.hold(purpose):
            # Fetched, it lies elsewhere than it was begun with.
            base = BasePython(new.python.version, str(python), digest_of_base(python))
            built = Built(lock=lock, report=report, files=after)
            manifest = store.read().record_base(new.number, base)
            begun = manifest.number(new.number)
            manifest, ready = commit_environment(manifest, begun, ports, what="restore", built=built)
            manifest = manifest.rebuilt(before.number, ready.number)
            if manifest.current == before.number:
                manifest = manifest.use(ready.number, why="restore", at=ports.now())
            store.write(manifest)
            store.remake_current(manifest)
        return ready


def _read_lock(before: Environment, ports: Ports) -> Lock:
    if before.kind is EnvironmentKind.ADOPTED:
        raise InputError(f"environment {before} was made elsewhere: there is no lock to build it from")
    if before.on_disk and not isinstance(ports.store.locate(before), Gone):
        raise InputError(f"environment {before} is on disk", hint=f"use it: `torchenv use {before.number}`")
    path = ports.store.lock_path(before.number)
    try:
        lock = Lock.parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise WorkspaceError(f"{path} is gone: environment {before} cannot be built again") from None
    if before.lock is not None and lock.digest != before.lock:
        raise WorkspaceError(
            f"lock file `{path}` was changed: its digest is not the one that was recorded",
            hint="put back the lock file as it was, or make a fresh environment with `torchenv create`",
        )
    return lock


def _interpreter(before: Environment) -> Path:
    """Return the interpreter that it stood on, whether or not that is still there."""
    return Path(before.python.path)


def _fetch(before: Environment, new: Environment, ports: Ports) -> Path:
    path = Path(new.python.path)
    if path.is_file():
        return path
    # 2.15.0-cu132-py3.14t
    named = re.search(r"-py(3\.\d+t?)", before.name)
    version = named[1] if named else ".".join(before.python.version.split(".")[:2])
    ports.say(f"{path} is gone: fetching Python {version}")
    return ports.installer.fetch_python(version)


def _begin(
    manifest: Manifest, before: Environment, python: Path, ports: Ports
) -> tuple[Manifest, Environment]:
    return manifest.begin(
        before.name,
        within=ports.store.environments,
        python=BasePython(before.python.version, str(python), digest_of_base(python)),
        at=ports.now(),
        torch=before.torch,
        backend=before.backend,
        index=before.index,
        reads=before.reads,
        identity=new_identity(),
        host=before.host,
        choice=before.choice,
        activation=before.activation,
    )


def _explain_failure(error: ToolFailed, before: Environment, lock: Lock, head: Fetch | None) -> ToolFailed:
    lost = fetchable(lock, head).lost if head is not None else ()
    if not lost:
        return error
    said = "; ".join(map(str, lost))
    hint = "find that file elsewhere, or make a fresh environment with `torchenv create`"
    return ToolFailed(f"environment {before} cannot be built again: {said}", hint=hint)
