"""uv as an installer: torch's family from torch's index, everything else never from it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from torchenv.environment.unshare import can_clone, link_mode
from torchenv.errors import IndexFailed, ToolFailed, TorchenvError, Unobtainable
from torchenv.index.http import Missing
from torchenv.index.logins import Logins
from torchenv.index.pages import Fetch, ProjectPage, Wheel
from torchenv.installers import LockRequest, interpreter_in, name_of
from torchenv.installers.cache import UvCache
from torchenv.installers.trouble import conflict, explain_failure
from torchenv.lockfile.lock import Lock, write_lock
from torchenv.system.addresses import refuse_login
from torchenv.system.documents import Table
from torchenv.system.process import Command, Completed, Runner
from torchenv.system.scratch import make_scratch


class Uv:
    """Locks, creates and installs with the uv that torchenv depends on.

    `link_mode` is the profile's word (auto, copy or hardlink); `offline` takes everything from uv's cache;
    with `only_wheels` nothing is built from source. `logins` are told to uv for the indexes that want them.
    `say` hears what runs code of a package before it does. `fetch` reads a page on which uv found nothing,
    to tell an index that lacks a package from one that lets nobody in. `fallback_cache` takes the place of a
    cache that cannot be used.
    """

    def __init__(
        self,
        run: Runner,
        *,
        program: Path,
        link_mode: str = "auto",
        offline: bool = False,
        only_wheels: bool = False,
        logins: Logins | None = None,
        fetch: Fetch | None = None,
        fallback_cache: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._run = _offline(run) if offline else run
        self._program = program
        self._link_mode = link_mode
        self._only_wheels = only_wheels
        self._logins = logins or Logins()
        self._fetch = fetch
        self._fallback_cache = fallback_cache
        self._say = say

    def lock(self, request: LockRequest) -> Lock:
        for text in (*request.requirements, *request.packages, *request.constraints):
            refuse_login(text, "a requirement")
        self._leave_unusable_cache()
        with make_scratch() as folder:
            raw, bound = self._resolve(self._without_references(request), folder)
        homes = request.homes
        package_index = request.package_index or self._default_index
        index_of = {
            package["name"]: homes[request.home_of(package["name"]) or "torch"]
            if package["name"] in bound
            else package_index
            for package in raw["packages"]
        }
        text = write_lock({**raw, **fitting(request)}, index_of=index_of)
        return Lock.parse(text, "the lock that uv made")

    def create(self, environment: Path, python: Path) -> None:
        done = self._run(venv_command(self._program, environment, python))
        if done.code != 0:
            raise explain_failure(done, f"make the environment {environment}")

    def install(self, environment: Path, lock: Path) -> None:
        indexes = Lock.parse(lock.read_text("utf-8"), str(lock)).indexes
        mode = self._choose_link_mode(environment)
        command = install_command(
            self._program,
            environment,
            lock,
            indexes=indexes,
            link_mode=mode,
            builds=not self._only_wheels,
        )
        named = {f"index-{number}": index for number, index in enumerate(indexes, start=1)}
        done = self._ask(command, named)
        if done.code != 0:
            raise explain_failure(done, f"install {lock.name} into {environment}", indexes=indexes)

    def fetch_python(self, python: str) -> Path:
        """Fetch an interpreter ("3.12", "3.14t") into uv's own store and say where it is."""
        fetched = self._run(fetch_python_command(self._program, python))
        if fetched.code != 0:
            raise ToolFailed(
                f"could not fetch Python {python}: {fetched.reason().removeprefix('cause: ')}",
                hint="install it, name another with --python, or name a mirror with UV_PYTHON_INSTALL_MIRROR",
            )
        found = self._run(find_python_command(self._program, python))
        return Path(found.check(f"find the Python {python} that uv fetched").strip())

    def _leave_unusable_cache(self) -> None:
        # Only with something to fall back to is it looked at before uv does.
        if self._fallback_cache is not None:
            _ = self.cache

    @cached_property
    def cache(self) -> UvCache:
        """The cache that is used; that another one had to be is said once."""
        said = self._run(cache_command(self._program)).check("find uv's cache")
        cache = UvCache(Path(said.strip()))
        why = cache.explain_unusable() if self._fallback_cache is not None else None
        if why is None or self._fallback_cache is None:
            return cache
        self._say(f"note: the cache {cache.path} {why}: using {self._fallback_cache}")
        self._run = _keep_cache(self._run, self._fallback_cache)
        return UvCache(self._fallback_cache)

    def _choose_link_mode(self, environment: Path) -> str:
        """Settle how uv brings files from its cache: what cannot be linked is copied, without a complaint."""
        cache = self.cache.path
        try:
            cache.mkdir(parents=True, exist_ok=True)
            same = cache.stat().st_dev == environment.stat().st_dev
            cloning = same and can_clone(cache, environment)
        except (OSError, UnicodeEncodeError):
            # A cache in which nothing may be written, or whose name this locale cannot spell, is uv's affair.
            return "copy"
        return link_mode(self._link_mode, can_clone=cloning, same_file_system=same)

    @cached_property
    def _default_index(self) -> str | None:
        return default_index(self._run, self._program)

    def _without_references(self, request: LockRequest) -> LockRequest:
        """Leave out what lies in a folder or a repository where nothing of it may be started."""
        if request.builds:
            return request
        named = [text for text in request.packages if _is_reference(text)]
        for text in named:
            self._say(f"note: {name_of(text)} is left out: a dry run opens no folder and no repository")
        return replace(request, packages=tuple(text for text in request.packages if text not in named))

    def _resolve(self, request: LockRequest, folder: Path) -> tuple[dict[str, Any], frozenset[str]]:
        """Resolve until every package that has an index of its own is bound to it.

        A source of uv's reaches only what is listed. So a name that another package brings along
        (triton-rocm) shows itself first, as chosen from the wrong index or not found there, and is
        then listed. Nothing is built from source before it is said, nor where a wheel will do.
        """
        named = (*request.requirements, *request.packages)
        bound = frozenset(name for name in map(name_of, named) if request.home_of(name))
        bound |= request.family & request.bound
        builds = False
        while True:
            _write_project(folder, project(request, bound), request)
            done = self._ask(
                lock_command(self._program, folder, request, builds=builds), _name_indexes(request)
            )
            if done.code == 0:
                if yanked := _find_yanked(done.err) - request.upgrade:
                    request = replace(request, upgrade=request.upgrade | yanked)
                    continue
                raw = dict(Table.from_toml(done.out, "what uv printed").raw())
                missed = _homeless({package["name"] for package in raw["packages"]}, request, bound)
                if not missed:
                    return raw, bound
            else:
                missed = self._find_missed(done, request, folder, bound)
                if not missed and not builds and (sources := find_sources(done.err)):
                    self._announce(sources, request)
                    builds = True
                    continue
                if not missed and find_contested(done.err) & _family(request):
                    return self._resolve_uncontested(request, folder, done, builds=builds), bound
                if not missed:
                    error = self._explain(done, request, folder)
                    if self._find_opened_page(error):
                        continue
                    raise error
            bound |= missed

    def _resolve_uncontested(
        self, request: LockRequest, folder: Path, refused: Completed, *, builds: bool
    ) -> dict[str, Any]:
        """Resolve where a package says itself where torch comes from: of torch's family nobody is heard.

        The family is chosen alone first. Then each of its packages is asked for by its file, which still has
        the version that others bound, and stands in place of any other address. Raises what was to be said of
        the first refusal where that is not what stood in the way.
        """
        contested = find_contested(refused.err)
        beside = tuple(sorted(contested & request.family - set(map(name_of, request.requirements))))
        alone = replace(request, packages=beside, constraints=(), kept=None, asked_by={})
        family, bound = self._resolve(alone, folder)
        own = {
            package["name"]: package for package in family["packages"] if package["name"] in _family(request)
        }
        files = {
            name: f"{name} @ {url}"
            for name, package in own.items()
            if (url := _fitting_file(package, request))
        }
        names = tuple(word for name in sorted(own) for word in ("--no-sources-package", name))
        fixed = replace(request, requirements=tuple(files.values()), torch_index=None)
        private = frozenset(name for name in bound if fixed.home_of(name))

        def ask(overridden: Iterable[str], culprits: Iterable[str]) -> Completed:
            over = tuple(files[name] for name in sorted(overridden))
            asked = replace(fixed, overrides=(*request.overrides, *over))
            _write_project(folder, project(asked, private), asked)
            (folder / "excludes.txt").write_text("".join(f"{name}\n" for name in sorted(culprits)), "utf-8")
            command = lock_command(self._program, folder, asked, builds=builds)
            argv = (*command.argv, *names, *(("--excludes", "excludes.txt") if culprits else ()))
            return self._ask(replace(command, argv=argv), _name_indexes(request))

        self._say_contested(refused.err, request)
        # An override would hide what the others want of torch: they are heard first, without the culprits.
        overridden: set[str] = set()
        culprits: set[str] = set()
        while (done := ask((), culprits)).code != 0:
            more, who = find_contested(done.err) & files.keys(), _find_culprit(done.err)
            if not more or who is None or who.partition("==")[0] in culprits:
                raise self._explain(done, request, folder)
            if who != _find_culprit(refused.err):
                self._say_contested(done.err, request)
            overridden |= more
            culprits.add(who.partition("==")[0])
        if overridden:
            done = ask(overridden, ())
            if done.code != 0:
                raise self._explain(done, request, folder)
        raw = dict(Table.from_toml(done.out, "what uv printed").raw())
        return {**raw, "packages": [own.get(package["name"], package) for package in raw["packages"]]}

    def _say_contested(self, said: str, request: LockRequest) -> None:
        line = re.sub(r"\s+", " ", said)
        culprit = _find_culprit(said)
        named = [name_of(text) for text in request.packages if _is_reference(text)]
        who = culprit or " or ".join(named) or "a package"
        name = who.partition("==")[0]
        source = f"{request.asked_by[name]}: " if name in request.asked_by else ""
        found = re.findall(r"(?:- |adding `\S+ @ )(\w+://[^\s`]+)", line)
        others = [url for url in found if url != request.torch_index]
        for contested in sorted(find_contested(said)):
            where = f"from {', '.join(others)}" if others else "from an address of its own"
            ours = f"it comes from {request.torch_index or 'the package index'}"
            self._say(f"note: {source}{who} takes {contested} {where}, which is ignored: {ours}")

    def _announce(self, sources: Sequence[str], request: LockRequest) -> None:
        """Announce that code of packages is about to run; raises `Unobtainable` where that is not wanted."""
        have = "has" if len(sources) == 1 else "have"
        lack = f"{', '.join(sources)} {have} no wheel for Python {request.python} on {request.platform}"
        if self._only_wheels or not request.builds:
            why = "--only-wheels was given" if self._only_wheels else "a dry run builds nothing"
            hint = f"choose a version that has one, or leave {sources[0]} out"
            raise Unobtainable(f"{lack}, and {why}", hint=hint)
        self._say(f"note: {lack}: building from source, which runs code of the package")

    def _find_missed(
        self, done: Completed, request: LockRequest, folder: Path, bound: frozenset[str]
    ) -> frozenset[str]:
        unbound = request.family - bound if request.torch_index else frozenset()
        if not request.private and not any(name in done.err for name in unbound):
            return frozenset()
        return _homeless(self._survey(request, folder), request, bound)

    def _survey(self, request: LockRequest, folder: Path) -> frozenset[str]:
        """Name every package that there would be if all indexes were alike; none where they do not fit.

        Raises `IndexFailed` where an index did not answer.
        """
        _write_project(folder, project(request, frozenset()), request)
        done = self._ask(survey_command(self._program, folder, request), _name_indexes(request))
        if done.code != 0:
            error = explain_failure(done, "look through the indexes", request)
            if isinstance(error, IndexFailed) and not isinstance(error, Unobtainable):
                raise error
        return frozenset(re.findall(r"^([a-z0-9-]+)==", done.out, re.MULTILINE))

    def _explain(self, done: Completed, request: LockRequest, folder: Path) -> TorchenvError:
        if conflict(done.err, request) is None:
            return explain_failure(done, "choose the packages", request)
        # What the others would take if torch were not settled names the other side of the conflict.
        free = project(request, frozenset(), requirements=())
        _write_project(folder, free, request)
        others = self._ask(survey_command(self._program, folder, request), _name_indexes(request))
        found = conflict(done.err, request, others.out)
        return found or explain_failure(done, "choose the packages", request)

    def _find_opened_page(self, error: TorchenvError) -> bool:
        """Look at the page of a package that uv found nothing of; return whether keyring has opened it.

        uv does not say that an index of one's own let nobody in. Raises `IndexFailed` where it did not, or
        where something else answers.
        """
        if not isinstance(error, Unobtainable) or error.page is None or self._fetch is None:
            return False
        before = self._logins.find(error.page)
        answer = self._fetch(error.page)
        if not isinstance(answer, Missing):
            ProjectPage.parse(answer, error.page, error.page.rstrip("/").rpartition("/")[2])
        return self._logins.find(error.page) != before

    def _ask(self, command: Command, named: Mapping[str, str]) -> Completed:
        """Run a command with the logins of its indexes, and again if keyring has one that was missing."""
        done = self._run(with_logins(command, named, self._logins))
        if done.code != 0 and re.search(r"\b401\b", done.err):
            found = [self._logins.ask_keyring(url) for url in named.values() if not self._logins.find(url)]
            if any(found):
                done = self._run(with_logins(command, named, self._logins))
        return done


