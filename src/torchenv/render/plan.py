"""A plan as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from torchenv.plan import Build, Plan, pip_command


def describe_plan(plan: Plan) -> str:
    """Describe a plan: what is chosen, why, what to know, and every candidate that was passed over."""
    return "\n".join(_lines(plan))


def describe_decision(plan: Plan) -> str:
    """Describe the decision alone, in a few lines."""
    return "\n".join((*_decision(plan), *_warnings(plan)))


def describe_advice(plan: Plan) -> str:
    """Describe the advice alone."""
    return f"advice: {plan.advice.verdict}" + _because(plan.advice.reasons)


def describe_refusal(plan: Plan) -> str:
    """Describe what stands around a refusal, whose reason and remedy the error itself says."""
    return "\n".join((*_devices(plan), *_warnings(plan), *_describe_rejected(plan)))


def _lines(plan: Plan) -> Iterator[str]:
    yield from _decision(plan)
    yield from _warnings(plan)
    if plan.build is not None:
        yield describe_advice(plan)
        yield f"with pip alone: {pip_command(plan.build)}"
    yield from _describe_rejected(plan)
    if plan.pythons:
        yield "interpreters passed over:"
        yield from (f"  Python {each.version} ({each.path}): {each.why}" for each in plan.pythons)


def _decision(plan: Plan) -> Iterator[str]:
    if plan.build is None:
        yield f"nothing suits torch {plan.requested} on this host"
    else:
        yield f"torch {plan.build.torch} for {_python(plan.build)}, from {_index(plan.build)}"
        yield from (f"  {each}" for each in plan.build.requirements[1:])
    yield from (f"because {each}" for each in plan.why)
    if plan.hint:
        yield f"hint: {plan.hint}"
    yield from _devices(plan)


def _devices(plan: Plan) -> Iterator[str]:
    for device in plan.devices:
        state = "served" if device.served else "not served"
        yield f"device: {device.vendor} {device.index} {device.name}: {state}"


def _python(build: Build) -> str:
    python = build.python
    where = "to be fetched" if python.path is None else python.path
    return f"Python {python.minor} ({where})"


def _index(build: Build) -> str:
    return build.index or "the default package index"


def _warnings(plan: Plan) -> Iterator[str]:
    yield from (f"note: {each.message}" for each in plan.warnings)


def _describe_rejected(plan: Plan) -> Iterator[str]:
    if plan.rejected:
        yield "passed over:"
        yield from (f"  {each}" for each in plan.rejected)


def _because(reasons: tuple[str, ...]) -> str:
    return f" ({'; '.join(reasons)})" if reasons else ""
