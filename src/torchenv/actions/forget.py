"""Take an adopted environment off the record; its files stay where they are."""

from __future__ import annotations

from torchenv.actions.switch import is_last_reader, name_way_off
from torchenv.errors import NothingSuits
from torchenv.workspace.records import Environment, EnvironmentKind
from torchenv.workspace.store import Store


def forget(named: str, store: Store) -> Environment:
    """Drop what is recorded of an adopted environment, and return what it was.

    Raises `NothingSuits` for the active environment, for one that torchenv built, and for the only one that
    reads a kept checkpoint.
    """
    with store.hold_existing(f"torchenv forget {named}"):
        manifest = store.clear_unfinished()
        environment = manifest.find(named, removed=True)
        if environment.kind is EnvironmentKind.BUILT:
            raise NothingSuits(
                f"environment {environment} was built by torchenv, not adopted",
                hint=f"delete it with `torchenv remove {environment.number}`",
            )
        if environment.number == manifest.current:
            raise NothingSuits(
                f"environment {environment} is the active environment",
                hint=name_way_off(manifest, store),
            )
        for kept in manifest.kept:
            if is_last_reader(environment, kept, manifest, store):
                raise NothingSuits(
                    f"environment {environment} is the only one that reads the kept checkpoint `{kept.path}`",
                    hint=f"release that first: `torchenv checkpoints keep --release {kept.path}`",
                )
        store.write(manifest.forget(environment.number))
        # Only now: a stop before leaves the record whole.
        store.delete_records(environment.number)
        return environment