def with_logins(command: Command, named: Mapping[str, str], logins: Logins) -> Command:
    """Hand uv the logins of indexes, in variables that nobody else reads; `named` are addresses by name."""
    secrets: dict[str, str] = {}
    argv = command.argv
    for name, url in named.items():
        login = logins.for_program(url)
        if login is not None:
            variable = f"UV_INDEX_{name.upper().replace('-', '_')}"
            secrets |= {f"{variable}_USERNAME": login.user, f"{variable}_PASSWORD": login.password}
            argv = tuple(f"{name}={url}" if word == url else word for word in argv)
    # uv would send the `default` entry to every host; what is meant for these indexes is told above.
    env = {**command.env, "NETRC": os.devnull} if logins.has_default else command.env
    return replace(command, argv=argv, env=env, secrets=secrets)


def _name_indexes(request: LockRequest) -> dict[str, str]:
    packages = {"packages": request.package_index} if request.package_index else {}
    return {**request.homes, **packages}


def _family(request: LockRequest) -> frozenset[str]:
    return request.family | frozenset(map(name_of, request.requirements))


def _homeless(names: Iterable[str], request: LockRequest, bound: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if name not in bound and request.home_of(name))


def _is_reference(requirement: str) -> bool:
    # mine @ file:///home/u/mine, mine @ git+https://…
    _, _, address = requirement.partition("@")
    return address.strip().startswith(("file:", "git+", "hg+", "svn+", "bzr+"))


