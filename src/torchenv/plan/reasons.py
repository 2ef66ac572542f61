"""Refusals and fallbacks told to a person: why, and what would open the door."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from packaging.version import Version

from torchenv.catalogue import Release, Rocm
from torchenv.host.model import AmdDevice
from torchenv.plan.devices import Device
from torchenv.plan.needs import refusal_of_system
from torchenv.plan.refusals import MAKERS, name_flags
from torchenv.plan.search import Search
from torchenv.plan.values import Build, Question, Rejection
from torchenv.system.values import frozen


def explain_fallback(build: Build, refused: Sequence[Rejection], ask: Question) -> tuple[str, ...]:
    """Describe in two lines why the wish is not met and what is taken in its place."""
    first = _find_telling(refused)
    taken = f"torch {build.release.version} ({build.backend.tag}) is the newest release that supports it"
    opens = name_what_opens(refused, ask)
    second = f"{taken}; {opens}" if opens else taken
    return (str(first), second) if first else (second,)


def name_what_opens(refused: Sequence[Rejection], ask: Question) -> str | None:
    """Name the drivers that would open newer releases, of all refusals; None where no driver would."""
    lines = {release.version: release.line for release in ask.catalogue.releases}
    floors: dict[str, str] = {}
    for rejection in refused:
        if rejection.code == "driver-too-old" and rejection.needed is not None:
            # The newest release comes first, and is what a floor opens.
            floors.setdefault(rejection.needed, lines[rejection.torch])
    opened: dict[str, str] = {}
    for needed, line in floors.items():
        opened.setdefault(line, f"driver {needed} or newer opens torch {line}")
    return "; ".join(opened.values()) or None


@frozen
class Explanation:
    """Why nothing is taken, what would open the door, and the devices that are at odds."""

    why: tuple[str, ...]
    hint: str | None
    conflict: tuple[Rejection, ...] = ()


def explain_block(search: Search, wanted: Sequence[Release], fallback: Build | None) -> Explanation:
    """Explain why nothing is taken; `fallback` is a build that suits and that the wish does not allow."""
    ask, refused = search.ask, tuple(search.rejected)
    first = _find_telling([rejection for rejection in refused if rejection.torch == wanted[0].version])
    why = [str(first)] if first else []
    if fallback is not None:
        why.append(f"torch {fallback.release.version} ({fallback.backend.tag}) supports this host")
        return Explanation(tuple(why), f"take it with `torchenv create {fallback.release.line}`")
    conflict = _describe_conflict(search, wanted)
    if conflict is not None:
        return conflict
    # What needs neither another driver nor another machine.
    at_hand = [hint for hint in (_without_restriction(search, wanted), *_name_older(search, wanted)) if hint]
    hints = [
        _name_companions(first),
        *at_hand,
        name_what_opens(refused, ask),
        _name_python_that_opens(refused, ask),
        *(rejection.message for rejection in refused if rejection.code == "driver-too-new"),
        *_name_flags_that_settle(search, wanted),
        _name_override(search, wanted),
        _name_system_that_opens(refused),
        *(() if at_hand else _name_ways_around(search, wanted)),
    ]
    hint = "; ".join(dict.fromkeys(hint for hint in hints if hint))
    return Explanation(tuple(why), hint or None)


def _find_telling(refused: Sequence[Rejection]) -> Rejection | None:
    """Return the reason that says most: that of the first build that was meant for this machine."""
    meant = (
        rejection
        for rejection in refused
        if rejection.code != "not-preferred" and rejection.needed not in MAKERS
    )
    return next(meant, None) or next(iter(refused), None)


def _name_python_that_opens(refused: Sequence[Rejection], ask: Question) -> str | None:
    first = next((rejection for rejection in refused if rejection.code in _ABOUT_PYTHON), None)
    if first is None:
        return None
    release = next(known for known in ask.catalogue.releases if known.version == first.torch)
    pythons = ", ".join(minor for minor in release.pythons if minor.endswith("t") == ask.wish.free_threaded)
    if ask.wish.python:
        return f"name another with --python (torch {release.line} has wheels for {pythons}), or leave it out"
    if ask.wish.offline:
        kind = f" for {ask.host.machine}" if ask.host.system == "darwin" else ""
        return (
            f"install one of Python {pythons}{kind}; with the network and without --offline, one is fetched"
        )
    return None


_ABOUT_PYTHON = frozenset({"no-interpreter", "python-too-old", "python-too-new"})

_UNKNOWN = frozenset({"capability-unknown", "driver-unknown"})


def _name_companions(first: Rejection | None) -> str | None:
    """Name the package of torch's family without which the build would do, if it is that alone."""
    if first is None or first.code != "index-lacks-package" or first.needed in {None, "torch"}:
        return None
    return f"leave {first.needed} out, or take another backend or an index that has it"


