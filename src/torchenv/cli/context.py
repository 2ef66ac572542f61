"""What a command has at hand: settings, and the ports to the disk, to programs and to the terminal."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchenv.cli.settings import project_directory, workspace
from torchenv.errors import InputError, WorkspaceError

if TYPE_CHECKING:
    from torchenv.actions.ask_index import IndexQuery
    from torchenv.actions.ports import Ports
    from torchenv.actions.remove import Irreplaceable
    from torchenv.actions.switch import Outside
    from torchenv.catalogue import Catalogue
    from torchenv.host.model import Host
    from torchenv.index.http import Network
    from torchenv.index.logins import Logins
    from torchenv.index.mirrors import Mirrors
    from torchenv.index.pages import Fetch
    from torchenv.installers import Installer
    from torchenv.installers.inherited import Inherited
    from torchenv.plan import Known, Lifeboat, Plan
    from torchenv.profile.model import Profile
    from torchenv.system.addresses import TorchIndex
    from torchenv.system.process import Programs, Runner
    from torchenv.system.processes import Running
    from torchenv.workspace.records import Environment
    from torchenv.workspace.store import Store

PROJECT_FILE = "torchenv.toml"


@dataclass(frozen=True)
class Context:
    """The settings of one run. `out` takes results, for stdout; `say` takes news, for stderr."""

    arguments: Namespace
    environ: Mapping[str, str]
    cwd: Path
    home: Path | None
    out: Callable[[str], None]
    say: Callable[[str], None]

    @classmethod
    def of(
        cls,
        arguments: Namespace,
        environ: Mapping[str, str],
        *,
        out: Callable[[str], None],
        say: Callable[[str], None],
    ) -> Context:
        """Look at where the command was started; raises `InputError` where that place is gone."""
        try:
            cwd = Path.cwd()
        except FileNotFoundError:
            raise InputError(
                "the current directory no longer exists", hint="change to one that does"
            ) from None
        try:
            home = Path.home()
        except RuntimeError:
            home = None
        return cls(arguments, dict(environ), cwd, home, out, say)

    @cached_property
    def project(self) -> Path | None:
        """The directory of the project that the command was started in, if it is in one."""
        return project_directory(self.cwd, home=self.home, exists=Path.exists)

    @cached_property
    def root(self) -> Path:
        """The workspace's directory."""
        return workspace(
            self.arguments.root,
            self.environ,
            cwd=self.cwd,
            home=self.home,
            exists=Path.exists,
            user_data=self._user_data,
        )

    @property
    def program(self) -> str:
        """How a command that follows begins, so that it finds the same workspace."""
        import shlex

        named = self.arguments.root
        return shlex.join(["torchenv", *(["--root", named] if named else [])])

    @cached_property
    def store(self) -> Store:
        """The workspace on disk."""
        from torchenv.workspace.store import Store

        return Store(self.root, say=self.say)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The packaged catalogue, with the user's own laid over it."""
        from torchenv.catalogue import resources

        return resources.catalogue(self.own_catalogue)

    @cached_property
    def catalogue_digest(self) -> str:
        """The digest of the catalogue, which costs less than reading it."""
        from torchenv.catalogue import resources

        return resources.catalogue_digest(self.own_catalogue)

    @property
    def own_catalogue(self) -> Path | None:
        """The user's own catalogue; one that was named must be there, that of the workspace need not be."""
        path = self.own_catalogue_path
        return path if self._catalogue_option or path.is_file() else None

    @property
    def own_catalogue_path(self) -> Path:
        """Where it is or would be: `--catalogue`, else TORCHENV_CATALOGUE, else in the workspace."""
        named = self._catalogue_option
        return self.cwd / named if named else self.root / "catalogue.toml"

    @property
    def _catalogue_option(self) -> str | None:
        return getattr(self.arguments, "catalogue", None) or self.environ.get("TORCHENV_CATALOGUE")

    @cached_property
    def profile(self) -> Profile:
        """What is wanted: `--profile`, else TORCHENV_PROFILE, else the project's file, else the default."""
        from torchenv.profile.model import Profile
        from torchenv.profile.packaged import read_packaged_profile

        path = self.profile_path
        if path is not None:
            return Profile.from_toml(read_text(path, "the profile"), self._display_path(path))
        return Profile.from_toml(*read_packaged_profile(self._profile_name or "default"))

    @cached_property
    def profile_path(self) -> Path | None:
        """The file that the profile is read from, unless it is one that comes with torchenv."""
        named = self._profile_name
        if named is None:
            own = self.project / PROJECT_FILE if self.project else None
            return own if own is not None and own.is_file() else None
        is_file = named.endswith(".toml") or "/" in named or "\\" in named
        return self.cwd / named if is_file else None

    @property
    def _profile_name(self) -> str | None:
        return getattr(self.arguments, "profile", None) or self.environ.get("TORCHENV_PROFILE")

    def _display_path(self, path: Path) -> str:
        return str(path.relative_to(self.cwd)) if path.is_relative_to(self.cwd) else str(path)

    @cached_property
    def host(self) -> Host:
        """The machine: the one that `--host` describes, else this one."""
        from torchenv.host.model import Host

        files: list[str] = getattr(self.arguments, "host", None) or []
        if len(files) > 1:
            hint = f"leave --host {files[1]} out, or run it for each"
            raise InputError("one plan is for one machine, and --host names several", hint=hint)
        if files:
            return Host.from_json(read_text(self.cwd / files[0], "the host file"), files[0])
        host = self.probe()
        if getattr(self.arguments, "capability", None) is None and self._unknown_card(host):
            from torchenv.host.probe.ask_torch import ask_torch

            return ask_torch(host, self.run)
        return host

    def _unknown_card(self, host: Host) -> bool:
        unknown = (each for each in host.nvidia.devices if each.compute_capability is None)
        return any(self.catalogue.find_capability(each.name) is None for each in unknown)

    def hosts(self, files: Sequence[str]) -> dict[str, Host]:
        """Read host files, by the names that people know them by: without folder and ending if that tells."""
        from torchenv.host.model import Host

        stems = [Path(each).stem for each in files]
        names = stems if len(set(stems)) == len(stems) else list(files)
        texts = (read_text(self.cwd / each, "the host file") for each in files)
        return {
            name: Host.from_json(text, file) for name, text, file in zip(names, texts, files, strict=True)
        }

    def environment(self, named: str | None, *, removed: bool = False) -> Environment:
        """Return the environment that the user means, or the one in use; raises `TorchenvError`."""
        manifest = self.store.read()
        if named is not None:
            return manifest.find(named, removed=removed)
        if manifest.active is None:
            hint = "name one, or make one with `torchenv create`"
            raise WorkspaceError(f"no environment is in use in {self.root}", hint=hint)
        return manifest.active

    def probe(self, *, sysroot: Path | None = None) -> Host:
        """Look at this machine."""
        from torchenv.host.probe import Sources, probe
        from torchenv.plan.python import is_path

        if sysroot is None:
            sources = Sources(run=self.run, variables=self.environ)
        else:
            sources = Sources.sysroot(self.run, self.environ, sysroot)
        python = getattr(self.arguments, "python", None)
        named = Path(python) if python and is_path(python) else None
        return probe(sources, project=self.project or self.cwd, now=self.now(), named=named)

    @cached_property
    def run(self) -> Runner:
        """What starts programs, in an environment in which nothing leads them astray."""
        return self._programs

    @cached_property
    def _programs(self) -> Programs:
        from torchenv.system.process import Programs

        return Programs({**self.other_settings.network, **self.environ})

    @cached_property
    def network(self) -> Network:
        """The way to the indexes, the same as that of the programs that are started."""
        from torchenv.index.http import Network

        return Network.of(self._programs.environ, logins=self.logins)

    @cached_property
    def logins(self) -> Logins:
        """The logins of this run: those in variables, netrc's, keyring's."""
        from torchenv.index.http import netrc_path
        from torchenv.index.logins import Logins

        return Logins(
            given=self.mirrors.logins,
            netrc=netrc_path(self.environ, self.home),
            named=self.mirrors.named,
            run=self.run,
        )

    @cached_property
    def mirrors(self) -> Mirrors:
        """What stands in place of the default indexes: the variables, else the profile."""
        from torchenv.index.mirrors import Mirrors

        return Mirrors.of(self.environ, self.profile.index)

    @cached_property
    def fetch(self) -> Fetch:
        """What reads the pages of an index."""
        from torchenv.index.pages import fetcher

        return fetcher(self.network)

    @cached_property
    def head(self) -> Fetch:
        """What finds out whether a file is on an index, without fetching it."""
        from torchenv.index.pages import fetcher

        return fetcher(self.network, method="HEAD")

    def torch_index(self, profile: Profile) -> TorchIndex | None:
        """What stands in place of PyTorch's own index, if anything is set."""
        from torchenv.index.mirrors import Mirrors

        return Mirrors.of(self.environ, profile.index).torch

    def query_indexes(self, *, is_plan: bool) -> IndexQuery:
        """Return how the indexes are asked: a plan waits two seconds, and believes an answer for an hour."""
        from torchenv.actions.ask_index import PLAN_SECONDS, IndexMemory, IndexQuery

        text = self.store.read_index_answers()
        return IndexQuery(
            network=self.network.within(PLAN_SECONDS) if is_plan else self.network,
            memory=IndexMemory.parse(text, self.now(), is_believed=is_plan),
            pythons=self.pythons,
            named_by_user=self.mirrors.hosts,
            is_impatient=is_plan,
        )

    def remember(self, query: IndexQuery) -> None:
        """Keep what the indexes answered for the plans of the next hour, where there is a workspace."""
        if query.memory is not None:
            self.store.write_index_answers(query.memory.write())

    @cached_property
    def pythons(self) -> str:
        """From where uv would fetch an interpreter."""
        from torchenv.installers.uv import PYTHONS

        return self.environ.get("UV_PYTHON_INSTALL_MIRROR") or PYTHONS

    @cached_property
    def package_index(self) -> str | None:
        """The index in place of the default package index, if one is set."""
        return self.mirrors.packages

    @cached_property
    def installer(self) -> Installer:
        """What locks and installs: the flag's, else TORCHENV_INSTALLER's, else the profile's."""
        named = getattr(self.arguments, "installer", None) or self.environ.get("TORCHENV_INSTALLER")
        match named or self.profile.install.installer:
            case "uv":
                return self._uv()
            case "pip" if self._offline and getattr(self.arguments, "wheels", None) is None:
                hint = "leave --offline or `--installer pip` out"
                raise InputError("pip cannot install from a cache alone, as --offline asks", hint=hint)
            case "pip":
                from torchenv.installers.pip import Pip

                return Pip(self.run, locker=self._uv(), logins=self.logins)
            case other:
                raise InputError(f"there is no installer {other!r}", hint="TORCHENV_INSTALLER is uv or pip")

    @cached_property
    def ports(self) -> Ports:
        """All that an action may use."""
        from torchenv.actions.ports import Ports

        return Ports(
            store=self.store,
            installer=self.installer,
            run=self.run,
            fetch=self.fetch,
            say=self.say,
            now=self.now,
            system=self.system,
        )

    def _uv(self) -> Installer:
        from torchenv.installers.uv import Uv, uv_program

        link_mode = self.profile.install.link_mode
        return Uv(
            self.run,
            program=uv_program(),
            link_mode=link_mode,
            offline=self._offline,
            only_wheels=getattr(self.arguments, "only_wheels", False),
            logins=self.logins,
            fetch=self.fetch,
            say=self.say,
        )

    @cached_property
    def _offline(self) -> bool:
        return getattr(self.arguments, "offline", False)

    @cached_property
    def other_settings(self) -> Inherited:
        """What pip's and uv's own settings say, in variables and in files."""
        from torchenv.installers.inherited import read_inherited

        home = self.home or self.cwd
        return read_inherited(
            self.environ, lambda path: path.read_text("utf-8"), system=sys.platform, home=home
        )

    @cached_property
    def outside(self) -> Outside:
        """What a switch needs beside the workspace."""
        from torchenv.actions.switch import Outside

        return Outside(running=self.running, now=self.now, say=self.say)

    @cached_property
    def running(self) -> Running:
        """What tells which processes run from an environment."""
        from torchenv.system.processes import running

        return running(sys.platform, lambda: self.run)

    def irreplaceable(self, *, force: bool) -> Irreplaceable:
        """What says why an environment could not be built again: nothing with `force` or `--offline`."""
        if force or self.arguments.offline:
            return lambda _: None
        from torchenv.actions.fetchable import irreplaceable

        return lambda environment: irreplaceable(environment, self.store, self.head, self.say)

    def gather_known(self, findings: Mapping[str, int] | None = None) -> Known:
        """Gather what weighs in the advice alone; `findings` counts those of an audit by severity."""
        from torchenv.plan import Known

        checkpoints = self.profile.checkpoints
        return Known(
            lifeboat=self._lifeboat() if checkpoints.distributed else None,
            oldest_lifeboat=checkpoints.lifeboat_max_age,
            findings=findings or {},
        )

    def add_warnings(self, plan: Plan) -> Plan:
        """Add to the warnings of a plan which checkpoints its torch cannot read."""
        # Without a workspace there is no record, and reading one costs a plan a tenth of its time.
        if plan.build is None or not self.root.is_dir():
            return plan
        from torchenv.checkpoints.lifeboats import out_of_reach
        from torchenv.plan.values import Remark

        lost = out_of_reach(self.store.read(), plan.build.release.version)
        remarks = (Remark("checkpoints-out-of-reach", each) for each in lost)
        return replace(plan, warnings=(*plan.warnings, *remarks))

    def _lifeboat(self) -> Lifeboat | None:
        from torchenv.checkpoints.lifeboats import find_newest_kept
        from torchenv.plan import Lifeboat

        kept = find_newest_kept(self.store.read())
        if kept is None or kept.saved is None:
            return None
        return Lifeboat(kept.path, max(self.now() - kept.saved, timedelta()))

    @property
    def system(self) -> str:
        """This system by the name that checkpoints and hosts know it by."""
        return {"win32": "windows", "darwin": "darwin"}.get(sys.platform, "linux")

    def warn_of_surroundings(self, torch: str | None) -> None:
        """Describe what stands around an environment with this torch and may undo it."""
        from torchenv.actions.surroundings import surroundings

        for problem in surroundings(self.environ, self.project, torch=torch):
            self.say(f"note: {problem.message}")

    def progress(self, doing: str) -> Callable[[int, int], None]:
        """Describe a person at a terminal how far something has come, by bytes, on one line."""

        def tell(done: int, total: int) -> None:
            if sys.stderr.isatty() and not self.arguments.quiet and total:
                end = "\n" if done == total else ""
                sys.stderr.write(f"\r{doing}: {done / total:.0%} of {total / 1e9:.2f} GB{end}")
                sys.stderr.flush()

        return tell

    def ask_yes_no(self, question: str) -> bool:
        """Ask a person; where nobody answers, the answer is no."""
        self.say(f"{question} [y/N]")
        answer = sys.stdin.readline() if sys.stdin else ""
        return answer.strip().lower() in {"y", "yes"}

    def now(self) -> datetime:
        """Return the time, in UTC and to the second."""
        return datetime.now(UTC).replace(microsecond=0)

    def print_json(self, document: Mapping[str, Any]) -> None:
        """Print a document on stdout, in ASCII: no encoding of a terminal stands in its way."""
        import json

        self.out(json.dumps(document, indent=2))

    def _user_data(self) -> Path:
        if self.home is None:
            hint = "name a workspace with --root DIR or TORCHENV_HOME"
            raise InputError("this user has no home directory to keep a workspace in", hint=hint)
        from platformdirs import user_data_path

        return user_data_path("torchenv", appauthor=False)


def read_text(path: Path, what: str) -> str:
    """Read a file that the user named; raises `InputError`."""
    try:
        # Editors and shells of Windows put a mark before a text, which is no part of it.
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{what} {path} is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror or error}") from None