def _find_culprit(said: str) -> str | None:
    # Failed to resolve dependencies for package `x==1`
    found = re.search(r"resolve dependencies for package `([^`]+)`", re.sub(r"\s+", " ", said))
    return found[1] if found else None


def find_contested(said: str) -> frozenset[str]:
    """Name the packages that uv was told to take from two places."""
    # Requirements contain conflicting indexes for package `torch`: - https://… - https://…
    # Package `torch` was included as a URL dependency.
    line = re.sub(r"\s+", " ", said)
    patterns = (
        r"contain conflicting (?:indexes|URLs) for package `([^`]+)`",
        r"Package `([^`]+)` was included as a URL dependency",
    )
    return frozenset(name for pattern in patterns for name in re.findall(pattern, line))


def _fitting_file(package: Mapping[str, Any], request: LockRequest) -> str | None:
    """Return the address of the wheel of a locked package that fits; None for one from no index."""
    python = f"{request.python}{'t' if request.free_threaded else ''}"
    wheels = package.get("wheels", ())
    for wheel in wheels:
        name = wheel.get("name") or unquote(urlsplit(wheel["url"]).path).rpartition("/")[2]
        with suppress(InvalidWheelFilename):
            _, version, _, tags = parse_wheel_filename(name)
            if Wheel(filename=name, version=version, tags=tags).fits(python, request.platform):
                return str(wheel["url"])
    return None