def _name_override(search: Search, wanted: Sequence[Release]) -> str | None:
    """Name the flag that trusts a variable of the user's, where a build has code for what ROCm then sees."""
    kernels = {
        gfx for backend in wanted[0].backends if isinstance(backend.needs, Rocm) for gfx in backend.needs.gfx
    }
    for device in search.considered.devices:
        if isinstance(device, AmdDevice) and device.gfx not in kernels and device.override in kernels:
            return f"go on as {device.override}, which is unsupported, with --accept-override"
    return None


def _describe_conflict(search: Search, wanted: Sequence[Release]) -> Explanation | None:
    """Name the build for each subset of the devices, where no single build serves them together."""
    groups: dict[str, list[Device]] = {}
    releases = [*wanted, *search.ask.catalogue.neighbours(wanted[0])]
    for device in search.considered.devices:
        builds = (search.serving(release, [device]) for release in releases)
        build = next((build for build in builds if build is not None), None)
        words = f"torch {build.release.version} ({build.backend.tag})" if build else "no build"
        groups.setdefault(words, []).append(device)
    if len(groups) < 2:
        return None
    parts, choices = [], []
    for words, devices in groups.items():
        named = ", ".join(f"{device.index} ({device.name})" for device in devices)
        parts.append(f"{words} serves {named}")
        if words != "no build":
            choices.append(f"--devices {','.join(str(device.index) for device in devices)}")
    message = f"no single build serves these devices together: {'; '.join(parts)}"
    hints = [f"choose with {' or '.join(choices)}", *_name_older(search, wanted)]
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
    return f"leave out the restriction to {asked}: torch {build.release.version} ({build.backend.tag}) suits"


def _name_older(search: Search, wanted: Sequence[Release]) -> list[str]:
    """Name older releases that would serve, with the command that takes them."""
    ask = search.ask
    tried = {*wanted, *ask.catalogue.neighbours(wanted[0])}
    older = [
        release
        for release in ask.catalogue.releases
        if release not in tried and release.version < wanted[0].version
    ]
    if search.considered.vendor == "apple":
        return _name_older_for_mac(older, ask)
    builds = (search.serving(release, search.considered.devices) for release in older)
    build = next((build for build in builds if build is not None), None)
    if build is None:
        return []
    version = build.release.version
    return [f"take torch {version} ({build.backend.tag}) with `torchenv create {version}`"]


def _name_older_for_mac(older: Sequence[Release], ask: Question) -> list[str]:
    macos = ask.host.macos
    installs = [release for release in older if _installs_on_mac(release, ask)]
    mps = [release for release in installs if macos is not None and macos >= release.macos.mps]
    hints = []
    if installs:
        version = installs[0].version
        command = f"`torchenv create {version} --accept-cpu`"
        hints.append(f"take torch {version}, the newest that installs here, for the CPU with {command}")
    if mps:
        version = mps[0].version
        hints.append(f"take torch {version}, the newest with MPS here, with `torchenv create {version}`")
    return hints


def _installs_on_mac(release: Release, ask: Question) -> bool:
    builds = (backend for backend in release.backends if backend.vendor == "cpu")
    return any(refusal_of_system(release, backend, ask) is None for backend in builds)


def _name_flags_that_settle(search: Search, wanted: Sequence[Release]) -> Iterator[str]:
    """Name the flags that settle what is not known, beside whatever else would help."""
    if {rejection.code for rejection in search.rejected} & _UNKNOWN:
        default = wanted[0].defaults.get(search.considered.vendor)
        yield name_flags(search.considered.vendor, default)


def _name_system_that_opens(refused: Iterable[Rejection]) -> str | None:
    if {rejection.code for rejection in refused} & {"libc-unsupported", "libc-too-old"}:
        return "use a system or a container image with a newer glibc"
    return None


def _name_ways_around(search: Search, wanted: Sequence[Release]) -> Iterator[str]:
    """Name what is left to those who can change neither the driver nor the card."""
    if search.considered.vendor not in MAKERS:
        return
    codes = {rejection.code for rejection in search.rejected}
    if "driver-too-old" in codes and search.ask.host.container:
        yield "a container uses the driver of its host: update it there"
    if search.for_cpu().first(wanted) is not None:
        oldest: Version = search.ask.catalogue.releases[-1].version
        opens = codes & ({"driver-too-old", "driver-too-new"} | _UNKNOWN)
        why = "" if opens else f"no release from {oldest} on supports it; "
        yield f"{why}--accept-cpu takes a build that leaves it unused"
