"""One run of the command line: its settings, its output, and the ports that are made of them when needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torchenv.cli.output import Output
from torchenv.cli.settings import Settings, find_user_state
from torchenv.errors import InputError, WorkspaceError

if TYPE_CHECKING:
    from torchenv.actions.ports import Ports
    from torchenv.actions.switch import Outside
    from torchenv.catalogue.releases import Catalogue
    from torchenv.index.http import Network
    from torchenv.index.logins import Logins
    from torchenv.index.mirrors import Mirrors
    from torchenv.index.pages import Fetch
    from torchenv.installers import Installer
    from torchenv.installers.inherited import Inherited
    from torchenv.profile.model import Profile
    from torchenv.system.orphans import SharedHandles
    from torchenv.system.process import Programs
    from torchenv.system.processes import Running
    from torchenv.workspace.store import Store
    from torchenv.workspace.trust import Suspicion, TrustRecord


@dataclass(frozen=True)
class Session:
    """Everything here is made once, and only by the command that needs it."""

    settings: Settings
    output: Output
    stdin: TextIO | None = None

    @cached_property
    def store(self) -> Store:
        """The workspace on disk."""
        from torchenv.workspace.store import Store

        root = self.settings.root
        return Store(
            root,
            say=self.output.say,
            share=self.shared.share,
            refuse=self.refuse_suspicious,
            remember=lambda identity: self.trust_record.remember(identity, root),
        )

    @cached_property
    def shared(self) -> SharedHandles:
        """The locks that a started program holds as long as it runs, should this process be killed."""
        from torchenv.system.orphans import SharedHandles

        return SharedHandles()

    @cached_property
    def trust_record(self) -> TrustRecord:
        """The workspaces that this user accepted or changed."""
        from torchenv.workspace.trust import TrustRecord

        return TrustRecord(find_user_state(self.settings))

    @cached_property
    def suspicion(self) -> Suspicion | None:
        """What speaks against a workspace that the upward search found; one that was named is trusted."""
        from torchenv.workspace.trust import suspect

        if self.settings.is_root_named or self.settings.project is None:
            return None
        return suspect(self.settings.root, self.trust_record, lambda: self.store.read().root)

    def refuse_suspicious(self) -> None:
        """Raise `WorkspaceError` where the workspace may only be read, with the command that accepts it."""
        if self.suspicion is None:
            return
        import shlex

        root = self.settings.root
        raise WorkspaceError(
            f"workspace `{root}` is only read: it {self.suspicion}",
            hint=f"look through it, then accept it with `{shlex.join(['torchenv', 'trust', str(root)])}`",
        )

    @cached_property
    def catalogue(self) -> Catalogue:
        """The packaged catalogue, with the user's own laid over it."""
        from torchenv.catalogue import resources

        settings = self.settings
        # What lies in a project's own workspace may have come with a repository.
        is_projects = settings.project is not None and settings.root == settings.project / ".torchenv"
        is_named = settings.catalogue is not None or not is_projects
        return resources.catalogue(self.own_catalogue, is_named=is_named)

    @property
    def own_catalogue(self) -> Path | None:
        """The user's own catalogue; one that was named must be there, that of the workspace need not be."""
        path = self.own_catalogue_path
        return path if self.settings.catalogue or os.path.isfile(path) else None

    @property
    def own_catalogue_path(self) -> Path:
        """Where it is or would be."""
        return self.settings.catalogue or self.settings.root / "catalogue.toml"

    @cached_property
    def profile(self) -> Profile:
        """What is wanted: `--profile`, else TORCHENV_PROFILE, else the project's file, else the default."""
        from torchenv.profile.model import Profile

        return Profile.from_toml(*read_profile(self.settings))

    @cached_property
    def mirrors(self) -> Mirrors:
        """What stands in place of the default indexes: the variables, else the profile."""
        from torchenv.index.mirrors import Mirrors

        return Mirrors.of(self.settings.environ, self.profile.index)

    @cached_property
    def named_mirrors(self) -> Mirrors:
        """What the variables alone name in place of the default indexes."""
        from torchenv.index.mirrors import Mirrors

        return Mirrors.of(self.settings.environ)

    @cached_property
    def logins(self) -> Logins:
        """The logins of this run: those in variables, netrc's, keyring's."""
        from torchenv.index.http import netrc_path
        from torchenv.index.logins import Logins

        return Logins(
            given=self.mirrors.logins,
            netrc=netrc_path(self.settings.environ, self.settings.home),
            named=self.mirrors.named,
            run=self.programs,
        )

    @cached_property
    def programs(self) -> Programs:
        """What starts programs, in an environment in which nothing leads them astray."""
        from torchenv.cli.programs import ShownPrograms

        environ = {**self.inherited.network, **self.settings.environ}
        return ShownPrograms(environ, self.shared, self.output)

    @cached_property
    def network(self) -> Network:
        """The way to the indexes, the same as that of the programs that are started."""
        from torchenv.index.http import Network

        return Network.of(self.programs.environ, logins=self.logins)

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

    def make_installer(self, *, has_wheels: bool = False) -> Installer:
        """Return what locks and installs: the flag's, else TORCHENV_INSTALLER's, else the profile's.

        `has_wheels` says that all files are at hand. Raises `InputError` where it cannot do what was asked.
        """
        from torchenv.installers.uv import Uv, uv_program

        install, settings = self.profile.install, self.settings
        uv = Uv(
            self.programs,
            program=uv_program(),
            link_mode=install.link_mode,
            offline=self.settings.is_offline,
            only_wheels=self.settings.is_only_wheels,
            logins=self.logins,
            fetch=self.fetch,
            # A place that the user named is used or refused, and nothing else.
            fallback_cache=None if settings.environ.get("UV_CACHE_DIR") else settings.root / "cache",
            say=self.output.say,
        )
        if (self.settings.installer or install.installer) == "uv":
            return uv
        if self.settings.is_offline and not has_wheels:
            hint = "leave out --offline or `--installer pip`"
            raise InputError("pip cannot install from a cache alone, as --offline asks", hint=hint)
        from torchenv.installers.pip import Pip

        return Pip(self.programs, locker=uv, logins=self.logins)

    def make_ports(self, *, has_wheels: bool = False) -> Ports:
        """Return all that an action may use."""
        from torchenv.actions.ports import Ports

        return Ports(
            store=self.store,
            installer=self.make_installer(has_wheels=has_wheels),
            run=self.programs,
            fetch=self.fetch,
            say=self.output.say,
            now=now,
            system=self.settings.checkpoint_system,
        )

    @cached_property
    def inherited(self) -> Inherited:
        """What pip's and uv's own settings say, in variables and in files."""
        from torchenv.installers.inherited import read_inherited

        settings = self.settings
        return read_inherited(
            settings.environ,
            lambda path: path.read_text("utf-8"),
            system=settings.system,
            home=settings.home or settings.cwd,
        )

    @property
    def outside(self) -> Outside:
        """What a switch needs beside the workspace."""
        from torchenv.actions.switch import Outside

        def find_fallback(torch: str) -> str | None:
            # Only who asks pays for the catalogue: a way back reads it not.
            return self.catalogue.find_line_before(torch)

        return Outside(running=self.running, now=now, say=self.output.say, find_fallback=find_fallback)

    @property
    def running(self) -> Running:
        """What tells which processes run from an environment."""
        from torchenv.system.processes import running

        return running(self.settings.system, lambda: self.programs)

    def ask_yes_no(self, question: str) -> bool:
        """Ask a person; where nobody answers, the answer is no."""
        self.output.warn(f"{question} [y/N]")
        answer = self.stdin.readline() if self.stdin else ""
        return answer.strip().lower() in {"y", "yes"}


