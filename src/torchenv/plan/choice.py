"""The decision: the newest release and the first of its builds that suit, or the reasons why none."""

from __future__ import annotations

from dataclasses import replace

from torchenv.catalogue.releases import Catalogue, Release
from torchenv.errors import InputError
from torchenv.host.model import Amd, AmdDevice, Host, Intel, Nvidia, Status
from torchenv.plan.advice import advise
from torchenv.plan.devices import all_devices, consider
from torchenv.plan.needs import refusal_of_mps, remarks_of
from torchenv.plan.python import find_warning, reject_others
from torchenv.plan.reasons import (
    explain_block,
    explain_fallback,
    name_macos_that_opens,
    name_what_opens,
)
from torchenv.plan.refusals import MAKERS
from torchenv.plan.search import Search
from torchenv.plan.values import (
    Build,
    Outcome,
    Plan,
    PlannedDevice,
    Question,
    Rejection,
    Remark,
    Wish,
)
from torchenv.system.documents import nearest


def resolve(ask: Question) -> Plan:
    """Decide what is built on a host, keeping every candidate that was not chosen and the reason.

    Pure: asks neither the machine nor the network. Raises `InputError` for a release, a backend, a package or
    a device that does not exist; a wish that cannot be met gives a plan whose outcome is `blocked`.
    """
    host, wish, catalogue = ask.host, ask.wish, ask.catalogue
    _refuse_unknown_words(wish, catalogue)
    if wish.devices == ():
        return _resolve_without_devices(ask)
    wanted = catalogue.matching(wish.version)
    considered = consider(host, wish, catalogue)
    search = Search(ask, considered)
    if considered.blocked is not None:
        return _block_unreadable_or_torn(search, wanted)
    if build := search.first(wanted):
        return _make_plan(search, build, Outcome.AS_REQUESTED)
    refused = tuple(search.rejected)
    fallback = search.first(catalogue.neighbours(wanted[0]))
    if fallback and wish.fallback:
        why = explain_fallback(fallback, refused, ask)
        plan = _make_plan(search, fallback, Outcome.FALLBACK, why=why)
        return replace(plan, opens=name_what_opens(refused, ask) or name_macos_that_opens(refused, ask))
    if wish.accept_cpu and considered.vendor in MAKERS:
        return _on_cpu(search, wanted) or _make_blocked(search, wanted, fallback)
    return _make_blocked(search, wanted, fallback)


def _resolve_without_devices(ask: Question) -> Plan:
    """Decide as for a machine without devices; those that are here are named and not served."""
    problems = tuple(problem for problem in ask.host.problems if problem.vendor is None)
    bare = replace(ask.host, nvidia=Nvidia(), amd=Amd(), intel=Intel(), problems=problems)
    plan = resolve(replace(ask, host=bare, wish=replace(ask.wish, devices=None)))
    unused = tuple(
        PlannedDevice(vendor, device.index, device.name, served=False)
        for vendor, device in all_devices(ask.host)
    )
    return replace(plan, devices=unused)


def _on_cpu(search: Search, wanted: tuple[Release, ...]) -> Plan | None:
    on_cpu = search.for_cpu()
    build = on_cpu.first(wanted)
    if build is None:
        return None
    on_cpu.rejected[:0] = search.rejected
    return _make_plan(on_cpu, build, Outcome.AS_REQUESTED)


def _refuse_unknown_words(wish: Wish, catalogue: Catalogue) -> None:
    for tag in wish.backends:
        if tag not in catalogue.tags:
            hint = _name_backends(tag, wish, catalogue)
            raise InputError(f"`{tag}` is not a backend of any release", hint=hint)
    for name in wish.packages:
        if name not in catalogue.family:
            hint = nearest(name, catalogue.family) or "list other packages under [packages] requirements"
            raise InputError(f"`{name}` is not a package of torch's family", hint=hint)


# What people write for "a GPU of this maker", and the vendor that they mean; None is any.
_MAKERS_WORDS = {
    "gpu": None,
    "auto": None,
    "nvidia": "nvidia",
    "cuda": "nvidia",
    "amd": "amd",
    "rocm": "amd",
    "hip": "amd",
    "intel": "intel",
    "mps": "apple",
    "metal": "apple",
}


def _name_backends(tag: str, wish: Wish, catalogue: Catalogue) -> str:
    """Explain `--backend` to who named a maker, and name the builds of the kind that was named."""
    word = tag.lower()
    if word in {"mps", "metal"}:
        return "leave out --backend: on a Mac the one build there is has MPS"
    vendor = _MAKERS_WORDS.get(word) or (
        "nvidia" if word.startswith(("cu", "cuda")) else "amd" if word.startswith("rocm") else None
    )
    release = catalogue.matching(wish.version)[0]
    tags = [backend.tag for backend in release.backends if vendor in {None, backend.vendor}]
    named = f"{', '.join(tags)} of torch {release.version}"
    if word in _MAKERS_WORDS:
        return f"leave out --backend to have one chosen for this machine's GPU, or name one of {named}"
    close = nearest(tag, [backend.tag for backend in release.backends])
    if close is not None:
        return f"{close} torch {release.version} has {', '.join(tags)}"
    return f"name one of {named}"


