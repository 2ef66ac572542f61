"""A workspace with environments made by hand, in milliseconds: real files, and a real Python in them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from torchenv.actions.switch import Outside
from torchenv.catalogue import resources
from torchenv.environment.base_python import BasePython
from torchenv.environment.fingerprint import fingerprint
from torchenv.environment.identity import identity
from torchenv.environment.inspect import describe
from torchenv.environment.verify import digest_of_base
from torchenv.system.processes import Process
from torchenv.workspace.records import Environment
from torchenv.workspace.store import Store

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
START = datetime(2026, 11, 30, 8, tzinfo=UTC)


@dataclass
class Workspace:
    """`processes` are what runs, by where it runs from; the clock moves an hour with each look."""

    directory: Path
    processes: dict[str, tuple[Process, ...]] = field(default_factory=dict)
    hours: int = 0

    @property
    def store(self) -> Store:
        return Store(self.directory / "workspace")

    @property
    def outside(self) -> Outside:
        return Outside(
            running=self.running, now=self.now, find_fallback=resources.catalogue().find_line_before
        )

    def running(self, directories: Sequence[Path]) -> tuple[Process, ...]:
        found = (item for directory in directories for item in self.processes.get(str(directory), ()))
        return tuple(dict.fromkeys(found))

    def now(self) -> datetime:
        self.hours += 1
        return START + timedelta(hours=self.hours)

    def built(self, torch: str = "2.15.0+cu132", *, packages: Mapping[str, str] | None = None) -> Environment:
        """Make and record what a `create` would, with a lock of exactly its packages."""
        version, _, backend = torch.partition("+")
        held = {"torch": torch, **(packages or {})}
        store = self.store
        with store.hold("torchenv create"):
            manifest, new = store.clear_unfinished().begin(
                f"{version}-{backend}-py{MINOR}",
                within=store.environments,
                python=BasePython(MINOR, sys.executable, digest_of_base(Path(sys.executable))),
                at=self.now(),
                torch=torch,
                backend=backend,
                index=f"https://mirror.example/whl/{backend}",
                reads=f"dcp<={version[:4]}",
                identity=f"identity-{self.hours}",
            )
            store.write(manifest)
            write_venv(Path(new.path), held)
            store.mark(new)
            store.write_lock(new.number, lock_text(held))
            whole = fingerprint(describe(Path(new.path)))
            store.write_fingerprint(new.number, whole.text)
            manifest, new = manifest.commit(new, lock="sha256:11", fingerprint=whole.digest)
            store.write(manifest)
        return new

    def adopted(self, path: Path, torch: str = "2.14.1+cu130") -> Environment:
        """Make an environment as someone else would, and record it."""
        write_venv(path, {"torch": torch})
        store = self.store
        with store.hold("torchenv adopt"):
            manifest, environment = store.clear_unfinished().adopt(
                f"{torch.partition('+')[0]}-{torch.partition('+')[2]}-py{MINOR}",
                path=path,
                python=BasePython(MINOR, sys.executable),
                at=self.now(),
                torch=torch,
                backend=torch.partition("+")[2],
                identity=identity(path),
                layout="venv",
            )
            store.write(manifest)
            store.remake_current(manifest)
        return environment


def write_venv(path: Path, packages: Mapping[str, str]) -> None:
    """Write a venv that starts, with packages that consist of their version."""
    site = path / "lib" / f"python{MINOR}" / "site-packages"
    site.mkdir(parents=True)
    (path / "bin").mkdir()
    (path / "bin" / "python").symlink_to(sys.executable)
    home = Path(sys.executable).parent
    (path / "pyvenv.cfg").write_text(
        f"home = {home}\nversion = {MINOR}.0\ncommand = {sys.executable} -m venv {path}\n"
    )
    for name, version in packages.items():
        install(site, name, version)


def install(site: Path, name: str, version: str) -> None:
    """Put a package into an environment, in the place of another version of it."""
    for before in site.glob(f"{name}-*.dist-info"):
        (before / "METADATA").unlink()
        before.rmdir()
    (site / name).mkdir(exist_ok=True)
    (site / name / "version.py").write_text(f"__version__ = '{version}'\n")
    (site / name / "__init__.py").write_text(f"from {name}.version import __version__\n")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")


def site_of(environment: Environment) -> Path:
    return Path(environment.path) / "lib" / f"python{MINOR}" / "site-packages"


def lock_text(packages: Mapping[str, str]) -> str:
    """Write a lock of one wheel for each package."""
    lines = ['lock-version = "1.0"', 'created-by = "torchenv"']
    for name, version in sorted(packages.items()):
        file = f"{name}-{version}-py3-none-any.whl"
        lines += ["", "[[packages]]", f'name = "{name}"', f'version = "{version}"']
        url = f"https://mirror.example/files/{file}"
        lines += [f'wheels = [{{ url = "{url}", hashes = {{ sha256 = "{"0" * 64}" }} }}]']
    return "\n".join(lines) + "\n"
