"""What a careful colleague would say about taking the step."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from packaging.version import Version

from torchenv.plan.values import Advice, Build, Known, Outcome, Question
from torchenv.system.words import count

UPGRADE, AT_BOUNDARY, STAY = "upgrade", "upgrade-at-checkpoint-boundary", "stay"


def advise(ask: Question, outcome: Outcome, build: Build | None, why: tuple[str, ...]) -> Advice:
    """Weigh a decision against what is in use, the code and the checkpoints that hang on it."""
    if build is None:
        return Advice(STAY, why)
    new, active = build.release.version, ask.in_use
    old = active.torch if active else None
    if outcome is Outcome.FALLBACK:
        still = "still " if old is not None and old.base_version == new.base_version else ""
        return Advice(STAY, (*why, f"torch {new} ({build.backend.tag}) {still}suits {_here(ask)}"))
    if old is not None and old.base_version == new.base_version:
        return Advice(STAY, (f"torch {old} is active already",))
    if old is not None and old > new:
        return Advice(STAY, (f"torch {old} is active, and newer than what is planned",))
    fits = f"torch {new} ({build.backend.tag}) suits {_machine(ask, build)}"
    if errors := ask.known.findings.get("error", 0):
        return Advice(STAY, (fits, f"the audit found {count(errors, 'error')}: fix this code first"))
    may_break = tuple(_may_break(ask.known))
    if old is None:
        return Advice(UPGRADE, (f"{fits}, and no environment is active yet", *may_break))
    if ask.wish.distributed and ask.catalogue.has_closed_door(old, new):
        return Advice(AT_BOUNDARY, (fits, *_door(old, new, ask.known), *may_break))
    return Advice(UPGRADE, (f"{fits}, in a new environment; {old} stays beside it", *may_break))


def _machine(ask: Question, build: Build) -> str:
    """Name what the build was held against."""
    accelerator = ask.host.nvidia
    if build.backend.vendor != "nvidia" or not accelerator.devices or build.unproven:
        return _here(ask)
    names = ", ".join(dict.fromkeys(device.name for device in accelerator.devices if device.visible))
    driver = f" with driver {accelerator.driver}" if accelerator.driver else ""
    return f"the {names}{driver}" if names else _here(ask)


def _here(ask: Question) -> str:
    return "that machine" if ask.is_elsewhere else "this machine"


def _door(old: Version, new: Version, known: Known) -> Iterator[str]:
    yield f"distributed checkpoints saved by {new} cannot be read by {old}"
    yield "upgrade when you next start a run"
    kept = known.lifeboat
    if kept is None:
        yield f"no checkpoint that {old} reads is protected: see `torchenv help checkpoints keep`"
        return
    age = _describe_age(kept.age)
    yield f"{kept.path} is protected for {old}, {age} old: rolling back loses the work since then"
    if known.oldest_lifeboat is not None and kept.age > known.oldest_lifeboat:
        oldest = _describe_age(known.oldest_lifeboat)
        yield f"the profile wants one no older than {oldest}: protect a newer one first"


def _may_break(known: Known) -> Iterator[str]:
    if warnings := known.findings.get("warning", 0):
        which = "it" if warnings == 1 else "them"
        yield f"the audit found {count(warnings, 'warning')}: read {which} before a long run"


def _describe_age(age: timedelta) -> str:
    hours = int(age.total_seconds() // 3600)
    return count(hours // 24, "day") if hours >= 48 else count(hours, "hour")
