"""predictions.jpg, which darknet writes after each picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli._darknet import files, lines
from engine.cli._output_record import add_file

if TYPE_CHECKING:
    from engine.arrays import Array
    from engine.detector import Detector
    from engine.vision.image import Picture
    from engine.vision.result import Result

_FILE = Path("predictions.jpg")
_MIN_SCORE = 0.005  # of darknet's JSON, whatever -thresh is


def result_of(detector: Detector, picture: Picture, rows: Array) -> Result:
    """Return the rows as a result in the same order, without the classes that are not shown."""
    from engine.vision.result import Result
    from engine.vision.rows import boxes_of

    boxes = boxes_of(rows, min_score=_MIN_SCORE)
    names = detector.labels
    result = Result.of(boxes, picture, names=names, oriented=False, keep_picture=True)
    return result.filter(exclude=[name for name in names if lines.is_hidden(name)])


def write(result: Result, inputs: Sequence[str | None]) -> None:
    """Draw the boxes; the file of an earlier run is replaced, as by darknet."""
    from engine.vision.encode import encode

    files.write(_FILE, encode(result.plot(), _FILE), inputs=inputs)
    add_file(_FILE)
