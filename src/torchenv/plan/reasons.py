"""Refusals and fallbacks told to a person: why, and what would open the door."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from packaging.version import Version

from torchenv.catalogue.builds import Rocm
from torchenv.catalogue.releases import Release
from torchenv.host.model import AmdDevice
from torchenv.plan.devices import Device
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
        opened.setdefault(line, f"driver {needed} or newer allows torch {line}")
    return "; ".join(opened.values()) or None


def name_macos_that_opens(refused: Sequence[Rejection], ask: Question) -> str | None:
    """Name the macOS that would open a newer release, with its GPU, in place of a fallback."""
    floors = {release.version: release for release in ask.catalogue.releases}
    for rejection in refused:
        release = floors[rejection.torch]
        if rejection.code == "macos-too-old" and rejection.needed == str(release.macos.mps):
            return f"macOS {release.macos.mps} or newer allows torch {release.line}"
    return None


@frozen
class Explanation:
    """Why nothing is taken, what would open the door, and the devices that are at odds.

    `offered` are the builds that the hint names.
    """

    why: tuple[str, ...]
    hint: str | None
    conflict: tuple[Rejection, ...] = ()
    offered: tuple[Build, ...] = ()


@frozen
class _Offer:
    """What a hint names as a way on: the words, and the build that this gives."""

    words: str
    build: Build


def explain_block(search: Search, wanted: Sequence[Release], fallback: Build | None) -> Explanation:
    """Explain why nothing is taken; `fallback` is a build that suits and that the wish does not allow."""
    ask, refused = search.ask, tuple(search.rejected)
    first = _find_telling([rejection for rejection in refused if rejection.torch == wanted[0].version])
    why = [str(first)] if first else []
    if fallback is not None:
        why.append(f"torch {fallback.release.version} ({fallback.backend.tag}) supports this host")
        take = f"take it with {ask.wish.write_create(fallback.release.line)}"
        ways = (take, name_what_opens(refused, ask), *_name_flags_that_settle(search, wanted))
        return Explanation(tuple(why), "; ".join(way for way in ways if way), offered=(fallback,))
    conflict = _describe_conflict(search, wanted)
    if conflict is not None:
        return conflict
    # What needs neither another driver nor another machine.
    at_hand = [*_without_restriction(search, wanted), *_name_older(search, wanted)]
    hints = [
        _name_companions(first),
        *(offer.words for offer in at_hand),
        name_what_opens(refused, ask),
        _name_python_that_opens(refused, ask),
        *_name_driver_to_go_back_to(search),
        *_name_flags_that_settle(search, wanted),
        _name_override(search, wanted),
        _name_system_that_opens(refused),
        _name_other_machine(search),
        *(() if at_hand else _name_ways_around(search, wanted)),
    ]
    hint = "; ".join(dict.fromkeys(hint for hint in hints if hint))
    return Explanation(tuple(why), hint or None, offered=tuple(offer.build for offer in at_hand))


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
            return f"accept {device.override}, which is unsupported, with --accept-override"
    return None


def _describe_conflict(search: Search, wanted: Sequence[Release]) -> Explanation | None:
    """Name the build for each subset of the devices, where no single build serves them together."""
    groups: dict[str, list[Device]] = {}
    offered: list[Build] = []
    releases = [*wanted, *search.ask.catalogue.neighbours(wanted[0])]
    for device in search.considered.devices:
        builds = (search.serving(release, [device]) for release in releases)
        build = next((build for build in builds if build is not None), None)
        words = f"torch {build.release.version} ({build.backend.tag})" if build else "no build"
        groups.setdefault(words, []).append(device)
        offered += [build] if build else []
    if len(groups) < 2:
        return None
    parts, choices = [], []
    for words, devices in groups.items():
        named = ", ".join(f"{device.index} ({device.name})" for device in devices)
        parts.append(f"{words} supports {named}")
        if words != "no build":
            choices.append(f"--devices {','.join(str(device.index) for device in devices)}")
    message = f"no single build supports these devices together: {'; '.join(parts)}"
    older = _name_older(search, wanted)
    hints = [f"choose with {' or '.join(choices)}"] if choices else []
    hints += [*(offer.words for offer in older), *_name_flags_that_settle(search, wanted)]
    tag = wanted[0].defaults[search.considered.vendor]
    rejection = Rejection(wanted[0].version, tag, "devices-conflict", message)
    offered += [offer.build for offer in older]
    return Explanation((message,), "; ".join(hints), (rejection,), tuple(offered))


def _without_restriction(search: Search, wanted: Sequence[Release]) -> list[_Offer]:
    """Name a build that was not asked for and that suits, with the command that takes it."""
    ask = search.ask
    if not ask.wish.backends:
        return []
    releases = [*wanted, *ask.catalogue.neighbours(wanted[0])]
    build = search.find_unrestricted(releases)
    if build is None and ask.wish.by_hand:
        # Left to itself the choice is blocked by what a backend by name settles.
        tags = dict.fromkeys(backend.tag for release in releases for backend in release.backends)
        vendors = {backend.tag: backend.vendor for release in releases for backend in release.backends}
        same = (tag for tag in tags if vendors[tag] == search.considered.vendor)
        found = (search.find_by_hand(tag, releases) for tag in same if tag not in ask.wish.backends)
        build = next((build for build in found if build is not None), None)
    if build is None:
        return []
    return [_Offer(_name_take(build, ask, "--backend", build.backend.tag), build)]


def _name_take(build: Build, ask: Question, *more: str) -> str:
    version, tag = build.release.version, build.backend.tag
    wish = ask.wish
    if more:
        # The backend that is named takes the place of those that were.
        wish = replace(wish, flags=_drop_backends(wish.flags))
    return f"take torch {version} ({tag}) with {wish.write_create(version, *more)}"


def _drop_backends(flags: tuple[str, ...]) -> tuple[str, ...]:
    before = ("", *flags)
    return tuple(word for word, last in zip(flags, before, strict=False) if "--backend" not in {word, last})


def _name_older(search: Search, wanted: Sequence[Release]) -> list[_Offer]:
    """Name older releases that would serve, with the command that takes them."""
    ask = search.ask
    older = [release for release in ask.catalogue.releases if release.version <= wanted[0].version]
    if search.considered.vendor == "apple":
        return _name_older_for_mac(older, search)
    tried = {*wanted, *ask.catalogue.neighbours(wanted[0])}
    builds = (search.serving(release, search.considered.devices) for release in older if release not in tried)
    build = next((build for build in builds if build is not None), None)
    return [] if build is None else [_Offer(_name_take(build, ask), build)]


def _name_older_for_mac(older: Sequence[Release], search: Search) -> list[_Offer]:
    """Name the newest that installs and the newest with MPS; one that was asked for may be the first."""
    ask = search.ask
    installs, mps = (
        next((build for release in older if (build := walk.serving(release, ()))), None)
        for walk in (search.for_mac(accept_cpu=True), search.for_mac(accept_cpu=False))
    )
    offers = []
    if installs is not None:
        version = installs.release.version
        command = ask.wish.write_create(version, "--accept-cpu")
        said = f"take torch {version}, the newest that installs here, for the CPU with {command}"
        offers.append(_Offer(said, installs))
    if mps is not None:
        version = mps.release.version
        said = f"take torch {version}, the newest with MPS here, with {ask.wish.write_create(version)}"
        offers.append(_Offer(said, mps))
    return offers


def _name_other_machine(search: Search) -> str | None:
    """Name the flag that leaves out the devices for which a build by name is refused."""
    wish, considered = search.ask.wish, search.considered
    if considered.expected or not considered.devices or not wish.by_hand:
        return None
    return "plan for another machine, such as the one that an image is for, with --devices none"


def _name_flags_that_settle(search: Search, wanted: Sequence[Release]) -> Iterator[str]:
    """Name the flags that settle what is not known, beside whatever else would help."""
    unknown = [rejection.backend for rejection in search.rejected if rejection.code in _UNKNOWN]
    if unknown:
        default = wanted[0].defaults.get(search.considered.vendor)
        # One that is refused for a reason that is known is opened by no word.
        tag = default if default in unknown else unknown[0]
        yield name_flags(search.considered.vendor, tag)


def _name_driver_to_go_back_to(search: Search) -> Iterator[str]:
    """Name the last driver that drives a card which the one here drives no more."""
    names = {device.index: device.name for device in search.considered.devices}
    for rejection in search.rejected:
        if rejection.code == "driver-too-new" and rejection.device in names:
            yield f"install driver {rejection.needed}, the last that drives {names[rejection.device]}"


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
        yield "update the driver on the host of this container"
    if search.for_cpu().first(wanted) is not None:
        oldest: Version = search.ask.catalogue.releases[-1].version
        is_of_devices = any(rejection.device is not None for rejection in search.rejected)
        opens = codes & ({"driver-too-old", "driver-too-new"} | _UNKNOWN)
        why = f" (no release from {oldest} on supports it)" if is_of_devices and not opens else ""
        yield f"accept a build that leaves it unused with --accept-cpu{why}"