def find_sources(said: str) -> tuple[str, ...]:
    """Name the packages of which uv found sources alone, where it was to build nothing."""
    line = re.sub(r"\s+", " ", said)
    # hint: Wheels are required for `x` because building from source is disabled for all packages
    # cause: Building source distributions for `x` is disabled
    found = re.findall(r"(?:Wheels are required|Building source distributions) for `([^`]+)`", line)
    return tuple(dict.fromkeys(found))


def default_index(run: Runner, program: Path) -> str | None:
    """Ask uv for the address of the default package index; None where it does not say."""
    # --index-url https://…/simple
    done = run(default_index_command(program))
    found = re.search(r"^--index-url (\S+)$", done.out, re.MULTILINE)
    return found[1] if found else None


def _keep_cache(run: Runner, cache: Path) -> Runner:
    def keeping_it_there(command: Command, *, timeout: float | None = None) -> Completed:
        return run(replace(command, env={**command.env, "UV_CACHE_DIR": str(cache)}), timeout=timeout)

    return keeping_it_there


def _offline(run: Runner) -> Runner:
    def asking_nobody(command: Command, *, timeout: float | None = None) -> Completed:
        return run(replace(command, env={**command.env, "UV_OFFLINE": "1"}), timeout=timeout)

    return asking_nobody


