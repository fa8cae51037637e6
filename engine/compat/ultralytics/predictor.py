"""Run a detector on sources, yield Results, and write the requested outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.arrays import Array
from engine.compat.ultralytics.callbacks import Callbacks
from engine.compat.ultralytics.errors import as_missing
from engine.compat.ultralytics.following import Following
from engine.compat.ultralytics.options import Options
from engine.compat.ultralytics.results import Results
from engine.compat.ultralytics.run_folder import RunFolder
from engine.compat.ultralytics.sources import Pictures, is_single
from engine.detector import Detector
from engine.errors import ImageError, InputError
from engine.files.stamp import is_of_file
from engine.sources.item import Item
from engine.sources.pictures import is_file, name_of

_log = logging.getLogger("engine")

_NO_SHOW = (
    "show: expected pictures: each frame of a video would open a viewer of its own. "
    'Use stream=True and cv2.imshow("found", result.plot())'
)
_RGB = 3  # channels


class Predictor:
    """One call of predict() or track(), with the attributes that its callbacks read and replace.

    Each picture is a batch of its own. `results` holds the Results of the latest one; a callback
    may replace them, even with other objects that the caller's loop expects.
    """

    def __init__(
        self, options: Options, callbacks: Callbacks, following: Following | None = None
    ) -> None:
        """Create the predictor; `following` tracks objects."""
        self.args = options
        self.results: Iterable[Any] = []
        self.seen = 0  # pictures
        self.save_dir: Path | None = None
        self.trackers = [] if following is None else [following]
        self._callbacks = callbacks

    @property
    def batch(self) -> tuple[list[str], list[Array], list[str]]:
        """Return the paths, the pictures in BGR order, and the texts of `results`."""
        found = [each for each in self.results if isinstance(each, Results)]
        texts = [each.verbose() for each in found]
        return [each.path for each in found], [each.orig_img for each in found], texts

    def predict(
        self,
        detector: Detector,
        source: Any,
        *,
        task: str,
        keeps: bool,
        follow: Callable[[Any, str], Any] | None = None,
        names: Mapping[int, str] | None = None,
    ) -> Iterator[Any]:
        """Yield the Results of each picture; raise errors of arguments before the first one.

        `keeps` holds the pixels of files in memory. `names` replace those of the network.
        """
        is_one, options = is_single(source), self.args
        sources = [source] if is_one else source
        pictures = Pictures(sources, options.vid_stride)
        mode = "predict" if follow is None else "track"
        folder = options.run_folder(task, mode) if options.writes else None
        if folder is not None:
            folder.refuse_pictures_here(sources)
            self.save_dir = folder.path

        def found() -> Iterator[Any]:
            self._call("on_predict_start")
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
                for result, item in _without_errors(pairs, is_one=is_one, name=name_of(source)):
                    if options.show and result.frame is not None:
                        raise InputError(_NO_SHOW)
                    if follow is not None:
                        result = follow(result, result.path or item.name)
                    self.seen += 1
                    made = _results_of(result, item, self.save_dir, keeps=keeps)
                    if names is not None:
                        made.names = dict(names)
                    self.results = [made]
                    self._call("on_predict_postprocess_end")
                    self._write(folder, item)
                    self._call("on_predict_batch_end")
                    yield from self.results
            self._call("on_predict_end")

        return found()

    def _write(self, folder: RunFolder | None, item: Item) -> None:
        """Write and show the results as the options ask for."""
        self.results = list(self.results or ())
        for each in self.results:
            if not isinstance(each, Results):  # replaced by a callback
                continue
            if folder is not None:
                folder.write(each, item)
            if self.args.show:
                each.show(**self.args.drawing)

    def _call(self, event: str) -> None:
        for function in self._callbacks[event]:
            function(self)


def _without_errors(
    outcomes: Iterable[tuple[Any, Item]], *, is_one: bool, name: str | None
) -> Iterator[tuple[Any, Item]]:
    """Yield results and log errors; raise the error of a single picture that cannot be read.

    `name` is that of a single source.
    """
    first: ImageError | None = None
    number = -1
    has_any = False
    for number, (outcome, item) in enumerate(outcomes):
        if first is not None:
            _log.warning("%s", first)
            first = None
        if isinstance(outcome, ImageError) and outcome.result is not None:
            _log.warning("%s", outcome)
            outcome = outcome.result  # every picture that was read has one
        if not isinstance(outcome, ImageError):
            has_any = True
            yield outcome, item
        elif is_one and number == 0:
            first = outcome
        else:
            _log.warning("%s", outcome)
    if first is not None:
        raise as_missing(first, name)
    if number >= 0 and not has_any:
        _log.warning("source: none of the pictures could be read, so there are no results")


def _results_of(result: Any, item: Item, folder: Path | None, *, keeps: bool) -> Results:
    """Return the Results; in a stream, keep only pixels that cannot be read again.

    The pixels given to a network of grey pictures are not those of the file.
    """
    picture = result.picture
    if picture is not None and is_of_file(result.stamp) and is_file(result.path):
        kept = picture if keeps and picture.channels == _RGB else None
        return Results.of(replace(result, picture=None), kept, folder)
    return Results.of(result, picture, folder, name=item.name)
