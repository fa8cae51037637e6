"""From sources to Results: run a detector, and write what the options ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.compat.ultralytics.options import Options
from engine.compat.ultralytics.results import Results
from engine.compat.ultralytics.sources import Pictures, is_single
from engine.detector import Detector
from engine.errors import ImageError, InputError
from engine.files.stamp import is_of_file
from engine.sources.item import Item
from engine.sources.pictures import is_file

_log = logging.getLogger("engine")

_NO_SHOW = (
    "show: expected pictures: each frame of a video would open a viewer of its own. "
    'Use stream=True and cv2.imshow("found", result.plot())'
)
_RGB = 3  # channels


def predict(
    detector: Detector,
    source: Any,
    options: Options,
    *,
    task: str,
    keeps: bool,
    follow: Callable[[Any, str], Any] | None = None,
) -> Iterator[Results]:
    """Return the Results of each picture; wrong arguments are errors before the first one.

    `keeps` holds the pixels of files in memory. `follow` gives boxes the identities of a tracker.
    """
    is_one = is_single(source)
    sources = [source] if is_one else source
    pictures = Pictures(sources, options.vid_stride)
    mode = "predict" if follow is None else "track"
    folder = options.run_folder(task, mode) if options.writes else None
    if folder is not None:
        folder.refuse_pictures_here(sources)

    def found() -> Iterator[Results]:
        outcomes = detector.stream(
            pictures,
            on_error="yield",
            expand=False,
            keep_pictures=True,
            **options.of_call(detector.task),
        )
        pairs = zip(outcomes, pictures.items_again(), strict=False)
        with closing(outcomes), ExitStack() as stack:
            if folder is not None:
                stack.callback(folder.finish)
            for result, item in _without_errors(pairs, is_one=is_one):
                if options.show and result.frame is not None:
                    raise InputError(_NO_SHOW)
                if follow is not None:
                    result = follow(result, result.path or item.name)
                path = None if folder is None else folder.path
                made = _results_of(result, item, path, keeps=keeps)
                if folder is not None:
                    folder.write(made, item)
                if options.show:
                    made.show(**options.drawing)
                yield made

    return found()


def _without_errors(
    outcomes: Iterable[tuple[Any, Item]], *, is_one: bool
) -> Iterator[tuple[Any, Item]]:
    """Yield results and log errors; raise the error of a single picture that cannot be read."""
    first: ImageError | None = None
    number = -1
    has_any = False
    for number, (outcome, item) in enumerate(outcomes):
        if first is not None:
            _log.warning("%s", first)
            first = None
        if not isinstance(outcome, ImageError):
            has_any = True
            yield outcome, item
        elif is_one and number == 0:
            first = outcome
        else:
            _log.warning("%s", outcome)
    if first is not None:
        raise first
    if number >= 0 and not has_any:
        _log.warning("source: none of the pictures could be read, so there are no results")


def _results_of(result: Any, item: Item, folder: Path | None, *, keeps: bool) -> Results:
    """Return the Results, in a stream with the pixels only of what cannot be read again.

    The pixels for a network of grey pictures are not those of the file.
    """
    picture = result.picture
    if picture is not None and is_of_file(result.stamp) and is_file(result.path):
        kept = picture if keeps and picture.channels == _RGB else None
        return Results(replace(result, picture=None), kept, folder)
    return Results(result, picture, folder, name=item.name)
