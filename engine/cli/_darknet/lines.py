"""The lines that darknet prints about a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.files.naming import escaped

if TYPE_CHECKING:
    import numpy as np

    from engine.arrays import Array

_HIDDEN = "dont_show"  # prefix of class names that darknet does not show


def predicted(path: str, milliseconds: float) -> str:
    return f"{escaped(path)}: Predicted in {round(milliseconds, 3):f} milli-seconds."


def is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN)


def objects(
    rows: Array, names: Sequence[str], size: tuple[int, int], *, threshold: float, extended: bool
) -> Iterator[str]:
    """Yield a line for each box and class, the leftmost box first; `extended` adds the box.

    The best class of a box comes first, then its others.
    """
    import numpy as np

    for row in rows[np.argsort(rows[:, 0] - rows[:, 2] / 2, kind="stable")]:
        visible = np.flatnonzero(row[5:] > threshold).tolist()
        shown = [each for each in visible if not is_hidden(names[each])]
        if not shown:
            continue
        best = max(shown, key=lambda each: (row[5 + each], -each))
        where = _position(row[:4], size) if extended else ""
        for class_id in (best, *(each for each in visible if each != best)):
            yield f"{escaped(names[class_id])}: {percent(row[5 + class_id])}{where}"


def frame_objects(
    rows: Array, names: Sequence[str], size: tuple[int, int], *, threshold: float, extended: bool
) -> Iterator[str]:
    """Yield a line for each box of a frame, with all its classes and its edges in the frame."""
    width, height = size
    for row in rows:
        found = [
            f"{escaped(names[each])}: {percent(row[5 + each])} "
            for each in (row[5:] > threshold).nonzero()[0].tolist()
            if not is_hidden(names[each])
        ]
        if not found:
            continue
        x, y, w, h = (min(float(each), 1.0) for each in row[:4])
        left, top = max(int((x - w / 2) * width), 0), max(int((y - h / 2) * height), 0)
        where = f"left_x: {left:4.0f}   top_y: {top:4.0f}"
        sides = f"width: {w * width:4.0f}   height: {h * height:4.0f}"
        yield ", ".join(found) + (f"\t({where}   {sides})" if extended else "")


def percent(score: np.float32) -> str:
    return f"{float(score * 100):.0f}%"


def _position(xywh: Array, size: tuple[int, int]) -> str:
    (x, y, w, h), (width, height) = xywh, size
    left, top, right, bottom = (
        _rounded(float(each))
        for each in ((x - w / 2) * width, (y - h / 2) * height, w * width, h * height)
    )
    edges = f"left_x: {left:4.0f}   top_y: {top:4.0f}   width: {right:4.0f}   height: {bottom:4.0f}"
    return f"\t({edges})"


def _rounded(value: float) -> float:
    """Round as C does: a half goes away from zero."""
    return math.copysign(math.floor(abs(value) + 0.5), value)