# Where uv fetches interpreters from, unless UV_PYTHON_INSTALL_MIRROR names another place.
PYTHONS = "https://github.com/astral-sh/python-build-standalone/releases/download"


def uv_program() -> Path:
    """Find the uv that came with torchenv, whatever other one is on PATH."""
    import uv

    try:
        return Path(uv.find_uv_bin())
    except FileNotFoundError:
        raise ToolFailed(
            "the uv that torchenv depends on is missing",
            hint="install torchenv again, or use `--installer pip`",
        ) from None


# An index that does not answer is known in seconds; a download that has begun may be slow.
_SOON = {"UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_RETRIES": "1", "UV_HTTP_TIMEOUT": "10"}

# torchenv's word for a platform: uv's word, and what Python says of itself there.
_PLATFORMS = {
    "linux-x86_64": ("x86_64-unknown-linux-gnu", "linux", "x86_64"),
    "linux-aarch64": ("aarch64-unknown-linux-gnu", "linux", "aarch64"),
    "windows-x86_64": ("x86_64-pc-windows-msvc", "win32", "AMD64"),
    "windows-arm64": ("aarch64-pc-windows-msvc", "win32", "ARM64"),
    "darwin-arm64": ("aarch64-apple-darwin", "darwin", "arm64"),
}


# uv prefers the versions that the file holds into which it is to write.
KEPT = "pylock.toml"


