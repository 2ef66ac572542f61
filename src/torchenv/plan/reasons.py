"""Refusals and fallbacks told to a person: why, and what would open the door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchenv.catalogue import Cuda, Release
from torchenv.plan.devices import Device
from torchenv.plan.needs import driver_system, refusal_of_system
from torchenv.plan.search import Search
from torchenv.plan.values import Build, Question, Rejection


def explain_fallback(build: Build, refused: Sequence[Rejection], ask: Question) -> tuple[str, ...]:
    """Describe in two lines why the wish is not met and what is taken in its place."""
    first = _telling(refused)
    taken = f"torch {build.release.version} ({build.backend.tag}) serves it, and nothing newer does"
    opens = _driver_that_opens(refused, ask)
    second = f"{taken}; {opens}" if opens else taken
    return (str(first), second) if first else (second,)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why nothing is taken, what would open the door, and the devices that are at odds."""

    why: tuple[str, ...]
    hint: str | None
    conflict: tuple[Rejection, ...] = ()


def explain_block(search: Search, wanted: Sequence[Release], fallback: Build | None) -> Explanation:
    """Explain why nothing is taken; `fallback` is a build that suits and that the wish does not allow."""
    ask, refused = search.ask, tuple(search.rejected)
    first = _telling([each for each in refused if each.torch == wanted[0].version])
    why = [str(first)] if first else []
    if fallback is not None:
        why.append(f"torch {fallback.release.version} ({fallback.backend.tag}) serves this host")
        return Explanation(tuple(why), f"take it with `torchenv create {fallback.release.line}`")
    conflict = _conflict(search, wanted)
    if conflict is not None:
        return conflict
    hints = [
        _without_restriction(search, wanted),
        *_older(search, wanted),
        _driver_that_opens(refused, ask),
        _python_that_opens(refused, ask),
        *(each.message for each in refused if each.code == "driver-too-new"),
    ]
    hint = "; ".join(dict.fromkeys(each for each in hints if each))
    return Explanation(tuple(why), hint or _last_resort(search, wanted))


def _telling(refused: Sequence[Rejection]) -> Rejection | None:
    """Take the reason that says most: that of the first build that was meant for this machine."""
    meant = (each for each in refused if each.code != "not-preferred" and "needs an" not in each.message)
    return next(meant, None) or next(iter(refused), None)


def _driver_that_opens(refused: Sequence[Rejection], ask: Question) -> str | None:
    for rejection in refused:
        if rejection.code != "driver-too-old":
            continue
        release = next(each for each in ask.catalogue.releases if each.version == rejection.torch)
        backend = release.backend(rejection.backend)
        if backend is not None and isinstance(backend.needs, Cuda):
            floor = backend.needs.floor.by_system[driver_system(ask.host)]
            return f"driver {floor} or newer opens torch {release.line}"
    return None


def _python_that_opens(refused: Sequence[Rejection], ask: Question) -> str | None:
    first = next((each for each in refused if each.code in _ABOUT_PYTHON), None)
    if first is None:
        return None
    release = next(each for each in ask.catalogue.releases if each.version == first.torch)
    pythons = ", ".join(each for each in release.pythons if each.endswith("t") == ask.wish.free_threaded)
    if ask.wish.python:
        return f"name another with --python (torch {release.line} has wheels for {pythons}), or leave it out"
    if ask.wish.offline:
        return f"install one of Python {pythons}; with the network and without --offline, one is fetched"
    return None


_ABOUT_PYTHON = frozenset({"no-interpreter", "python-too-old", "python-too-new"})


def _conflict(search: Search, wanted: Sequence[Release]) -> Explanation | None:
    """Name the build for each subset of the devices, where no single build serves them together."""
    groups: dict[str, list[Device]] = {}
    releases = [*wanted, *search.ask.catalogue.neighbours(wanted[0])]
    for device in search.considered.devices:
        builds = (search.serving(each, [device]) for each in releases)
        build = next((each for each in builds if each is not None), None)
        words = f"torch {build.release.version} ({build.backend.tag})" if build else "no build"
        groups.setdefault(words, []).append(device)
    if len(groups) < 2:
        return None
    parts, choices = [], []
    for words, devices in groups.items():
        parts.append(f"{words} serves {', '.join(f'{each.index} ({each.name})' for each in devices)}")
        if words != "no build":
            choices.append(f"--devices {','.join(str(each.index) for each in devices)}")
    message = f"no single build serves these devices together: {'; '.join(parts)}"
    hints = [f"choose with {' or '.join(choices)}", *_older(search, wanted)]
    tag = wanted[0].defaults[search.considered.vendor]
    rejection = Rejection(wanted[0].version, tag, "devices-conflict", message)
    return Explanation((message,), "; ".join(hints), (rejection,))


def _without_restriction(search: Search, wanted: Sequence[Release]) -> str | None:
    if not search.ask.wish.backends:
        return None
    build = search.find_unrestricted([*wanted, *search.ask.catalogue.neighbours(wanted[0])])
    if build is None:
        return None
    asked = ", ".join(search.ask.wish.backends)
    return f"without the restriction to {asked}, torch {build.release.version} ({build.backend.tag}) suits"


def _older(search: Search, wanted: Sequence[Release]) -> list[str]:
    """Name older releases that would serve, with the command that takes them."""
    ask = search.ask
    tried = {*wanted, *ask.catalogue.neighbours(wanted[0])}
    older = [
        each for each in ask.catalogue.releases if each not in tried and each.version < wanted[0].version
    ]
    if search.considered.vendor == "apple":
        return _older_for_mac(older, ask)
    builds = (search.serving(each, search.considered.devices) for each in older)
    build = next((each for each in builds if each is not None), None)
    if build is None:
        return []
    version = build.release.version
    return [f"torch {version} ({build.backend.tag}) would serve: `torchenv create {version}`"]


def _older_for_mac(older: Sequence[Release], ask: Question) -> list[str]:
    macos = ask.host.macos
    installs = [each for each in older if _installs_on_mac(each, ask)]
    mps = [each for each in installs if macos is not None and macos >= each.macos.mps]
    hints = []
    if installs:
        version = installs[0].version
        command = f"`torchenv create {version} --accept-cpu`"
        hints.append(f"torch {version} is the newest that installs here, for the CPU: {command}")
    if mps:
        version = mps[0].version
        hints.append(f"torch {version} is the newest with MPS here: `torchenv create {version}`")
    return hints


def _installs_on_mac(release: Release, ask: Question) -> bool:
    builds = (each for each in release.backends if each.vendor == "cpu")
    return any(refusal_of_system(release, each, ask) is None for each in builds)


def _last_resort(search: Search, wanted: Sequence[Release]) -> str | None:
    """Describe what is left to do where no release would serve."""
    codes = {each.code for each in search.rejected}
    if codes & {"capability-unknown", "driver-unknown"}:
        default = wanted[0].defaults.get(search.considered.vendor)
        return f"tell what cannot be read with --capability, or vouch for a build with --backend {default}"
    if "libc-unsupported" in codes or "libc-too-old" in codes:
        return "use a system or a container image with a newer glibc"
    if search.considered.vendor in {"apple", "cpu"} or search.for_cpu().first(wanted) is None:
        return None
    oldest = search.ask.catalogue.releases[-1].version
    return f"no release from {oldest} on serves it; --accept-cpu takes a build that leaves it unused"
