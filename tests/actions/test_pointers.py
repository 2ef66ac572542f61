"""A pointer file beside copies moves forward only, and each that is written or left is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchenv.actions.downgrade import Copied
from torchenv.actions.pointers import CopyPointer, point_to_copy
from torchenv.render.checkpoints import describe_copied


def point(root: Path, name: str, content: str, there: str | None, step: int = 200) -> tuple[CopyPointer, ...]:
    """Copy a step of run a, whose pointer has this content, beside step-300 and a pointer of its own."""
    source, run = root / "a" / f"step-{step}", root / "a-for-2.14"
    source.mkdir(parents=True)
    (source.parent / name).write_text(content)
    for save in ("step-100", "step-300", source.name):
        (run / save).mkdir(parents=True, exist_ok=True)
    if there is not None:
        (run / name).write_text(there)
    return point_to_copy(str(source), str(run / source.name))


@pytest.mark.parametrize(
    ("name", "content", "there", "after"),
    [
        ("latest", "step-200", None, "step-200"),
        ("latest", "step-200", "step-100", "step-200"),
        ("latest", "step-200", "step-300", "step-300"),
        ("latest", "step-200", "step-400", "step-200"),  # gone
        ("latest", "step-200", "best", "best"),
        ("latest", "step-200", "", ""),
        ("latest_checkpointed_iteration.txt", "200", "100", "200"),
        ("latest_checkpointed_iteration.txt", "200", "300", "300"),
        ("latest_checkpointed_iteration.txt", "200", "400", "200"),
        ("latest_checkpointed_iteration.txt", "200", "release", "release"),
    ],
)
def test_a_pointer_never_moves_back(
    tmp_path: Path, name: str, content: str, there: str | None, after: str
) -> None:
    (pointer,) = point(tmp_path, name, content, there)
    path = tmp_path / "a-for-2.14" / name
    assert path.read_text() == after
    assert pointer == CopyPointer(str(path), after, after == content)


def test_a_link_that_serves_as_a_pointer_stays(tmp_path: Path) -> None:
    link = tmp_path / "a-for-2.14" / "latest"
    link.parent.mkdir()
    link.symlink_to("step-100")
    (pointer,) = point(tmp_path, "latest", "step-200", None)
    assert not pointer.written
    assert link.readlink() == Path("step-100")


def test_what_became_of_a_pointer_is_said_in_a_line() -> None:
    pointers = (
        CopyPointer("b/latest", "step-300", written=False),
        CopyPointer("b/last_checkpoint", "2", written=True),
    )
    copied = Copied(source="a/step-200", copy="b/step-200", made=True, pointers=pointers)
    assert describe_copied([copied], []).splitlines()[1:] == [
        "  left b/latest as it was: it names step-300",
        "  wrote b/last_checkpoint, which now names 2",
    ]
