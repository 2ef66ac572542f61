"""Fill a begun environment from its lock and record it; until then nobody sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from packaging.version import Version

from torchenv.actions.checkpoints import judge_for
from torchenv.actions.inside import InsideReport
from torchenv.actions.ports import Ports
from torchenv.environment.fingerprint import Fingerprint, fingerprint
from torchenv.environment.inspect import describe
from torchenv.environment.unshare import isolate_beside
from torchenv.environment.verify import find_base, find_cut_files
from torchenv.errors import ToolFailed, TorchenvError
from torchenv.lockfile.lock import Lock
from torchenv.system.values import frozen
from torchenv.workspace.manifest import Manifest
from torchenv.workspace.records import Environment, Proof

# Seconds that a run which failed waits for the workspace in order to clear what it began.
_PATIENCE = 1.0


@contextmanager
def clear_on_failure(ports: Ports, purpose: str) -> Iterator[None]:
    """Clear what a failed run has begun, by the same path that clears what a killed one left."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            # Thousands of files may take seconds.
            ports.say("stopping, and clearing what was begun")
        # What stopped the run is what people must read; what the disk refuses now is left to the next run.
        with suppress(TorchenvError), ports.store.hold(purpose, patience=_PATIENCE):
            ports.store.clear_unfinished()
        raise


def build(new: Environment, lock: Lock, python: Path, ports: Ports) -> Path:
    """Make the directory of an environment from its lock, still sharing files with an installer's cache."""
    directory = Path(new.path)
    lock_path = ports.store.write_lock(new.number, lock.text)
    ports.say(f"building {directory} ({len(lock.packages)} packages)")
    ports.store.prepare()
    ports.installer.create(directory, python)
    ports.store.mark(new)
    fill(new, lock, lock_path, ports)
    return directory


def fill(environment: Environment, lock: Lock, lock_path: Path, ports: Ports) -> None:
    """Put exactly what a lock holds into an environment; `prove` then gives it files of its own."""
    directory = Path(environment.path)
    ports.installer.install(directory, lock_path)
    _refuse_cut_files(directory)
    ports.store.write_constraints(environment, constraints(lock))
    ports.store.write_startup(environment, describe(directory).site_packages[0])


def _refuse_cut_files(directory: Path) -> None:
    """Compare what was installed with what its packages list; raises `ToolFailed` for a file that was cut."""
    for package, finding in find_cut_files(describe(directory)):
        hint = f"run `uv cache clean {package}`, then the same command again"
        raise ToolFailed(f"`{finding.path}` of {package} {finding.message}", hint=hint)


def constraints(lock: Lock) -> str:
    """Write what makes an install by hand fail rather than put another torch in the place of this one."""
    use = "# With `pip install -c THIS_FILE PACKAGE` nothing that torchenv installed is replaced.\n"
    return use + "".join(f"{name}=={version}\n" for name, version in lock.versions.items())


def find_lock_differences(lock: Lock, found: Mapping[str, str]) -> Iterator[str]:
    """Describe each package in which an environment differs from its lock."""
    for name, version in lock.versions.items():
        # Metadata of torch's own wheels may leave out the label that the file's name has.
        if Version(found.get(name, "0")).public != Version(version).public:
            yield f"{name} is {found.get(name, 'missing')}, and the lock file has {version}"


@frozen(kw_only=True)
class Built:
    """What was built: from which lock, what the check inside said, and how every file of it is."""

    lock: Lock
    report: InsideReport
    files: Fingerprint


def prove(
    environment: Environment,
    lock: Lock,
    ports: Ports,
    look: Callable[[], InsideReport],
    look_around: Callable[[], tuple[str, ...]] = tuple,
) -> tuple[Built, tuple[str, ...]]:
    """Look at an environment from inside, while it gets files of its own, and write down how each of them is.

    `look_around` finds what others changed meanwhile: it, too, costs nothing while torch is imported.
    """
    directory = Path(environment.path)
    report, (files, changed) = isolate_beside(
        directory, look, lambda: (fingerprint(describe(directory)), look_around())
    )
    ports.store.write_fingerprint(environment.number, files.text)
    return Built(lock=lock, report=report, files=files), changed


def commit_environment(
    manifest: Manifest, new: Environment, ports: Ports, *, what: str, built: Built
) -> tuple[Manifest, Environment]:
    """Record an environment as finished, with how every file of it is and where it has computed."""
    proof = Proof(at=ports.now(), passed=True, what=what, devices=built.report.devices)
    manifest, ready = manifest.commit(
        new,
        lock=built.lock.digest,
        fingerprint=built.files.digest,
        proof=proof,
        python=find_base(describe(Path(new.path)), new.python),
    )
    return judge_for(ready, manifest, ports.store, system=ports.system, say=ports.say), ready
