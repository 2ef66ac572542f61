"""Which interpreter an environment is built on."""

from __future__ import annotations

import re

from packaging.version import Version

from torchenv.catalogue import Backend, Release
from torchenv.host.model import Host, Interpreter, architecture
from torchenv.plan.values import IndexFacts, PassedPython, PlannedPython, Question, Refusal, Wish

_VERSION = re.compile(r"([0-9]{1,3}\.[0-9]{1,3})(\.[0-9]{1,3})?(t?)")


def choose_python(
    ask: Question, release: Release, backend: Backend, *, package_index: bool
) -> PlannedPython | Refusal:
    """Take the interpreter that was asked for, else that of the environment in use, else the newest.

    An interpreter that is not on the host is planned to be fetched, unless the wish is to stay offline.
    """
    host, wish = ask.host, ask.wish
    minors = _with_companions(
        release, release.pythons if package_index else release.pythons_of(backend, host.platform), wish
    )
    # What the index was seen to have wheels for counts, once it was asked.
    seen = ask.indexes.pythons.get(IndexFacts.key(release, backend))
    if seen is not None and not package_index:
        minors = tuple(each for each in minors if each in seen)
    # conda's interpreter is a base only where it is named: removing its environment breaks what stands on it.
    usable = [each for each in host.pythons if _usable(each, host) and not each.conda]
    if wish.python and is_path(wish.python):
        return _at_path(wish.python, host, release, minors)
    if wish.python:
        return _of_version(wish, usable, release, minors)
    kind = [each for each in minors if each.endswith("t") == wish.free_threaded]
    suited = [each for each in usable if each.minor in kind]
    if suited:
        in_use = _minor_in_use(ask, free_threaded=wish.free_threaded)
        return _plan_found(max(suited, key=lambda each: (each.minor == in_use, each.version)))
    if not kind:
        what = "free-threaded Python" if wish.free_threaded else "Python"
        return Refusal("no-interpreter", f"has no wheels for any {what} with the packages that are asked")
    if wish.offline:
        return _none_suits(usable, release, kind)
    in_use = _minor_in_use(ask, free_threaded=wish.free_threaded)
    return _plan_fetched(in_use if in_use in kind else max(kind, key=_order))


def reject_others(
    ask: Question, release: Release, backend: Backend, chosen: PlannedPython
) -> tuple[PassedPython, ...]:
    """Describe every other interpreter of the host why it was not taken."""
    host, wish = ask.host, ask.wish
    torch_wheels = {*release.pythons, *release.pythons_of(backend, host.platform)}
    passed = []
    for each in host.pythons:
        if each.path == chosen.path:
            continue
        if each.implementation != "cpython":
            why = f"is {each.implementation}, and the wheels are for CPython"
        elif architecture(each.machine) != architecture(host.machine):
            why = f"is built for {each.machine}, and this machine is {host.machine}"
        elif _plain(each.version) not in release.requires_python:
            why = f"torch {release.version} requires Python {release.requires_python}"
        elif each.minor not in torch_wheels:
            why = f"torch {release.version} has no wheel for Python {each.minor}"
        elif lacking := _lacking(each, wish, release):
            why = f"{lacking} has no wheel for Python {each.minor}"
        elif each.conda:
            why = "belongs to conda, and is taken only when named by its path"
        elif each.free_threaded and not wish.free_threaded:
            why = "is free-threaded, which is taken only when asked for"
        else:
            why = f"Python {chosen.minor} was preferred"
        passed.append(PassedPython(each.minor, each.path, why))
    return tuple(passed)


def _with_companions(release: Release, minors: tuple[str, ...], wish: Wish) -> tuple[str, ...]:
    """Keep the Pythons for which every asked companion has a wheel too."""
    asked = (release.companions[name] for name in wish.packages if name in release.companions)
    for companion in asked:
        if companion.pythons is not None:
            minors = tuple(each for each in minors if each in companion.pythons)
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


def _at_path(path: str, host: Host, release: Release, minors: tuple[str, ...]) -> PlannedPython | Refusal:
    python = next((each for each in host.pythons if each.path == path), None)
    if python is None:
        return Refusal("no-interpreter", f"{path} is not a Python that can be run here")
    if not _usable(python, host):
        what = f"{python.implementation} for {python.machine}"
        return Refusal("no-interpreter", f"{path} is {what}, and CPython for {host.machine} is needed")
    return _plan_found(python) if python.minor in minors else _refuse_unsupported(python.minor, release)


def _of_version(
    wish: Wish, usable: list[Interpreter], release: Release, minors: tuple[str, ...]
) -> PlannedPython | Refusal:
    assert wish.python is not None
    match = _VERSION.fullmatch(wish.python)
    if match is None:
        return Refusal("no-interpreter", f"{wish.python!r} is neither a Python version nor a path")
    minor = match[1] + ("t" if match[3] or wish.free_threaded else "")
    if minor not in minors:
        return _refuse_unsupported(minor, release)
    found = [each for each in usable if each.minor == minor]
    if match[2]:
        found = [each for each in found if str(each.version) == match[1] + match[2]]
    if found:
        return _plan_found(max(found, key=lambda each: each.version))
    if wish.offline:
        return Refusal("no-interpreter", f"Python {wish.python} is not on this host")
    return _plan_fetched(minor, match[1] + (match[2] or ""))


def _refuse_unsupported(minor: str, release: Release) -> Refusal:
    version = Version(minor.rstrip("t"))
    if _plain(version) not in release.requires_python:
        return Refusal("python-too-old", f"requires Python {release.requires_python}, not {minor}")
    newest = max((Version(each.rstrip("t")) for each in release.pythons), default=version)
    if version > newest:
        return Refusal("python-too-new", f"has no wheel for Python {minor}; the newest is {newest}")
    return Refusal("no-interpreter", f"has no wheel for Python {minor} with the packages that are asked")


def _none_suits(usable: list[Interpreter], release: Release, kind: list[str]) -> Refusal:
    has = sorted({each.minor for each in usable}, key=_order)
    if not has:
        return Refusal("no-interpreter", "no Python was found on this host, and none may be fetched")
    only = f"this host has only Python {', '.join(has)}"
    if all(_order(each) < min(map(_order, kind)) for each in has):
        return Refusal("python-too-old", f"requires Python {release.requires_python}, and {only}")
    if all(_order(each) > max(map(_order, kind)) for each in has):
        return Refusal("python-too-new", f"has no wheel newer than Python {kind[-1]}, and {only}")
    return Refusal("no-interpreter", f"has wheels for Python {', '.join(kind)}, and {only}")


def _lacking(python: Interpreter, wish: Wish, release: Release) -> str | None:
    for name in wish.packages:
        companion = release.companions.get(name)
        if companion and companion.pythons is not None and python.minor not in companion.pythons:
            return name
    return None


def _minor_in_use(ask: Question, *, free_threaded: bool) -> str | None:
    active = ask.in_use
    if active is None or active.python is None:
        return None
    return f"{active.python.major}.{active.python.minor}{'t' if free_threaded else ''}"


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