def lock_command(uv: Path, folder: Path, request: LockRequest, *, builds: bool = False) -> Command:
    """Choose from the project in `folder`: an index gives only what is bound to it.

    Without `builds` nothing is built from source to learn what it needs.
    """
    keeping = ["--output-file", KEPT] if request.kept is not None else []
    for name in sorted(request.upgrade) if keeping else ():
        keeping += ["--upgrade-package", name]
    building = () if builds else ("--no-build",)
    return _compile(uv, folder, request, "--format", "pylock.toml", *building, *keeping)


def survey_command(uv: Path, folder: Path, request: LockRequest) -> Command:
    """Ask which packages there would be at all, from all indexes alike; only names are used."""
    both = [word for url in request.homes.values() for word in ("--index", url)]
    return _compile(uv, folder, request, *both, "--index-strategy", "unsafe-best-match", "--no-build")


def _compile(uv: Path, folder: Path, request: LockRequest, *more: str) -> Command:
    constraints = ["--constraints", "constraints.txt"] if request.constraints else []
    overrides = ["--overrides", "overrides.txt"] if request.overrides else []
    index = ["--default-index", request.package_index] if request.package_index else []
    argv = [str(uv), "pip", "compile", "pyproject.toml", *constraints, *overrides]
    argv += ["--no-config", "--no-python-downloads", "--no-header", "--no-annotate"]
    argv += ["--python", _python(request), "--python-version", request.python]
    argv += ["--python-platform", _platform(request.platform)[0], *index, *more, *_dates(request)]
    macos = {"MACOSX_DEPLOYMENT_TARGET": request.macos} if request.macos else {}
    return Command(tuple(argv), cwd=folder, env=macos, defaults=_SOON)


def _dates(request: LockRequest) -> list[str]:
    if request.exclude_newer is None:
        return []
    # A bare date would mean the end of that day where uv happens to run.
    words = ["--exclude-newer", f"{request.exclude_newer.isoformat()}T00:00:00Z"]
    for name in sorted({*request.family, *map(name_of, request.requirements)}):
        words += ["--exclude-newer-package", f"{name}=false"]
    return words


def _python(request: LockRequest) -> str:
    if request.interpreter is not None:
        return str(request.interpreter)
    # Only an interpreter tells uv of the free-threaded ABI; else any will do, for its version is
    # given apart.
    return f"{request.python}t" if request.free_threaded else sys.executable


def _platform(platform: str) -> tuple[str, str, str]:
    if platform not in _PLATFORMS:
        hint = f"use one of {', '.join(_PLATFORMS)}"
        raise ToolFailed(f"uv cannot lock for the platform {platform}", hint=hint)
    return _PLATFORMS[platform]


def fitting(request: LockRequest) -> dict[str, Any]:
    """Describe in the lock what it is for, so that an installer refuses it elsewhere."""
    _, system, machine = _platform(request.platform)
    marker = f"sys_platform == '{system}' and platform_machine == '{machine}'"
    return {"environments": [marker], "requires-python": f"=={request.python}.*"}


def default_index_command(uv: Path) -> Command:
    """Ask uv which index it takes by default, so that the lock can say so."""
    argv = (str(uv), "pip", "compile", "-", "--no-config", "--no-python-downloads", "--no-header")
    return Command((*argv, "--python", sys.executable, "--emit-index-url"))


def cache_command(uv: Path) -> Command:
    return Command((str(uv), "cache", "dir", "--no-config"))


def venv_command(uv: Path, environment: Path, python: Path) -> Command:
    argv = (str(uv), "venv", "--no-config", "--no-project", "--no-python-downloads")
    return Command((*argv, "--python", str(python), str(environment)))


