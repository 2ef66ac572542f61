"""Let a training write distributed checkpoints that an older torch reads, without changing its torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from torchenv.checkpoints.readability import rules
from torchenv.errors import InputError, NothingSuits
from torchenv.workspace.records import Environment

HOOK = Path(__file__).parent.parent / "guest" / "write_for"

# Both 2.14.1 and the release itself were seen to read what these write so (tests/real/test_checkpoints.py).
TESTED = ("2.15.0",)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFor:
    """The variables that turn it on for a whole process tree, and what to tell; none where none is needed."""

    variables: Mapping[str, str] = field(default_factory=dict)
    says: str


def write_for(target: str, environment: Environment, *, force: bool = False) -> WriteFor:
    """Settle how the torch of an environment is made to write for an older one.

    Raises `InputError` for what is no version, `NothingSuits` where torch was not tested with it, or the
    older one would not read it all the same.
    """
    try:
        older = Version(target)
    except InvalidVersion:
        raise InputError(f"{target!r} is not a version of torch", hint="write --write-for 2.14") from None
    if environment.torch is None:
        raise NothingSuits(f"environment {environment} has no torch")
    features = rules().features
    strides, floor = features["dcp-strides"].torch_min, features["dcp-storage-meta"].torch_min
    assert strides is not None
    assert floor is not None
    torch = Version(environment.torch)
    if torch.release[:2] < Version(strides).release[:2]:
        return WriteFor(says=f"torch {torch} writes no strides: nothing is changed for torch {target}")
    if older.release[:2] >= Version(strides).release[:2]:
        return WriteFor(says=f"torch {target} reads what {torch} writes: nothing is changed")
    if older.release[:2] < Version(floor).release[:2]:
        said = f"torch {target} does not read what torch {torch} writes, with strides or without"
        raise NothingSuits(f"{said}: {features['dcp-storage-meta'].message}")
    if torch.public not in TESTED and not force:
        hint = "use it all the same with --force, and look at the first checkpoint before you rely on it"
        raise NothingSuits(f"writing for torch {target} was not tested with torch {torch.public}", hint=hint)
    return WriteFor(
        variables={
            "PYTHONPATH": str(HOOK),
            "TORCHENV_WRITE_FOR": target,
            "TORCHENV_WRITE_FOR_TESTED": "any" if force else ",".join(TESTED),
        },
        says=f"distributed checkpoints are written for torch {target} here: without strides",
    )
