"""A plan as people read it: the choice first, why in two lines, what to type next."""

from __future__ import annotations

from collections.abc import Iterator

from torchenv.plan import Build, Outcome, Plan, pip_command
from torchenv.plan.values import Download

_VERDICTS = {
    "upgrade": "upgrade",
    "upgrade-at-checkpoint-boundary": "upgrade when you next start a run",
    "stay": "stay on the active environment",
}


def describe_plan(
    plan: Plan, *, following: str = "torchenv create", explain: bool = False, is_elsewhere: bool = False
) -> str:
    """Describe a plan; `following` is the command that makes it, and `explain` adds what was not chosen.

    A plan of a machine that `is_elsewhere` is made there, and not here.
    """
    where = "on that machine" if is_elsewhere else "next"
    return "\n".join(_lines(plan, f"{where}: {following}", explain=explain, is_elsewhere=is_elsewhere))


def describe_decision(plan: Plan, *, explain: bool = False) -> str:
    """Describe the decision alone, in a few lines."""
    rejected = _describe_rejected(plan) if explain else ()
    return "\n".join((*_decision(plan), *_warnings(plan), *rejected))


def describe_advice(plan: Plan) -> str:
    """Describe the advice alone, without the reasons that the decision has named."""
    verdict = _VERDICTS[plan.advice.verdict]
    if plan.outcome is Outcome.FALLBACK and plan.build is not None:
        # Nothing may be active yet.
        verdict = f"stay on torch {plan.build.release.line}"
    reasons = tuple(reason for reason in plan.advice.reasons if reason not in plan.why)
    return f"advice: {verdict}{_because(reasons)}"


def describe_refusal(plan: Plan, *, explain: bool = False) -> str:
    """Describe what stands around a refusal, whose reason and remedy the error itself says."""
    lines = [*_devices(plan), *_warnings(plan)]
    lines += _describe_rejected(plan) if explain else _count_rejected(plan)
    return "\n".join(lines)


def _lines(plan: Plan, following: str, *, explain: bool, is_elsewhere: bool) -> Iterator[str]:
    yield from _decision(plan, is_elsewhere=is_elsewhere)
    yield from _warnings(plan)
    if plan.build is not None:
        yield describe_advice(plan)
        if explain:
            yield f"with pip alone: {pip_command(plan.build)}"
    yield from _describe_rejected(plan) if explain else _count_rejected(plan)
    if plan.build is not None:
        yield following


def _decision(plan: Plan, *, is_elsewhere: bool = False) -> Iterator[str]:
    if plan.build is None:
        wanted = "the latest torch" if plan.requested == "latest" else f"torch {plan.requested}"
        yield f"no build of {wanted} suits {'that' if is_elsewhere else 'this'} host"
    else:
        yield f"torch {plan.build.torch} for {_python(plan.build)}"
        yield from (f"  {requirement}" for requirement in plan.build.requirements[1:])
        yield f"  from {_index(plan.build)}{_size(plan.build)}"
    yield from (f"because {reason}" for reason in plan.why)
    if plan.hint:
        yield f"hint: {plan.hint}"
    yield from _devices(plan)


def _size(build: Build) -> str:
    match build.download:
        case Download(cached=True):
            return " (cached)"
        case Download(mib=int(mib)):
            return f" (about {mib / 1024:.1f} GiB)"
        case _:
            return ""


def _devices(plan: Plan) -> Iterator[str]:
    # Eight cards of one kind are one line.
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for device in plan.devices:
        groups.setdefault((device.vendor, device.name, device.served), []).append(device.index)
    for (vendor, name, served), numbers in groups.items():
        what = f"{vendor} {','.join(map(str, numbers))}"
        # Where no build was chosen, each may have one of its own, and the reasons say what is in the way.
        said = "" if plan.build is None else f": {'supported' if served else 'not supported'}"
        yield f"device: {what} {name}{said}"


def _python(build: Build) -> str:
    python = build.python
    where = "to be downloaded" if python.path is None else python.path
    return f"Python {python.minor} ({where})"


def _index(build: Build) -> str:
    return build.index or "the default package index"


def _warnings(plan: Plan) -> Iterator[str]:
    yield from (f"note: {warning.message}" for warning in plan.warnings)


def _count_rejected(plan: Plan) -> Iterator[str]:
    # What the choice turned on is said; the rest is for who asks.
    if plan.build is None and plan.rejected:
        count = len(plan.rejected)
        yield f"{count} candidate{'s' if count != 1 else ''} rejected; list them with --explain"


def _describe_rejected(plan: Plan) -> Iterator[str]:
    if plan.rejected:
        yield "not chosen:"
        yield from (f"  {rejection}" for rejection in plan.rejected)
    if plan.pythons:
        yield "interpreters not chosen:"
        yield from (f"  Python {python.version} ({python.path}): {python.why}" for python in plan.pythons)


def _because(reasons: tuple[str, ...]) -> str:
    return f" ({'; '.join(reasons)})" if reasons else ""
