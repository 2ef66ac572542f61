"""What is wrong with an environment on disk, by its files alone: one list, told wherever it is looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator

from torchenv.environment.inspect import (
    Distribution,
    Installation,
    distributions,
    find_stray_scripts,
    list_metadata,
)
from torchenv.system.values import frozen


@frozen
class EnvironmentFinding:
    """One thing that is wrong: a code, the path that it is about, the cause and the command that cures it.

    Codes of `find_wrong` are moved, interpreter-gone, duplicate, half-uninstalled and other-torch; `verify`
    and the doctor have more.
    """

    code: str
    path: str
    message: str
    cure: str | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"

    @property
    def advice(self) -> str:
        """The cause and the cure in one sentence, for where there is one line for both."""
        return f"{self}; run `{self.cure}`" if self.cure else str(self)


def find_wrong(installation: Installation) -> tuple[EnvironmentFinding, ...]:
    """Return everything that the files of an environment show to be wrong; nothing in it is run."""
    return (
        *_find_move(installation),
        *_find_dead_interpreter(installation),
        *_find_leftovers(installation),
        *_find_other_torch(installation),
    )


def _find_move(installation: Installation) -> Iterator[EnvironmentFinding]:
    if not installation.has_moved:
        return
    stray = len(find_stray_scripts(installation))
    scripts = f"; {stray} of its scripts no longer run (`python -m NAME` does)" if stray else ""
    message = f"was moved here from {installation.made_at}{scripts}"
    yield EnvironmentFinding("moved", str(installation.path), message, "torchenv create")


def _find_dead_interpreter(installation: Installation) -> Iterator[EnvironmentFinding]:
    interpreter = installation.interpreter
    if interpreter is not None and interpreter.is_symlink() and not os.path.exists(interpreter):
        message = f"points at {installation.base}, which is gone"
        yield EnvironmentFinding("interpreter-gone", str(interpreter), message, "torchenv create")


def _find_leftovers(installation: Installation) -> Iterator[EnvironmentFinding]:
    for name, places in list_metadata(installation).items():
        if name == "~":
            for place in places:
                message = "is what an interrupted uninstall left behind"
                yield EnvironmentFinding("half-uninstalled", str(place), message, f"rm -r {place}")
        else:
            # lib and lib64 may be two directories, and what is first on the path hides the other.
            kept = {place.parent: place for place in reversed(places)}
            for place in places:
                if place != kept[place.parent]:
                    message = f"is a second record of {name}, next to {kept[place.parent].name}"
                    cure = f"uv pip install --python {installation.path} --reinstall {name}"
                    yield EnvironmentFinding("duplicate", str(place), message, cure)


def _find_other_torch(installation: Installation) -> Iterator[EnvironmentFinding]:
    if installation.torch is None:
        return
    for distribution in distributions(installation):
        if '"dir_info"' in (distribution.direct_url or ""):
            # A folder of the project goes in without its torch pins: the plan decides.
            continue
        for wanted in _list_refused(distribution, installation.torch):
            package = f"{distribution.name} {distribution.version}"
            message = f"{package} requires {wanted}, and torch is {installation.torch}"
            cure = f"torchenv create --like {installation.path}"
            yield EnvironmentFinding("other-torch", str(distribution.info), message, cure)


def _list_refused(distribution: Distribution, torch: str) -> Iterator[str]:
    lines = [line for line in distribution.requires if line.startswith("torch") and "extra" not in line]
    if not lines:
        return
    from packaging.requirements import InvalidRequirement, Requirement

    for line in lines:
        try:
            requirement = Requirement(line)
            holds = requirement.marker is None or requirement.marker.evaluate()
            refuses = not requirement.specifier.contains(torch, prereleases=True)
            if requirement.name == "torch" and holds and refuses:
                yield f"torch{requirement.specifier}"
        except (InvalidRequirement, ValueError):
            # What nobody can read asks for nothing.
            continue
