"""Build a planned environment beside the others; what is in use stays in use."""

from __future__ import annotations

import json
import os
import re
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

from packaging.version import Version

from torchenv.actions.adopt import Fallback, in_use, look_at_active
from torchenv.actions.building import (
    build,
    clear_on_failure,
    commit_environment,
    find_lock_differences,
    prove,
)
from torchenv.actions.built import find_built
from torchenv.actions.carry import lock_with, summarise
from torchenv.actions.causes.devices import find_device_causes, list_total_masks
from torchenv.actions.fetchable import expiring
from torchenv.actions.inside import InsideReport, activation, look, mismatches
from torchenv.actions.ports import Ports
from torchenv.actions.room import check_room
from torchenv.actions.run import directory_of
from torchenv.catalogue.releases import Catalogue
from torchenv.environment.base_python import BasePython
from torchenv.environment.identity import new_identity
from torchenv.environment.inspect import Installation, canonical, describe, distributions
from torchenv.environment.verify import digest_of_base
from torchenv.errors import InputError, ToolFailed, WorkspaceError
from torchenv.host.model import Host, Problem
from torchenv.installers import LockRequest
from torchenv.installers.local import install_local
from torchenv.lockfile.lock import Lock
from torchenv.packages import CarriedPackages, LocalPackage
from torchenv.plan import Build, Outcome, Plan
from torchenv.profile.model import Profile
from torchenv.system.disk import PathLength
from torchenv.system.names import check_environment_name, refuse_place
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import ChoiceRecord, Environment, State
from torchenv.workspace.store import Store

NOTHING_CARRIED = CarriedPackages()


@frozen(kw_only=True)
class CreateOrder:
    """What `create` is to make: the plan, and what goes in beside torch's family.

    `local` are folders that go in last, by their absolute paths.
    `lock` is what to build where that was locked before; without one the packages are chosen now.
    `name` is what a person calls it, in place of the plan's name.
    `ignored` are other tools' settings that do not steer it, `around` is what may undo it. `again` makes one
    even where an environment has all of it already.
    """

    plan: Plan
    host: Host
    profile: Profile
    catalogue: Catalogue
    carried: CarriedPackages = NOTHING_CARRIED
    local: tuple[LocalPackage, ...] = ()
    companions: tuple[str, ...] = ()
    by_hand: bool = False
    package_index: str | None = None
    lock: Lock | None = None
    name: str | None = None
    ignored: tuple[str, ...] = ()
    around: tuple[Problem, ...] = ()
    again: bool = False

    @property
    def folders(self) -> tuple[LocalPackage, ...]:
        """The folders that go in last: those of the lock, or those that are carried."""
        return (*self.local, *self.carried.local)

    @property
    def purpose(self) -> str:
        """What others are told that they wait for."""
        return f"torchenv create {self.plan.requested}"

    @property
    def key(self) -> str:
        """What two orders of the same environment share: the decision, the packages, and the lock."""
        # Whether torch is cached changes while another run builds the same.
        document = {key: value for key, value in self.plan.to_document().items() if key != "download"}
        plan = json.dumps(document, sort_keys=True, default=str)
        parts = (
            plan,
            repr(self.carried),
            repr(self.local),
            repr(self.profile.packages),
            self.lock.digest if self.lock else "",
            self.name or "",
        )
        return sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()

    @property
    def build(self) -> Build:
        """The decision, which a plan that is to be built has."""
        assert self.plan.build is not None
        return self.plan.build


@frozen(kw_only=True)
class CreateOutcome:
    """What `create` made, or found to be there already; `fallback` is the environment to go back to."""

    environment: Environment
    new: bool
    fallback: Fallback | None = None
    changed_by_others: tuple[str, ...] = ()


def create(order: CreateOrder, ports: Ports) -> CreateOutcome:
    """Lock, build, prove and record, in this order; until the last step nobody sees the environment.

    The workspace is held only while its manifest is read and replaced: a build keeps nobody waiting but a run
    that would build the same. A run that is stopped at any moment leaves what was in use in use, and the next
    run clears what it left. Raises `ToolFailed` where a tool fails or the environment is not as planned,
    `WorkspaceError` where the disk refuses.
    """
    store, purpose = ports.store, order.purpose
    refuse_place(store.environments)
    refuse_name(order.name, store.read())
    python = _interpreter(order.build, ports)
    # Every file of it is read, which takes seconds: not while others wait.
    seen = look_at_active(store.read(), order.host)
    while True:
        with ExitStack() as own:
            with store.hold(purpose):
                manifest = store.clear_unfinished()
                if order.lock and (there := find_built({order.lock.digest}, manifest, store)):
                    # Another run built it while this one waited.
                    return CreateOutcome(environment=there, new=False)
                other = None if order.again else store.find_build(manifest, order.key)
                if other is None:
                    refuse_name(order.name, manifest)
                    manifest, fallback = in_use(manifest, order.host, order.catalogue, ports, seen)
                    manifest, new = _begin(manifest, order, python, ports)
                    own.enter_context(store.build(new.number, order.key, purpose))
                    own.enter_context(clear_on_failure(ports, purpose))
                    _record_fallback(manifest, fallback, ports)
            if other is None:
                return _build_and_commit(new, fallback, order, python, ports)
        store.wait_for_build(other)
        made = next((one for one in store.read().environments if one.number == other and one.live), None)
        if made is not None:
            return CreateOutcome(environment=made, new=False)


