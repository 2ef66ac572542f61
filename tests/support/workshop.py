"""A workspace with the real uv and a loopback index, on a machine that is made up."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.version import Version
from tests.support.index import Index
from tests.support.wheels import DEVICES

from torchenv.actions.ask_index import IndexQuery, replan_with_index
from torchenv.actions.create import CreateOrder, CreateOutcome, create
from torchenv.actions.ports import Ports
from torchenv.catalogue import resources
from torchenv.host.model import Host, Interpreter, SeenEnvironment
from torchenv.index.http import Network
from torchenv.index.pages import Fetch, fetcher
from torchenv.installers import LockRequest, interpreter_in
from torchenv.installers.uv import Uv, uv_program
from torchenv.packages import of_profile
from torchenv.plan import Question, Wish, resolve
from torchenv.profile.model import Profile
from torchenv.system.addresses import TorchIndex
from torchenv.system.disk import Disk
from torchenv.system.process import Command, Programs, Runner
from torchenv.workspace.store import Store

HOSTS = Path(__file__).parents[1] / "data" / "hosts"
NOW = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
PYTHON = ".".join(map(str, sys.version_info[:3]))
MINOR = ".".join(map(str, sys.version_info[:2]))


def recorded(name: str) -> Host:
    """Return a host of tests/data with the Python that runs the tests as its only interpreter."""
    host = Host.from_json((HOSTS / f"{name}.json").read_text("utf-8"), name)
    python = Interpreter(version=Version(PYTHON), path=sys.executable, machine="x86_64")
    return replace(host, pythons=(python,))


def using(host: Host, environment: Path, torch: str) -> Host:
    """Put an environment on the host that is the active one."""
    seen = SeenEnvironment(path=str(environment), python=Version(PYTHON), torch=Version(torch), active=True)
    return replace(host, environments=(seen,))


def hardware(host: Host) -> str:
    """Describe the host's devices as the made-up torch sees them."""
    devices: list[dict[str, Any]] = [
        {"name": item.name, "capability": item.compute_capability or (0, 0)} for item in host.nvidia.devices
    ]
    devices += [{"name": device.name, "gfx": device.gfx} for device in host.amd.devices]
    devices += [{"name": device.name} for device in host.intel.devices if device.xpu]
    return json.dumps(devices)


class RoomyDisk(Disk):
    """As a disk on which a real torch would find room, for the made-up ones are small."""

    def free_space(self, path: Path) -> int:
        return 1 << 40


@dataclass
class Workshop:
    """Makes environments in `root` from what `index` serves; `said` is what people were told."""

    index: Index
    root: Path
    environ: dict[str, str]
    said: list[str] = field(default_factory=list)
    offline: bool = False
    pythons: str = "http://127.0.0.1:9/pythons"

    @property
    def fetch(self) -> Fetch:
        return fetcher(self.network)

    @property
    def network(self) -> Network:
        return Network.of(self.environ)

    @property
    def store(self) -> Store:
        return Store(self.root)

    def create(
        self,
        host: Host,
        version: str = "2.15",
        *,
        profile: Profile | None = None,
        run: Callable[[Runner], Runner] = lambda runner: runner,
        disk: Disk | None = None,
        devices: str | None = None,
        again: bool = False,
        **wish: Any,
    ) -> CreateOutcome:
        """Decide, ask the index and build, as the command does.

        `run` may stand between torchenv and the programs, `disk` in the place of the disk; `devices` is
        the hardware that torch sees, which is the host's unless a test says otherwise.
        """
        profile = profile or Profile(name="default")
        environ = {**self.environ, DEVICES: hardware(host) if devices is None else devices}
        runner = run(Programs(environ))
        order = self.order(host, version, profile=profile, run=runner, **wish)
        ports = Ports(
            store=Store(self.root, say=self.said.append, disk=disk or RoomyDisk()),
            installer=Uv(runner, program=uv_program(), offline=self.offline),
            run=runner,
            fetch=self.fetch,
            say=self.said.append,
            now=lambda: NOW,
            system="linux",
        )
        return create(replace(order, again=again), ports)

    def order(self, host: Host, version: str, *, profile: Profile, run: Runner, **wish: Any) -> CreateOrder:
        """Decide what is to be made."""
        catalogue = resources.catalogue()
        asked = Wish(
            version=version,
            packages=profile.torch.packages,
            backends=profile.backend.only,
            offline=self.offline,
            **{"torch_index": TorchIndex(self.index.torch_root), **wish},
        )
        question = Question(host=host, wish=asked, catalogue=catalogue)
        plan = resolve(question)
        if not self.offline:
            plan = replan_with_index(plan, question, IndexQuery(network=self.network, pythons=self.pythons))
        along = of_profile(
            profile.packages, "profile", self.root, lambda path: path.read_text("utf-8"), catalogue
        )
        return CreateOrder(
            plan=plan,
            host=host,
            profile=profile,
            catalogue=catalogue,
            carried=along,
            companions=asked.packages,
            package_index=self.index.packages,
        )

    def old_environment(self, path: Path, *requirements: str, backend: str = "cu126") -> Path:
        """Make an environment as another tool would: torch 2.14.1 of `backend` and what is required."""
        uv = Uv(Programs(self.environ), program=uv_program())
        lock = uv.lock(
            LockRequest(
                requirements=(f"torch==2.14.1+{backend}",),
                packages=requirements,
                torch_index=self.index.backend(backend),
                package_index=self.index.packages,
                python=MINOR,
                interpreter=Path(sys.executable),
                platform="linux-x86_64",
            )
        )
        written = path.with_name("pylock.old.toml")
        written.write_text(lock.text, "utf-8")
        uv.create(path, Path(sys.executable))
        uv.install(path, written)
        return path

    def inside(self, made: CreateOutcome, code: str) -> str:
        """Run a line of Python in an environment that was made."""
        python = str(interpreter_in(Path(made.environment.path)))
        done = Programs(self.environ)(Command((python, "-I", "-B", "-c", code)))
        return done.check("ask the environment").strip()
