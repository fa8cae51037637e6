"""predictions.jpg, which darknet writes after each picture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cli._darknet import files, lines
from engine.cli._kept_file import KeptFile
from engine.cli._output_files import ReservedPaths
from engine.cli._sinks.base import drawing
from engine.cli._stderr import print_stderr
from engine.files.naming import shown
from engine.files.real_paths import real
from engine.outputs.record import add_file, files_in

if TYPE_CHECKING:
    from engine.arrays import Array
    from engine.detector import Detector
    from engine.vision.image import Picture
    from engine.vision.result import Result

_FILE = Path("predictions.jpg")
_OPTION = "the drawing"  # how errors call the file
_MIN_SCORE = 0.005  # for darknet's JSON, regardless of -thresh


def result_of(detector: Detector, picture: Picture, rows: Array) -> Result:
    """Convert rows to a result in the same order, without the classes that are not shown."""
    from engine.vision.result import Result
    from engine.vision.rows import boxes_of

    boxes = boxes_of(rows, min_score=_MIN_SCORE)
    names = detector.labels
    result = Result.of(boxes, picture, names=names, oriented=False, keep_picture=True)
    return result.filter(exclude=[name for name in names if lines.is_hidden(name)])


class Drawing:
    """The file predictions.jpg, which is replaced as in darknet unless it is an input.

    If stdin names it after it was replaced, the `with` block restores it.
    """

    def __init__(self, reserved: ReservedPaths) -> None:
        self._reserved = reserved
        self._results_in = lru_cache(maxsize=None)(files_in)  # cached, so as of before this run
        self._is_own = _FILE.is_file() and str(_FILE) not in self._results_in(".")
        self._kept: KeptFile | None = None
        if not reserved.is_input(_FILE):
            reserved.reserve(_OPTION, str(_FILE))

    def pictures(self, picture: str | None) -> Iterator[str]:
        """Yield the picture, or the names on stdin except those of earlier outputs."""
        for name in files.pictures(picture):
            if picture is None and self._is_result(name):
                print_stderr(f"{shown(name)}: is skipped, because a run wrote it")
                continue
            self._reserved.add_input(name)
            yield name

    def _is_result(self, name: str) -> bool:
        folder, base = os.path.split(name)
        if real(name) == real(_FILE) and _FILE.is_file():
            return not self._is_own
        return base in self._results_in(folder or ".")

    def write(self, result: Result) -> None:
        from engine.vision.encode import encode

        with drawing(str(_FILE), result.path or ""):
            content = encode(result.plot(), _FILE)
        if self._is_own and self._reserved.has_stdin and self._kept is None:
            self._kept = KeptFile(_FILE)
        files.write(_FILE, content, self._reserved, option=_OPTION)
        add_file(_FILE)

    def __enter__(self) -> Drawing:
        return self

    def __exit__(self, *_: object) -> None:
        if self._kept is None:
            return
        if real(_FILE) in self._reserved.refused:
            self._kept.put_back()
        else:
            self._kept.remove()
