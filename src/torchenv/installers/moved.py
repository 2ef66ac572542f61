"""An installer whose files come from elsewhere than the lock says, proven by the same hashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchenv.installers import Installer, LockRequest
from torchenv.installers.cache import UvCache
from torchenv.lockfile.lock import Lock
from torchenv.system.scratch import make_scratch


class RelocatedInstaller:
    """Installs with another installer from what `moved` makes of a lock: the same, with other addresses."""

    def __init__(self, installer: Installer, moved: Callable[[Lock], Lock]) -> None:
        self._installer = installer
        self._moved = moved

    def lock(self, request: LockRequest) -> Lock:
        return self._installer.lock(request)

    @property
    def cache(self) -> UvCache | None:
        return self._installer.cache

    def fetch_python(self, python: str) -> Path:
        return self._installer.fetch_python(python)

    def create(self, environment: Path, python: Path) -> None:
        self._installer.create(environment, python)

    def install(self, environment: Path, lock: Path) -> None:
        moved = self._moved(Lock.parse(lock.read_text("utf-8"), str(lock)))
        with make_scratch() as folder:
            path = folder / lock.name
            path.write_text(moved.text, "utf-8")
            self._installer.install(environment, path)
