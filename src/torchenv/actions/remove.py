"""Remove environments: never one that someone may need tomorrow morning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from torchenv.actions.run import directory_of
from torchenv.actions.status import list_added_by_hand
from torchenv.actions.switch import is_last_reader, name_way_off, unusable
from torchenv.errors import NothingSuits, TorchenvError, WorkspaceError
from torchenv.lockfile.lock import Lock
from torchenv.system.processes import Running
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, EnvironmentKind
from torchenv.workspace.store import Replaced, Store

# Says why an environment could not be built again later; None where nothing speaks against it.
Irreplaceable = Callable[[Environment], str | None]


@frozen(kw_only=True)
class Pruning:
    """Which environments may go: all but the newest `keep`, and of these only those unused since `before`."""

    keep: int
    before: datetime | None = None

    @classmethod
    def of(cls, keep: int | None, older_than: timedelta | None, now: datetime) -> Pruning:
        """Settle the options: an age alone spares no number, and without either the newest two stay."""
        if older_than is None:
            return cls(keep=2 if keep is None else keep)
        return cls(keep=keep or 0, before=now - older_than)


@frozen(kw_only=True)
class Pruned:
    """What went, or would go, and what stays though it might go, with the reasons."""

    gone: tuple[Environment, ...] = ()
    kept: tuple[tuple[Environment, str], ...] = ()


@frozen(kw_only=True)
class Removed:
    """What went: its `size` in bytes, those `freed` by it, and the packages `by_hand` that no lock holds.

    What an environment shares with uv's cache is not freed; `size` is None where it is not recorded.

    `is_lost` where it has no lock file that can be read, so that it cannot be built again.
    """

    environment: Environment
    freed: int
    size: int | None = None
    is_lost: bool = False
    by_hand: tuple[str, ...] = ()


def remove(
    named: Sequence[str], store: Store, running: Running, irreplaceable: Irreplaceable, *, force: bool = False
) -> tuple[Removed, ...]:
    """Remove environments, all or none; their locks stay, so that each can be built again.

    With `force` one goes to which a rollback would lead, too.
    Raises `NothingSuits` for one that is needed, `WorkspaceError` for one that something runs from.
    """
    with store.hold_existing(f"torchenv remove {' '.join(named)}"):
        manifest = store.clear_unfinished()
        chosen = []
        after = manifest
        for text in named:
            environment = after.find(text)
            _refuse(environment, after, store, running)
            if not force and _leads_back(environment, after, store):
                hint = "remove it anyway with --force"
                raise NothingSuits(f"environment {environment} is not removed: {_WAY_BACK}", hint=hint)
            if (why := irreplaceable(environment)) is not None:
                hint = "keep it, or remove it anyway with --force"
                raise NothingSuits(f"environment {environment} could not be built again: {why}", hint=hint)
            after = after.mark_removed(environment.number)
            chosen.append(environment)
        removed = tuple(_measure_loss(environment, store) for environment in chosen)
        for environment in chosen:
            manifest = _discard(environment, manifest, store)
        store.empty_trash()
        return removed


def _measure_loss(environment: Environment, store: Store) -> Removed:
    by_hand: tuple[str, ...] = ()
    is_lost = True
    # What is damaged can be removed all the same.
    with suppress(TorchenvError, OSError):
        path = store.lock_path(environment.number)
        lock = Lock.parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
        is_lost = False
        by_hand = list_added_by_hand(directory_of(environment, store), lock)
    return Removed(
        environment=environment,
        freed=store.measure(environment),
        size=store.read_built_size(environment),
        is_lost=is_lost,
        by_hand=by_hand,
    )


def prune(
    pruning: Pruning, store: Store, running: Running, irreplaceable: Irreplaceable, *, dry_run: bool
) -> Pruned:
    """Remove what is old and needed by nobody; with `dry_run` only say what that would be."""
    if dry_run:
        return _choose(pruning, store.read(), store, running, irreplaceable)
    with store.hold_existing("torchenv prune"):
        manifest = store.clear_unfinished()
        pruned = _choose(pruning, manifest, store, running, irreplaceable)
        for environment in pruned.gone:
            manifest = _discard(environment, manifest, store)
        store.empty_trash()
        return pruned


def explain_need(environment: Environment, manifest: Manifest, store: Store) -> str | None:
    """Explain why an environment must stay; None where nobody needs it."""
    if (indispensable := _indispensable(environment, manifest, store)) is not None:
        return indispensable[0]
    return _WAY_BACK if _leads_back(environment, manifest, store) else None


def _refuse(environment: Environment, manifest: Manifest, store: Store, running: Running) -> None:
    if (indispensable := _indispensable(environment, manifest, store)) is not None:
        why, hint = indispensable
        raise NothingSuits(f"environment {environment} is not removed: {why}", hint=hint)
    if (running_there := _in_way(environment, running)) is not None:
        said = f"environment {environment} is not removed: {running_there}"
        raise WorkspaceError(said, hint="stop it first")


def _indispensable(
    environment: Environment, manifest: Manifest, store: Store
) -> tuple[str, str | None] | None:
    """Explain why an environment must stay even by force, and what would let it go."""
    if environment.kind is EnvironmentKind.ADOPTED:
        hint = f"forget it, its files stay: `torchenv forget {environment.number}`"
        return "it was made elsewhere, and torchenv only reads it", hint
    if environment.number == manifest.current:
        return "it is the active environment", name_way_off(manifest, store)
    for kept in manifest.kept:
        if is_last_reader(environment, kept, manifest, store):
            why = f"nothing else can read the kept checkpoint {kept.path}"
            return why, f"release it: `torchenv checkpoints keep --release {kept.path}`"
    return None


_WAY_BACK = "it is the rollback target"


def _leads_back(environment: Environment, manifest: Manifest, store: Store) -> bool:
    before = manifest.rollback_target(lambda item: unusable(item, store) is None)
    return before is not None and before.number == environment.number


def _describe_replacement(environment: Environment, store: Store) -> str | None:
    if isinstance(store.locate(environment), Replaced):
        return f"{environment.path} is not the environment that torchenv built there"
    return None


def _in_way(environment: Environment, running: Running) -> str | None:
    processes = running([Path(environment.path)])
    return f"it is still used by {', '.join(map(str, processes))}" if processes else None


def _choose(
    pruning: Pruning, manifest: Manifest, store: Store, running: Running, irreplaceable: Irreplaceable
) -> Pruned:
    built = [
        environment
        for environment in manifest.environments
        if environment.kind is EnvironmentKind.BUILT and environment.on_disk
    ]
    # By number and not by time: a clock that was set back makes no environment older.
    built.sort(key=lambda environment: environment.number, reverse=True)
    pruned = Pruned()
    # The oldest first: each that goes may make another one the only reader of a checkpoint.
    for environment in reversed(built[pruning.keep :]):
        if pruning.before is not None and manifest.find_last_use(environment.number) >= pruning.before:
            continue
        why = (
            explain_need(environment, manifest, store)
            or _describe_replacement(environment, store)
            or _in_way(environment, running)
            or irreplaceable(environment)
        )
        if why is not None:
            pruned = replace(pruned, kept=(*pruned.kept, (environment, why)))
        else:
            pruned = replace(pruned, gone=(*pruned.gone, environment))
            manifest = manifest.mark_removed(environment.number)
    return pruned


def _discard(environment: Environment, manifest: Manifest, store: Store) -> Manifest:
    # Renamed away first: whoever looks sees it whole or not at all, and a stop in between is put right later.
    store.discard(environment)
    manifest = manifest.mark_removed(environment.number)
    store.write(manifest)
    return manifest
