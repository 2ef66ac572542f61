"""Interpreters that the release has no wheels for: in project files, pins, CI and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchenv.audit.findings import Severity
from torchenv.audit.rule import Hit, Rule
from torchenv.audit.sources import PROJECT, FileKind, NamedInterpreter, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchenv.audit.breakages import Breakages


def find(source: Source, breakages: Breakages) -> Iterator[Hit]:
    # A project that does not ask for torch may keep its old Python.
    if source.kind in PROJECT and not any(install.family(breakages.family) for install in source.installs):
        return
    # What keeps to an older torch may keep the Python of that torch too, also where a marker says so.
    torch = [
        requirement
        for install in source.installs
        for requirement in install.asked
        if requirement.name == "torch"
    ]
    admitting = [requirement for requirement in torch if breakages.is_admitted_by(requirement.specifier)]

    def matters(python: str) -> bool:
        return not torch or any(requirement.applies_to(python) for requirement in admitting)

    for interpreter in source.interpreters:
        if isinstance(interpreter.wanted, str):
            if interpreter.wanted in breakages.dropped_pythons and matters(interpreter.wanted):
                yield _make_hit(interpreter, f"Python {interpreter.wanted}", breakages)
            continue
        admits = [old for old in breakages.dropped_pythons if _admits(interpreter, old) and matters(old)]
        if not admits:
            continue
        if any(_admits(interpreter, new) for new in breakages.pythons):
            lowest = breakages.pythons[0]
            yield Hit(
                interpreter.place,
                f"`{interpreter.wanted}` admits Python {admits[-1]}, and torch {breakages.version} needs"
                f" {lowest} or newer: a lock for the whole range cannot hold it",
                f"raise the floor to >={lowest}, or keep torch<{breakages.version.release[0]}."
                f"{breakages.version.release[1]} for older interpreters with a marker",
                Severity.WARNING,
            )
        else:
            yield _make_hit(interpreter, f"`{interpreter.wanted}`", breakages)


def _admits(interpreter: NamedInterpreter, python: str) -> bool:
    # A late patch, as `>=3.10.4` admits Python 3.10 too.
    assert not isinstance(interpreter.wanted, str)
    return interpreter.wanted.contains(python) or interpreter.wanted.contains(f"{python}.99")


def _make_hit(interpreter: NamedInterpreter, what: str, breakages: Breakages) -> Hit:
    return Hit(
        interpreter.place,
        f"{what} cannot install torch {breakages.version}: it has wheels for Python"
        f" {breakages.pythons[0]} to {breakages.pythons[-1]}",
        f"use Python {breakages.pythons[0]} or newer, or stay on torch {breakages.before}",
    )


RULE = Rule(
    name="python-floor",
    title="A Python that the release no longer supports",
    severity=Severity.ERROR,
    kinds=PROJECT | {FileKind.PYTHON_PIN, FileKind.CI, FileKind.DOCKERFILE},
    needles=((b"3.",),),
    find=find,
    is_of_release=True,
)