def install_command(
    uv: Path,
    environment: Path,
    lock: Path,
    *,
    indexes: Sequence[str],
    link_mode: str,
    builds: bool = True,
) -> Command:
    """Install exactly the lock, whose every file has a hash; uv checks each.

    `--require-hashes` would add nothing, and refuse a package that is proven by its commit.
    uv looks into its cache only for indexes that it was told of: without them it asks for every
    wheel again, and fetches it where the index does not say that it may be kept.
    """
    argv = [str(uv), "pip", "sync", str(lock), "--strict"]
    argv += ["--no-config", "--no-python-downloads", "--preview-features", "pylock"]
    argv += ["--python", str(interpreter_in(environment))]
    for flag, index in zip(["--default-index", *["--index"] * len(indexes)], indexes, strict=False):
        argv += [flag, index]
    argv += ["--link-mode", link_mode]
    if not builds:
        argv.append("--no-build")
    return Command(tuple(argv), defaults={"UV_HTTP_CONNECT_TIMEOUT": "5"})


def fetch_python_command(uv: Path, python: str) -> Command:
    argv = (str(uv), "python", "install", "--no-config", "--no-bin", "--no-registry", python)
    return Command(argv, defaults=_SOON)


def python_for_platform_command(uv: Path, python: str, platform: str, directory: Path) -> Command:
    """Fetch an interpreter that need not run here into a directory of its own."""
    system, _, machine = platform.partition("-")
    libc = "gnu" if system == "linux" else "none"
    named = {"darwin": "macos"}.get(system, system), {"arm64": "aarch64"}.get(machine, machine)
    minor = python.removesuffix("t")
    variant = "+freethreaded" if python.endswith("t") else ""
    argv = (str(uv), "python", "install", "--no-config", "--no-bin", "--no-registry")
    key = f"cpython-{minor}{variant}-{'-'.join(named)}-{libc}"
    return Command((*argv, "--install-dir", str(directory), key), defaults=_SOON)


def find_python_command(uv: Path, python: str) -> Command:
    argv = (str(uv), "python", "find", "--no-config", "--no-project", "--managed-python")
    return Command((*argv, "--no-python-downloads", python))


def project(request: LockRequest, bound: frozenset[str], *, requirements: Sequence[str] | None = None) -> str:
    """Write the project that uv resolves: `bound` names come from the index that is theirs.

    Explicit means that no other name is ever looked up there. PyTorch's index answers 403 where it
    has nothing, and so does a mirror of it: that is no refusal.
    """
    named = list(request.requirements if requirements is None else requirements)
    brought = sorted(bound - set(map(name_of, named)))
    lines = ["[project]", 'name = "plan"', 'version = "0"', "dependencies = ["]
    lines += [f"    {_quote(package)}," for package in (*named, *brought, *request.packages)]
    lines += ["]"]
    home_of = {name: home for name in sorted(bound) if (home := request.home_of(name))}
    for home, url in request.homes.items():
        if home in home_of.values():
            lines += ["", "[[tool.uv.index]]", f"name = {_quote(home)}", f"url = {_quote(url)}"]
            lines += ["explicit = true", *(["ignore-error-codes = [403]"] if home == "torch" else [])]
    if home_of:
        lines += ["", "[tool.uv.sources]"]
        lines += [f"{name} = {{ index = {_quote(home)} }}" for name, home in home_of.items()]
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _write_project(folder: Path, text: str, request: LockRequest) -> None:
    (folder / "pyproject.toml").write_text(text, "utf-8")
    (folder / "constraints.txt").write_text(
        "".join(f"{constraint}\n" for constraint in request.constraints), "utf-8"
    )
    (folder / "overrides.txt").write_text("".join(f"{line}\n" for line in request.overrides), "utf-8")
    if request.kept is not None:
        (folder / KEPT).write_text(request.kept, "utf-8")


def _find_yanked(said: str) -> frozenset[str]:
    # warning: `numpy==2.2.0` is yanked (reason: "breaks on …")
    return frozenset(re.findall(r"warning: `([a-z0-9-]+)==\S+` is yanked", said))
