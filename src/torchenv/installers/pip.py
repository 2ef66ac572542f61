"""virtualenv and pip as an installer, for hosts where uv may not run: the same files from the same lock."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchenv.errors import InputError
from torchenv.index.logins import Logins
from torchenv.installers import Installer, LockRequest, interpreter_in
from torchenv.installers.cache import UvCache
from torchenv.installers.trouble import explain_failure
from torchenv.lockfile.lock import Lock
from torchenv.system.addresses import join_login
from torchenv.system.process import Command, Runner
from torchenv.system.scratch import make_scratch


class Pip:
    """Creates with virtualenv and installs with the pip that virtualenv carries.

    pip cannot bind a package to an index nor fetch a Python, so `locker` does both; a lock made
    elsewhere, for a Python that is here, needs none of it.
    """

    def __init__(self, run: Runner, *, locker: Installer, logins: Logins | None = None) -> None:
        self._run = run
        self._locker = locker
        self._logins = logins or Logins()

    def lock(self, request: LockRequest) -> Lock:
        return self._locker.lock(request)

    @property
    def cache(self) -> UvCache | None:
        """Nothing: pip keeps whole files, of which it is not known which it has."""
        return None

    def fetch_python(self, python: str) -> Path:
        return self._locker.fetch_python(python)

    def create(self, environment: Path, python: Path) -> None:
        done = self._run(virtualenv_command(environment, python))
        if done.code != 0:
            raise explain_failure(done, f"make the environment {environment}")

    def install(self, environment: Path, lock: Path) -> None:
        locked = Lock.parse(lock.read_text("utf-8"), str(lock))
        with make_scratch() as folder:
            requirements = folder / "requirements.txt"
            requirements.write_text(write_hashed_requirements(locked, str(lock)), "utf-8")
            command = pip_command(
                find_carried_pip(), environment, requirements, indexes=locked.indexes, folders=locked.folders
            )
            done = self._run(with_logins(command, locked.indexes, self._logins))
            if done.code != 0 and "401" in done.err and any(map(self._logins.ask_keyring, locked.indexes)):
                done = self._run(with_logins(command, locked.indexes, self._logins))
        if done.code != 0:
            raise explain_failure(done, f"install {lock.name} into {environment}", indexes=locked.indexes)


def find_carried_pip() -> Path:
    """Return the wheel of the pip that virtualenv carries; Python runs it without unpacking."""
    from virtualenv.seed.wheels.embed import get_embed_wheel

    wheel = get_embed_wheel("pip", f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert wheel is not None, "virtualenv carries a pip for every Python that torchenv runs on"
    return Path(wheel.path)


def virtualenv_command(environment: Path, python: Path) -> Command:
    argv = (sys.executable, "-I", "-m", "virtualenv", "--no-seed", "--no-periodic-update")
    return Command((*argv, "--python", str(python), str(environment)))


def pip_command(
    pip: Path,
    environment: Path,
    requirements: Path,
    *,
    indexes: Sequence[str] = (),
    folders: Sequence[str] = (),
) -> Command:
    """Install exactly these files: the hashes decide, so it does not matter which index is first.

    With `folders` they come from there and from no index.
    """
    argv = [str(interpreter_in(environment)), "-I", str(pip / "pip"), "install"]
    argv += ["--requirement", str(requirements), "--require-hashes", "--no-deps", "--no-compile"]
    if folders:
        argv.append("--no-index")
    for folder in folders:
        argv += ["--find-links", folder]
    for flag, index in zip(["--index-url", *["--extra-index-url"] * len(indexes)], indexes, strict=False):
        argv += [flag, index]
    quiet = {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return Command(tuple(argv), env=quiet)


def with_logins(command: Command, indexes: Sequence[str], logins: Logins) -> Command:
    """Hand pip the logins of its indexes, in variables: what is on a command line, every user can read."""
    known = {index: login for index in indexes if (login := logins.for_program(index))}
    env = {**command.env, "NETRC": os.devnull} if logins.has_default else command.env
    if not known:
        return replace(command, env=env)
    argv = list(command.argv)
    for index in indexes:
        place = argv.index(index)
        del argv[place - 1 : place + 1]
    first, *others = [join_login(index, known[index]) if index in known else index for index in indexes]
    secrets = {"PIP_INDEX_URL": first, **({"PIP_EXTRA_INDEX_URL": " ".join(others)} if others else {})}
    return replace(command, argv=tuple(argv), env=env, secrets=secrets)


def write_hashed_requirements(lock: Lock, source: str) -> str:
    """Write the lock as pip's requirements, each with the hashes of its files.

    Raises `InputError` for what has no files, such as a package from version control.
    """
    lines = []
    for package in lock.packages:
        if package.version is None or not package.files:
            hint = "use `--installer uv`, or lock a released version of it"
            raise InputError(f"{source}: pip cannot prove {package.name}: it has no hash", hint=hint)
        hashes = (f"--hash=sha256:{file.sha256}" for file in package.files)
        lines.append(" ".join([f"{package.name}=={package.version}", *hashes]))
    return "".join(f"{line}\n" for line in lines)