def now() -> datetime:
    """Return the time, in UTC and to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def read_profile(settings: Settings) -> tuple[str, str]:
    """Return the text of the profile that counts, and its source for messages."""
    path = settings.profile_path
    if path is None:
        from torchenv.profile.packaged import read_packaged_profile

        return read_packaged_profile(settings.profile or "default")
    shown = path.relative_to(settings.cwd) if path.is_relative_to(settings.cwd) else path
    return read_text(path, "the profile"), str(shown)


def read_text(path: Path, what: str = "the file") -> str:
    """Read a file that the user named; raises `InputError`."""
    try:
        # Editors and shells of Windows put a mark before a text, which is no part of it.
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{what} {path} is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{what} {path} cannot be read: {error.strerror or error}") from None


def write_text(path: Path, text: str, *, mark: str, other: str) -> None:
    """Write a file that the user named, wholly or not at all; raises `InputError`.

    One that is there is replaced only where `mark`, a pattern, shows near its beginning that torchenv wrote
    it. `other` is the option with a name for another.
    """
    from torchenv.system.disk import replace_file

    try:
        _refuse_foreign_file(path, mark, other)
        replace_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def _refuse_foreign_file(path: Path, mark: str, other: str) -> None:
    if not os.path.isfile(path):
        return
    import re
    import shlex

    with path.open("rb") as file:
        head = file.read(4096).decode("utf-8", "replace")
    # Nothing is lost with an empty one, such as mktemp makes.
    if not head or re.search(mark, head.replace("\r\n", "\n")):
        return
    option, name = other.split()
    plain, n = Path(name), 1
    while os.path.lexists(path.with_name(name)):
        n += 1
        name = f"{plain.stem}-{n}{plain.suffix}"
    free = shlex.join([option, str(path.with_name(name))])
    raise InputError(
        f"`{path}` already exists and was not written by torchenv",
        hint=f"write to another file with `{free}`",
    )