def _make_plan(search: Search, build: Build, outcome: Outcome, why: tuple[str, ...] = ()) -> Plan:
    ask, considered = search.ask, search.considered
    remarks = (
        *considered.remarks,
        *remarks_of(build.release, build.backend, considered, ask),
        *_problems(ask.host),
        *_note_python(ask, build),
        *_note_held_back(search, build, outcome),
        *_from_source(search, outcome),
        *_from_package_index(search, build),
    )
    return Plan(
        requested=ask.wish.version,
        outcome=outcome,
        build=build,
        why=why,
        devices=_devices(search, build),
        rejected=tuple(search.rejected),
        pythons=reject_others(ask, build.release, build.backend, build.python),
        warnings=remarks,
        advice=advise(ask, outcome, build, why),
    )


def _make_blocked(search: Search, wanted: tuple[Release, ...], fallback: Build | None) -> Plan:
    rejected = tuple(search.rejected)
    told = explain_block(search, wanted, fallback)
    remarks = (
        *search.considered.remarks,
        *_problems(search.ask.host),
        *_from_source(search, Outcome.BLOCKED),
    )
    return Plan(
        requested=search.ask.wish.version,
        outcome=Outcome.BLOCKED,
        build=None,
        why=told.why,
        hint=told.hint,
        opens=told.hint,
        devices=_devices(search, None),
        rejected=(*told.conflict, *rejected),
        warnings=remarks,
        advice=advise(search.ask, Outcome.BLOCKED, None, told.why),
        offered=told.offered,
    )


def _block_unreadable_or_torn(search: Search, wanted: tuple[Release, ...]) -> Plan:
    considered = search.considered
    assert considered.blocked is not None
    if search.ask.wish.accept_cpu and (plan := _on_cpu(search, wanted)):
        return plan
    rejected = tuple(
        Rejection.of(release, backend.tag, considered.blocked)
        for release in wanted[:1]
        for backend in release.backends
    )
    why = (considered.blocked.message,)
    return Plan(
        requested=search.ask.wish.version,
        outcome=Outcome.BLOCKED,
        build=None,
        why=why,
        hint=considered.hint,
        opens=considered.hint,
        devices=_devices(search, None),
        rejected=rejected,
        warnings=considered.remarks,
        advice=advise(search.ask, Outcome.BLOCKED, None, why),
    )


def _devices(search: Search, build: Build | None) -> tuple[PlannedDevice, ...]:
    host, used = search.ask.host, set(search.considered.devices)
    devices = [
        PlannedDevice(vendor, device.index, device.name, build is not None and device in used)
        for vendor, device in all_devices(host)
    ]
    if host.apple.status is Status.FOUND:
        served = build is not None and refusal_of_mps(build.release, host) is None
        devices.append(PlannedDevice("apple", 0, host.apple.chip or "Apple GPU", served))
    return tuple(devices)


def _problems(host: Host) -> tuple[Remark, ...]:
    # A broken shim is the probe's to tell: it decides nothing here.
    told = (problem for problem in host.problems if problem.code != "interpreter-broken")
    return tuple(Remark(problem.code, problem.message) for problem in told)


def _note_python(ask: Question, build: Build) -> tuple[Remark, ...]:
    warning = find_warning(build.python.version, ask, build.release) if build.python.path else None
    return (Remark("python-avoided", f"{warning} ({build.python.path})"),) if warning else ()


def _note_held_back(search: Search, build: Build, outcome: Outcome) -> tuple[Remark, ...]:
    """Name the devices without which the wish could be met."""
    devices = search.considered.devices
    if outcome is not Outcome.FALLBACK or len(devices) < 2:
        return ()
    for release in search.ask.catalogue.matching(search.ask.wish.version):
        able = [device for device in devices if search.serving(release, [device])]
        newer = search.serving(release, able) if able else None
        if newer is not None and len(able) < len(devices) and release.version > build.release.version:
            names = ", ".join(device.name for device in devices if device not in able)
            numbers = ",".join(str(item.index) for item in able)
            opens = f"`--devices {numbers}` allows torch {release.version} ({newer.backend.tag})"
            return (Remark("held-back", f"held back by {names}: {opens}"),)
    return ()


def _from_source(search: Search, outcome: Outcome) -> tuple[Remark, ...]:
    if outcome is Outcome.AS_REQUESTED:
        return ()
    known = search.ask.catalogue.from_source
    cards = (device for device in search.considered.devices if isinstance(device, AmdDevice))
    targets = dict.fromkeys(card.gfx or search.ask.catalogue.find_gfx(card.name) for card in cards)
    return tuple(
        Remark("build-from-source", known[gfx]) for gfx in targets if gfx is not None and gfx in known
    )


def _from_package_index(search: Search, build: Build) -> tuple[Remark, ...]:
    if not search.ask.indexes.unreachable or search.considered.vendor == "apple":
        return ()
    on_cpu = search.considered.vendor == "cpu" != build.backend.vendor
    here = ", which computes on the CPU here" if on_cpu else ""
    taken = f"using the package index's {build.backend.tag} build{here}"
    said = f"PyTorch's index cannot be reached: {taken}"
    return (Remark("package-index", said),)
