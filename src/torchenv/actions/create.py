"""Build a planned environment beside the others; what is in use stays in use."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from torchenv import environments
from torchenv.actions.adopt import Fallback, find_fallback, still_as_it_was
from torchenv.actions.inside import Report, look, mismatches, visibility
from torchenv.actions.ports import Ports
from torchenv.errors import ToolFailed, WorkspaceError
from torchenv.fingerprint import fingerprint
from torchenv.host import Host
from torchenv.identity import new_identity
from torchenv.installers import LockRequest
from torchenv.isolation import isolate
from torchenv.lock import Lock
from torchenv.manifest import Manifest
from torchenv.plan import Build, Plan
from torchenv.profile import Profile
from torchenv.record import BasePython, Choice, Environment, Proof


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What `create` is to make: the plan, and what goes in beside torch's family."""

    plan: Plan
    host: Host
    profile: Profile
    family: frozenset[str]
    packages: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    package_index: str | None = None
    ignored: tuple[str, ...] = ()

    @property
    def build(self) -> Build:
        """The decision, which a plan that is to be built has."""
        assert self.plan.build is not None
        return self.plan.build


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What `create` made, or found that it need not make; `fallback` is what one can go back to."""

    environment: Environment
    new: bool
    fallback: Environment | None = None
    report: Report | None = None
    changed_by_others: tuple[str, ...] = field(default=())


def create(order: Order, ports: Ports) -> Made:
    """Lock, build, prove and record, in this order; until the last step nobody sees the environment.

    A run that is stopped at any moment leaves what was in use in use, and the next run clears what it left.
    Raises `ToolFailed` where a tool fails or the environment is not as planned, `WorkspaceError` where the disk
    refuses.
    """
    store, say, build = ports.store, ports.say, order.build
    with store.locked(f"torchenv create {order.plan.requested}"):
        manifest = store.clear_unfinished()
        manifest, fallback = find_fallback(manifest, order.host, ports)

        say(f"choosing packages for torch {build.torch}")
        python = _interpreter(build, ports)
        lock = ports.installer.lock(_lock_request(order, python))
        if equal := _in_use_already(manifest, lock):
            return Made(environment=equal, new=False, fallback=fallback and fallback.environment)
        _check_room(order, lock, store.root)

        manifest, new = _begun(manifest, order, python, ports)
        store.write(manifest)
        lock_path = store.write_lock(new.number, lock.text)
        store.write_plan(new.number, json.dumps(order.plan.to_document(), indent=2, ensure_ascii=False) + "\n")

        directory = Path(new.path)
        say(f"building {directory} ({len(lock.packages)} packages)")
        store.make_room_for(new)
        ports.installer.create(directory, python)
        store.mark(new)
        ports.installer.install(directory, lock_path)
        isolate(directory)

        say("proving it from inside")
        report = _proven(order, directory, ports)
        print_of_new = fingerprint(environments.describe(directory))
        store.write_fingerprint(new.number, print_of_new.text)
        changed = still_as_it_was(fallback, say) if fallback else ()

        proof = Proof(at=ports.now(), passed=True, what="create", devices=report.devices)
        manifest, ready = manifest.commit(new, lock=lock.digest, fingerprint=print_of_new.digest, proof=proof)
        store.write(manifest)
        return Made(
            environment=ready,
            new=True,
            fallback=fallback and fallback.environment,
            report=report,
            changed_by_others=changed,
        )


def reads(torch: str, one_way: Iterable[str]) -> str:
    """Name the distributed checkpoints that a torch can read: all, or those of releases before a door closed."""
    from packaging.version import Version

    closed = [each for each in one_way if Version(torch) < Version(each)]
    return f"dcp<{min(closed, key=Version)}" if closed else "dcp"


def _interpreter(build: Build, ports: Ports) -> Path:
    if build.python.path is not None:
        return Path(build.python.path)
    version = f"{build.python.version}{'t' if build.python.free_threaded else ''}"
    ports.say(f"fetching Python {version}")
    return ports.installer.fetch_python(version)


def _lock_request(order: Order, python: Path) -> LockRequest:
    build = order.build
    return LockRequest(
        requirements=build.requirements,
        packages=order.packages,
        constraints=order.constraints,
        torch_index=build.index,
        package_index=order.package_index,
        family=order.family | frozenset(build.backend.family),
        python=f"{build.python.version.major}.{build.python.version.minor}",
        free_threaded=build.python.free_threaded,
        interpreter=python,
        platform=order.host.platform,
        macos=str(order.host.macos) if order.host.macos else None,
        exclude_newer=order.profile.packages.exclude_newer,
    )


def _in_use_already(manifest: Manifest, lock: Lock) -> Environment | None:
    """Give the environment in use if it holds exactly what the lock holds."""
    environment = manifest.in_use
    if environment is None or not environment.live:
        return None
    try:
        installation = environments.describe(Path(environment.path))
    except TorchenvError:
        return None
    found = {environments.canonical(each.name): each.version for each in environments.distributions(installation)}
    if installation.torch:
        found["torch"] = installation.torch
    return environment if _same(found, lock.versions) else None