def refuse_name(name: str | None, manifest: Manifest) -> None:
    """Raise `InputError` for a name that cannot name an environment, or names one already."""
    if name is None:
        return
    check_environment_name(name)
    if re.fullmatch(r"[0-9][0-9.]*", name):
        hint = "choose another one, such as `--name nightly-run`"
        raise InputError(f"`{name}` is a number or a version, not a name", hint=hint)
    taken = (one for one in manifest.environments if one.name == name and one.state is not State.REMOVED)
    if (other := next(taken, None)) is not None:
        raise InputError(
            f"the name `{name}` belongs to environment {other.number}",
            hint=f"choose another --name, or look at that one with `torchenv show {other.number}`",
        )


def _build_and_commit(
    new: Environment, fallback: Fallback | None, order: CreateOrder, python: Path, ports: Ports
) -> CreateOutcome:
    """Fill the environment that was begun, prove it, and record it at once."""
    store, say = ports.store, ports.say
    _say_what_is_left_alone(order.host, fallback, ports)
    lock = order.lock or _make_lock(order, python, ports)
    if (there := _find_equal(fallback, lock, order, store)) is not None:
        with store.hold(order.purpose):
            store.write(store.read().drop_unfinished(new.number))
        return CreateOutcome(environment=there, new=False, fallback=fallback)
    _check_room(order, lock, ports)
    for warning in _stands_on_conda(order.host, python):
        say(f"note: {warning}")
    document = json.dumps(order.plan.to_document(), indent=2, ensure_ascii=False)
    store.write_plan(new.number, f"{document}\n")
    directory = build(new, lock, python, ports)
    if order.folders:
        say(f"installing {', '.join(folder.name for folder in order.folders)} from the project")
        install_local(ports.run, directory, order.folders, package_index=order.package_index)

    say("checking that torch imports and computes")
    built, changed = prove(
        new,
        lock,
        ports,
        lambda: _proven(order, directory, lock, ports),
        lambda: fallback.find_changes() if fallback else (),
    )
    if fallback and not changed:
        say(f"{fallback.environment.path} unchanged ({fallback.before.count} files checked)")

    with store.hold(order.purpose):
        manifest, ready = commit_environment(store.read(), new, ports, what="create", built=built)
        store.write(manifest)
        store.remake_current(manifest)
    return CreateOutcome(environment=ready, new=True, fallback=fallback, changed_by_others=changed)


def _find_equal(
    fallback: Fallback | None, lock: Lock, order: CreateOrder, store: Store
) -> Environment | None:
    """Find an environment that has all that is asked for: the active one, else one built from this lock."""
    if order.again:
        return None
    if fallback is not None and _holds(fallback.installation, lock, order):
        return fallback.environment
    built = find_built({lock.digest}, store.read(), store)
    if built is None or built.state is State.FAILED:
        return None
    return built if _holds(describe(directory_of(built, store)), lock, order) else None


def _say_what_is_left_alone(host: Host, fallback: Fallback | None, ports: Ports) -> None:
    if fallback is not None:
        kind = fallback.installation.layout.value
        ports.say(f"active: {fallback.environment.path} ({kind}); it is only read")
    active = host.active
    if active is not None and (fallback is None or active.path != fallback.environment.path):
        where = "found in this project" if active.was_found else "active in this shell"
        ports.say(f"{where}: {active.path}; it is not touched")


def _record_fallback(manifest: Manifest, fallback: Fallback | None, ports: Ports) -> None:
    ports.store.write(manifest)
    if fallback is not None:
        ports.store.write_fingerprint(fallback.environment.number, fallback.before.text)
    ports.store.remake_current(manifest)


def _interpreter(build: Build, ports: Ports) -> Path:
    if build.python.path is not None:
        return Path(build.python.path)
    version = f"{build.python.version}{'t' if build.python.free_threaded else ''}"
    ports.say(f"fetching Python {version}")
    return ports.installer.fetch_python(version)


def _make_lock(order: CreateOrder, python: Path, ports: Ports) -> Lock:
    ports.say(f"choosing packages for torch {order.build.torch}")
    lock, settled = lock_with(order.carried, _lock_request(order, python), ports.installer)
    for line in summarise(settled):
        ports.say(line)
    for note in expiring(lock):
        ports.say(f"note: {note}")
    return lock


