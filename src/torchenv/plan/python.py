"""Which interpreter an environment is built on."""

from __future__ import annotations

import re

from packaging.version import Version

from torchenv.catalogue.builds import Backend
from torchenv.catalogue.releases import Release
from torchenv.host.model import Host, Interpreter, architecture
from torchenv.plan import refusals
from torchenv.plan.values import IndexFacts, PassedPython, PlannedPython, Question, Refusal, Wish

_VERSION = re.compile(r"([0-9]{1,3}\.[0-9]{1,3})(\.[0-9]{1,3})?(t?)")


def choose_python(
    ask: Question, release: Release, backend: Backend, *, package_index: bool
) -> PlannedPython | Refusal:
    """Take the interpreter that was asked for, else the active environment's minor, else a preferred one.

    An interpreter that is not on the host is planned to be fetched, unless the wish is to stay offline. One
    that the catalogue warns of is taken only where nothing else is to be had.
    """
    host, wish = ask.host, ask.wish
    minors = _with_companions(
        release, release.pythons if package_index else release.pythons_of(backend, host.platform), wish
    )
    # What the index was seen to have wheels for counts, once it was asked.
    seen = ask.indexes.pythons.get(IndexFacts.key(release, backend))
    if seen is not None and not package_index:
        minors = tuple(minor for minor in minors if minor in seen)
    # conda's interpreter is a base only where it is named: removing its environment breaks what stands on it.
    usable = [python for python in host.pythons if _usable(python, host) and not python.conda]
    if wish.python and is_path(wish.python):
        return _at_path(ask, release, minors)
    if wish.python:
        return _of_version(ask, usable, release, minors)
    kind = [minor for minor in minors if minor.endswith("t") == wish.free_threaded]
    if not kind:
        what = "free-threaded Python" if wish.free_threaded else "Python"
        return refusals.refuse_no_python(f"has no wheels for any {what} with the packages that are asked for")
    return _choose_freely(ask, usable, release, kind)


def _choose_freely(
    ask: Question, usable: list[Interpreter], release: Release, kind: list[str]
) -> PlannedPython | Refusal:
    suited = [python for python in usable if python.minor in kind and not _is_refused(python, ask, release)]
    ordinary = [python for python in suited if not find_warning(python.version, ask, release)]
    preferred = [minor for minor in release.list_preferred_pythons(ask.host.platform) if minor in kind]
    in_use = _minor_in_use(ask, free_threaded=ask.wish.free_threaded)
    if in_use in kind:
        here = [python for python in ordinary if python.minor == in_use]
        if here or not ask.wish.offline:
            return _plan_newest(here) or _plan_fetched(in_use)
    for minor in preferred:
        if found := _plan_newest([python for python in ordinary if python.minor == minor]):
            return found
    if found := _plan_newest(ordinary):
        return found
    if not ask.wish.offline:
        return _plan_fetched(preferred[0] if preferred else max(kind, key=_order))
    return _plan_newest(suited) or _none_suits(ask.host, usable, release, kind)


def find_warning(python: Version, ask: Question, release: Release) -> str | None:
    """Return what the catalogue says against an interpreter for this release and the packages asked for."""
    known = ask.catalogue.find_avoided(python, release, ask.wish.packages)
    return known.why if known else None


def _is_refused(python: Interpreter, ask: Question, release: Release) -> bool:
    known = ask.catalogue.find_avoided(python.version, release, ask.wish.packages)
    return known is not None and not known.installs


def _plan_newest(pythons: list[Interpreter]) -> PlannedPython | None:
    return _plan_found(max(pythons, key=lambda python: python.version)) if pythons else None


def reject_others(
    ask: Question, release: Release, backend: Backend, chosen: PlannedPython
) -> tuple[PassedPython, ...]:
    """Return every other interpreter of the host, with the reason why it was not chosen."""
    host, wish = ask.host, ask.wish
    torch_wheels = {*release.pythons, *release.pythons_of(backend, host.platform)}
    passed = []
    for python in host.pythons:
        if python.path == chosen.path:
            continue
        if python.implementation != "cpython":
            why = f"is {python.implementation}, and the wheels are for CPython"
        elif architecture(python.machine) != architecture(host.machine):
            why = f"is built for {python.machine}, and this machine is {host.machine}"
        elif _plain(python.version) not in release.requires_python:
            why = f"torch {release.version} requires Python {release.requires_python}"
        elif python.minor not in torch_wheels:
            why = f"torch {release.version} has no wheel for Python {python.minor}"
        elif lacking := _lacking(python, wish, release):
            why = f"{lacking} has no wheel for Python {python.minor}"
        elif python.conda:
            why = "belongs to conda, and is used only when named by its path"
        elif python.free_threaded and not wish.free_threaded:
            why = "is free-threaded, which is used only when asked for"
        elif warning := find_warning(python.version, ask, release):
            why = warning
        elif wish.python:
            why = "another Python was asked for"
        elif python.minor == chosen.minor:
            why = f"Python {chosen.version} (`{chosen.path}`) comes before it"
        elif chosen.minor == _minor_in_use(ask, free_threaded=wish.free_threaded):
            why = f"Python {chosen.minor} matches {_describe_model(ask)}"
        else:
            why = f"Python {chosen.minor} is preferred for torch {release.line}"
        passed.append(PassedPython(python.minor, python.path, why))
    return tuple(passed)


def _with_companions(release: Release, minors: tuple[str, ...], wish: Wish) -> tuple[str, ...]:
    """Keep the Pythons for which every asked companion has a wheel too."""
    asked = (release.companions[name] for name in wish.packages if name in release.companions)
    for companion in asked:
        if companion.pythons is not None:
            minors = tuple(minor for minor in minors if minor in companion.pythons)
    return minors


