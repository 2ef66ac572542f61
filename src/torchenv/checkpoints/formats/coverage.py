"""Whether the chunks of a tensor leave a part of it out."""

from __future__ import annotations

from collections.abc import Iterable

from torchenv.checkpoints.formats.records import Piece, Shape

# A grid of chunks, taken in order, leaves a few boxes open at any time.
_MOST_BOXES = 256
_WORK, _WORK_A_PIECE = 4096, 64  # sides of open boxes that may be compared

Box = tuple[Shape, Shape]  # the first and the last index, the last one not included


def covers(shape: Shape, pieces: Iterable[Piece]) -> bool | None:
    """Return whether the pieces cover the tensor; None where they are too tangled to tell.

    Pieces may overlap. What is still open is kept as boxes; each piece is cut out of them.
    """
    open_boxes: list[Box] = [((0,) * len(shape), shape)] if 0 not in shape else []
    ordered = sorted(pieces)
    work = _WORK + _WORK_A_PIECE * len(ordered)
    for offsets, sizes in ordered:
        if len(offsets) != len(shape) or len(sizes) != len(shape):
            return False
        if not open_boxes:
            break
        ends = tuple(offset + size for offset, size in zip(offsets, sizes, strict=True))
        open_boxes = [left for box in open_boxes for left in _cut(box, offsets, ends)]
        work -= len(open_boxes) * len(shape)
        if len(open_boxes) > _MOST_BOXES or work < 0:
            return None
    else:
        return not open_boxes
    return True


def _cut(box: Box, start: Shape, end: Shape) -> list[Box]:
    """Return what is left of a box where a piece is cut out of it."""
    lows, highs = box
    if any(a >= high or b <= low for low, high, a, b in zip(lows, highs, start, end, strict=True)):
        return [box]
    left = []
    for axis, (a, b) in enumerate(zip(start, end, strict=True)):
        if lows[axis] < a:
            left.append((lows, (*highs[:axis], a, *highs[axis + 1 :])))
            lows = (*lows[:axis], a, *lows[axis + 1 :])
        if b < highs[axis]:
            left.append(((*lows[:axis], b, *lows[axis + 1 :]), highs))
            highs = (*highs[:axis], b, *highs[axis + 1 :])
    return left