def _lock_request(order: CreateOrder, python: Path) -> LockRequest:
    build = order.build
    return LockRequest(
        requirements=build.requirements,
        torch_index=build.index,
        package_index=order.package_index,
        family=order.catalogue.family | frozenset(build.backend.family),
        python=".".join(map(str, build.python.version.release[:2])),
        free_threaded=build.python.free_threaded,
        interpreter=python,
        platform=order.host.platform,
        macos=str(order.host.macos) if order.host.macos else None,
        exclude_newer=order.profile.packages.exclude_newer,
        private=order.profile.index.private,
    )


def _holds(installation: Installation, lock: Lock, order: CreateOrder) -> bool:
    """Return whether an environment holds all that the lock holds; more in it is no difference."""
    build = order.build
    if (installation.python or "").split(".")[:2] != build.python.minor.rstrip("t").split("."):
        return False
    found = {
        canonical(distribution.name): distribution.version for distribution in distributions(installation)
    }
    wanted = {**lock.versions, "torch": build.torch}
    if not {canonical(folder.name) for folder in order.folders} <= found.keys():
        return False
    return installation.torch == build.torch and wanted == {
        name: installation.torch if name == "torch" else found.get(name) for name in wanted
    }


def _check_room(order: CreateOrder, lock: Lock, ports: Ports) -> None:
    """Refuse before anything is built what the disk would refuse half way."""
    # PyTorch's index gives no sizes: there it is what the release takes with an accelerator's libraries.
    release, vendor = order.build.release, order.build.backend.vendor
    usual = 0 if vendor == "cpu" else release.download_mib.get(order.host.platform, 0) << 20
    check_room(lock, usual=usual, ports=ports)
    directory = ports.store.environments
    longest = order.build.release.longest_path
    if order.host.system == "windows" and longest is not None:
        site = directory / f"000-{order.build.name}" / "Lib" / "site-packages"
        length = PathLength(len(str(site)), longest)
        if not length.fits:
            hint = f"choose a --root that is {length.too_many} characters shorter, or set LongPathsEnabled"
            raise WorkspaceError(f"paths under {site} would be too long: {length}", hint=hint)


def _begin(
    manifest: Manifest, order: CreateOrder, python: Path, ports: Ports
) -> tuple[Manifest, Environment]:
    """Record what is being built, in a directory that is not there: one that is belongs to someone."""
    after, new = _add_to_manifest(manifest, order, python, ports)
    while os.path.lexists(new.path):
        after, new = _add_to_manifest(after.drop_unfinished(new.number), order, python, ports)
    return after, new


def _add_to_manifest(
    manifest: Manifest, order: CreateOrder, python: Path, ports: Ports
) -> tuple[Manifest, Environment]:
    build, plan = order.build, order.plan
    version = Version(build.release.version.public)
    return manifest.begin(
        order.name or build.name,
        within=ports.store.environments,
        python=BasePython(str(build.python.version), str(python), digest_of_base(python)),
        at=ports.now(),
        torch=build.torch,
        backend=build.backend.tag,
        index=build.index,
        reads=order.catalogue.reads(version),
        identity=new_identity(),
        host=order.host.platform,
        activation=activation(plan, order.host),
        choice=ChoiceRecord(
            profile=order.profile.name,
            outcome=plan.outcome.value,
            by_hand=order.by_hand,
            because=plan.why if plan.outcome is Outcome.FALLBACK else (),
            ignored=order.ignored,
            warnings=_undoing(order, python),
        ),
    )


def _undoing(order: CreateOrder, python: Path) -> tuple[str, ...]:
    """Return what may undo the environment later; what is true of this shell alone is left out."""
    resync = (item.message for item in order.around if item.code == "project-resync")
    return (*resync, *_stands_on_conda(order.host, python))


def _stands_on_conda(host: Host, python: Path) -> tuple[str, ...]:
    base = next((item for item in host.pythons if item.path == str(python)), None)
    if base is None or not base.conda:
        return ()
    return (f"it is built on conda's Python {python} and stops working without that conda environment",)


def _proven(order: CreateOrder, directory: Path, lock: Lock, ports: Ports) -> InsideReport:
    companions = tuple(companion.replace("-", "_") for companion in order.companions)
    masks = list_total_masks(order.host)
    for name in masks:
        ports.say(f"checking without {name}, which hides every device here")
    report = look(ports.run, directory, companions, activation(order.plan, order.host), masks)
    wrong = (
        *mismatches(order.plan, order.host, report),
        *find_lock_differences(lock, report.data["packages"]),
    )
    if wrong:
        cause = next(find_device_causes(describe(directory), order.host, order.catalogue, {}), None)
        because = f" ({cause.message})" if cause else ""
        raise ToolFailed(
            f"the new environment is not as planned: {'; '.join(wrong)}{because}",
            hint="run `torchenv plan --explain` to see the reasons; nothing was switched",
        )
    return report