def _usable(python: Interpreter, host: Host) -> bool:
    same = architecture(python.machine) == architecture(host.machine)
    return python.implementation == "cpython" and same


def is_path(text: str) -> bool:
    """Return whether an interpreter is named by its path rather than by its version."""
    return "/" in text or "\\" in text


def is_version(text: str) -> bool:
    """Return whether it is named as 3.12, 3.12.7 or 3.14t."""
    return _VERSION.fullmatch(text) is not None


def _at_path(ask: Question, release: Release, minors: tuple[str, ...]) -> PlannedPython | Refusal:
    path, host = ask.wish.python, ask.host
    python = next((python for python in host.pythons if python.path == path), None)
    if python is None:
        return refusals.refuse_no_python(f"{path} is not a Python that runs here")
    if not _usable(python, host):
        what = f"{python.implementation} for {python.machine}"
        return refusals.refuse_no_python(f"{path} is {what}, and CPython for {host.machine} is needed")
    if python.minor not in minors:
        return _refuse_unsupported(python.minor, release)
    if _is_refused(python, ask, release):
        return refusals.refuse_no_python(find_warning(python.version, ask, release) or "")
    return _plan_found(python)


def _of_version(
    ask: Question, usable: list[Interpreter], release: Release, minors: tuple[str, ...]
) -> PlannedPython | Refusal:
    wish = ask.wish
    assert wish.python is not None
    match = _VERSION.fullmatch(wish.python)
    if match is None:
        return refusals.refuse_no_python(f"{wish.python!r} is neither a Python version nor a path")
    minor = match[1] + ("t" if match[3] or wish.free_threaded else "")
    if minor not in minors:
        return _refuse_unsupported(minor, release)
    found = [python for python in usable if python.minor == minor]
    if match[2]:
        found = [python for python in found if str(python.version) == match[1] + match[2]]
    able = [python for python in found if not _is_refused(python, ask, release)]
    # Of two of one line, one that nothing speaks against comes first.
    able.sort(key=lambda python: (find_warning(python.version, ask, release) is None, python.version))
    if able:
        return _plan_found(able[-1])
    if found and (match[2] or wish.offline):
        return refusals.refuse_no_python(find_warning(found[0].version, ask, release) or "")
    if wish.offline:
        return refusals.refuse_no_python(f"Python {wish.python} is not on this host")
    return _plan_fetched(minor, match[1] + (match[2] or ""))


def _refuse_unsupported(minor: str, release: Release) -> Refusal:
    version = Version(minor.rstrip("t"))
    if _plain(version) not in release.requires_python:
        return refusals.refuse_old_python(release, minor, f", not {minor}")
    newest = max((Version(known.rstrip("t")) for known in release.pythons), default=version)
    if version > newest:
        why = f"has no wheel for Python {minor}; the newest is {newest}"
        return refusals.refuse_new_python(str(newest), minor, why)
    return refusals.refuse_no_python(f"has no wheel for Python {minor} with the packages that are asked for")


def _none_suits(host: Host, usable: list[Interpreter], release: Release, kind: list[str]) -> Refusal:
    has = sorted({python.minor for python in usable}, key=_order)
    if not has:
        return refusals.refuse_no_python(_describe_none(host))
    only = f"this host has only Python {', '.join(has)}"
    if all(_order(minor) < min(map(_order, kind)) for minor in has):
        return refusals.refuse_old_python(release, has[-1], f", and {only}")
    if all(_order(minor) > max(map(_order, kind)) for minor in has):
        why = f"has no wheel newer than Python {kind[-1]}, and {only}"
        return refusals.refuse_new_python(kind[-1], has[0], why)
    return refusals.refuse_no_python(f"has wheels for Python {', '.join(kind)}, and {only}")


def _describe_none(host: Host) -> str:
    others = sorted({python.machine for python in host.pythons if not _usable(python, host)} - {host.machine})
    if others:
        return f"needs a Python for {host.machine}, and those of this host are for {', '.join(others)}"
    return "no Python was found on this host, and none may be fetched"


def _lacking(python: Interpreter, wish: Wish, release: Release) -> str | None:
    for name in wish.packages:
        companion = release.companions.get(name)
        if companion and companion.pythons is not None and python.minor not in companion.pythons:
            return name
    return None


def _minor_in_use(ask: Question, *, free_threaded: bool) -> str | None:
    suffix = "t" if free_threaded else ""
    if ask.like is not None:
        return f"{ask.like}{suffix}"
    active = ask.in_use
    if active is None or active.python is None:
        return None
    return f"{active.python.major}.{active.python.minor}{suffix}"


def _describe_model(ask: Question) -> str:
    if ask.like is not None:
        return "--like"
    model = ask.in_use
    if model is not None and model.was_found:
        return f"{model.path}, which was found in {'that' if ask.is_elsewhere else 'this'} project"
    return "the active environment"


def _plan_found(python: Interpreter) -> PlannedPython:
    return PlannedPython(
        version=python.version, path=python.path, free_threaded=python.free_threaded, source="found"
    )


def _plan_fetched(minor: str, version: str | None = None) -> PlannedPython:
    return PlannedPython(
        version=Version(version or minor.rstrip("t")),
        path=None,
        free_threaded=minor.endswith("t"),
        source="fetch",
    )


def _order(minor: str) -> tuple[int, ...]:
    return Version(minor.rstrip("t")).release


def _plain(version: Version) -> Version:
    # `>=3.11` holds for 3.15.0rc1 too: what counts is the line that its wheels are for.
    return Version(version.base_version)
