"""Runs of a network over pictures: batches are submitted ahead, results come out in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from engine.arrays import Array
from engine.backends.base import (
    DetectionSettings,
    DirectProgram,
    JpegDecoder,
    Placed,
    Program,
    TimedTicket,
)
from engine.backends.frame_picture import FramePicture
from engine.concurrency import fork_safety
from engine.concurrency.cores import usable_cores
from engine.concurrency.pipeline import pipelined
from engine.darknet.graph import Graph
from engine.device_reading import DeviceReader
from engine.errors import ImageError, InputError, within_memory
from engine.files.stamp import is_of_file
from engine.filled_runs import Pending, filled_runs
from engine.inputs import Batch, FolderFoundError, Intake, Prepared, ReadAhead, Wanted
from engine.settings import Settings
from engine.sources.media import MediaKind, media_of
from engine.vision import class_tree
from engine.vision.boxes import NO_BOXES, NOT_NUMBERS, Boxes, Suppression
from engine.vision.classification import Classification
from engine.vision.code import Code
from engine.vision.image import Picture
from engine.vision.postprocess import NO_NUMBERS, NO_PROBABILITIES
from engine.vision.result import Result
from engine.vision.tiles import Area, merge

if TYPE_CHECKING:
    from engine.codes.reader import CodeReader
    from engine.vision.batch_decoder import BatchDecoder

Outcome: TypeAlias = Result | Classification
Keep: TypeAlias = Literal["always", "if needed", "never"]  # whether a result keeps its picture


class Pace(NamedTuple):
    """How far a stream works ahead of its caller."""

    workers: int = 1
    waiting: int = 0  # extra batches, if the device runs ahead
    stop: Callable[[], object] | None = None  # stops sources that wait for pictures


_USUAL_PACE = Pace()
_log = logging.getLogger("engine")


class _Run(NamedTuple):
    """A submitted batch; the program keeps its pixels as long as it reads them."""

    pictures: Sequence[Prepared | ImageError]
    settings: tuple[Settings, ...]  # one for each picture that was read
    ticket: TimedTicket[Sequence[Any]] | None  # None if no picture was read


class _Alike(NamedTuple):
    """The data shared by calls with arrays of one shape."""

    settings: Settings
    shape: tuple[int, ...]
    program: DirectProgram
    chosen: DetectionSettings
    recipe: Any


class PictureRuns:
    """Runs of one program over pictures, each with settings of its own."""

    def __init__(
        self,
        graph: Graph,
        program: Program,
        intake: Intake,
        suppression: Suppression,
        settings: Settings,
        *,
        labels: tuple[str, ...],
        is_untrusted: bool,
        jpeg_decoder: JpegDecoder | None = None,
    ) -> None:
        self._graph = graph
        self._task = graph.task
        self._program = program
        self._direct: DirectProgram | None = None
        if self._task == "detector" and isinstance(program, DirectProgram):
            self._direct = program
        self._intake = intake
        self._suppression = suppression
        self._settings = settings
        self._labels = labels
        self._is_untrusted = is_untrusted
        self._device_reader = None if jpeg_decoder is None else DeviceReader(jpeg_decoder)
        self.has_state = any(tensor.is_state for tensor in program.plan.tensors)
        self._reader: CodeReader | None = None
        self._latest: tuple[Settings, DetectionSettings] | None = None
        self._alike: _Alike | None = None
        self._batch_decoder: BatchDecoder | None = None
        self._lock = fork_safety.lock()
        self._has_warned = False

    def stream(
        self,
        sources: Iterable[Wanted],
        on_error: str,
        settings: Settings,
        *,
        bgr: bool,
        keep: Keep,
        pace: Pace = _USUAL_PACE,
        expand: Callable[[Iterable[str]], Iterable[Wanted]] | None = None,
    ) -> Generator[Any, None, None]:
        """Yield an outcome for each source, in order.

        `expand` returns the pictures of a folder that reading finds among the sources.
        """
        outcomes: Iterator[Outcome | ImageError]
        if self.has_state and self._settings.batch > 1:
            problem = "each row of a batch would be a sequence of its own. forward() takes batches"
            raise InputError(f"batch: expected 1 for a recurrent network: {problem}")
        with within_memory("detector"), ExitStack() as stack:
            ahead = self._read_ahead(stack, pace.workers, keep)
            ahead = self.device_ahead(settings, keep, ahead) or ahead
            prepare = partial(
                self._intake.prepare,
                bgr=bgr,
                settings=settings,
                ahead=ahead,
                finds_folders=expand is not None,
            )
            if settings.tiles is None:
                chunks = _chunks(sources, self._settings.batch)
                reads_ahead = ahead is not None
                runs = self._runs(chunks, prepare, settings, stack, pace, reads_ahead=reads_ahead)
                outcomes = (each for run in runs for each in self._outcomes(run, keep=keep))
            else:
                singly = _chunks(sources, 1)
                prepared = pipelined(singly, prepare, workers=pace.workers, stop=pace.stop)
                batches = stack.enter_context(closing(prepared))
                outcomes = self._filled(((each, settings) for each in batches), keep=keep)
            for outcome in outcomes:
                if expand is not None and isinstance(outcome, FolderFoundError):
                    inside, own = expand([outcome.folder]), pace._replace(stop=None)
                    yield from self.stream(
                        *(inside, on_error, settings), bgr=bgr, keep=keep, pace=own
                    )
                elif not isinstance(outcome, ImageError) or on_error == "yield":
                    yield outcome
                elif on_error == "raise":
                    raise outcome

    def _runs(
        self,
        chunks: Iterator[list[Wanted]],
        prepare: Callable[[list[Wanted]], Batch],
        settings: Settings,
        stack: ExitStack,
        pace: Pace,
        *,
        reads_ahead: bool,
    ) -> Iterator[_Run]:
        """Prepare and submit batches ahead of the caller."""

        def prepared() -> Generator[Batch]:
            return pipelined(chunks, prepare, workers=pace.workers, stop=pace.stop)

        def submit(batch: Batch) -> _Run:
            return self._submit(batch, (settings,) * len(batch.placed))

        if not self._program.runs_ahead:
            return map(submit, stack.enter_context(closing(prepared())))
        if self.has_state:  # one thread must submit the runs in order
            batches = stack.enter_context(closing(prepared()))
            return stack.enter_context(closing(pipelined(batches, submit, stop=pace.stop)))
        # The same thread prepares and submits a batch: a hand-over would cost more Python time.
        runs = pipelined(
            chunks,
            lambda chunk: submit(prepare(chunk)),
            workers=submitting_threads(self._program, pace.workers, reads_ahead=reads_ahead),
            waiting=pace.waiting,
            stop=pace.stop,
        )
        return stack.enter_context(closing(runs))

    def device_ahead(
        self, settings: Settings, keep: Keep, before: ReadAhead | None = None
    ) -> ReadAhead | None:
        """Return a function that decodes on the device, or None if the host needs the pixels."""
        needs_pixels = keep == "always" or settings.read or settings.tiles is not None
        if self._device_reader is None or needs_pixels:
            return None
        return partial(self._device_reader.read, before=before)

    def _read_ahead(self, stack: ExitStack, workers: int, keep: Keep) -> ReadAhead | None:
        """Return a function that decodes a stream's pictures in processes, where that is faster.

        One worker is the default, and a caller that asks for no more gets no processes.
        """
        if workers == 1 or self._intake.decoder is not None:
            return None
        from engine.vision import batch_decoder
        from engine.vision.shared_pixels import Pinning

        threads = workers + (0 if self.has_state else self._program.runs_ahead)
        if threads < batch_decoder.LEAST_THREADS or not batch_decoder.IS_POSSIBLE:
            return None
        with self._lock:
            if self._batch_decoder is None:
                pinning = self._program if isinstance(self._program, Pinning) else None
                self._batch_decoder = batch_decoder.BatchDecoder(pinning)
        stack.enter_context(self._batch_decoder.held())
        how = batch_decoder.Reading(threads, copies=keep != "never")
        return partial(self._batch_decoder.read, how=how)

    def close(self) -> None:
        """End the processes that decode pictures."""
        if self._batch_decoder is not None:
            self._batch_decoder.close()

    def _submit(self, batch: Batch, settings: tuple[Settings, ...]) -> _Run:
        """Start a run of a batch on the device."""
        if not batch.placed:
            return _Run(batch.pictures, (), None)
        if self._task == "classifier":
            forward = self._program.submit_forward(batch.placed)
            return _Run(batch.pictures, settings, forward)
        chosen: list[DetectionSettings] = []
        for each, before in zip(settings, (None, *settings), strict=False):
            chosen.append(chosen[-1] if each is before else self._detection_settings(each))
        return _Run(batch.pictures, settings, self._program.submit(batch.placed, chosen))

    def of_array(self, array: object, settings: Settings, *, keep: Keep) -> Result | None:
        """Return the result of an array by the program's fast path, or None if it has none.

        Calls in a loop differ only in their pixels. The result object is created while the device
        computes, and receives its boxes afterwards.
        """
        start, alike = time.perf_counter(), self._alike
        if (
            alike is None
            or alike.settings is not settings
            or type(array) is not np.ndarray
            or array.shape != alike.shape
            or array.dtype.char != "B"
            or not array.flags.c_contiguous
        ):
            if self._direct is None or settings.read or settings.tiles is not None:
                return None
            intake = self._intake
            if not intake.takes(array):
                return None
            chosen, placement = self._detection_settings(settings), intake.placement_of(array)
            recipe = self._direct.recipe_of(array, placement, chosen, exact=intake.exact)
            if recipe is None:
                return None
            alike = self._alike = _Alike(settings, array.shape, self._direct, chosen, recipe)
        chosen = alike.chosen
        timing = {"prepare": 0.0, "network": 0.0, "suppress": 0.0}
        made: list[Result] = []

        def meanwhile() -> None:
            made.append(self._result(Picture.of(array), NO_BOXES, settings, timing, keep=keep))

        prepared = time.perf_counter()
        found = alike.program.boxes_of(array, alike.recipe, meanwhile)
        if found is None:
            return None
        found_at = time.perf_counter()
        (result,) = made
        result.receive(found.select(chosen.classes, chosen.max_detections))
        timing["prepare"] = (prepared - start) * 1e3
        timing["network"] = (found_at - prepared) * 1e3
        timing["suppress"] = (time.perf_counter() - found_at) * 1e3
        return result

    def outcomes_of(
        self, batch: Batch, settings: Sequence[Settings], *, keep: Keep
    ) -> Iterator[Outcome | ImageError]:
        """Run a batch; yield the result or the error of each picture, in order."""
        if not batch.is_cut:
            return self._outcomes(self._submit(batch, tuple(settings)), keep=keep)
        return self._filled(zip(batch.singly(), settings, strict=True), keep=keep)

    def _filled(
        self, pictures: Iterable[tuple[Batch, Settings]], *, keep: Keep
    ) -> Iterator[Outcome | ImageError]:
        """Do the same for single pictures, some of them cut into tiles, using full runs."""
        made: dict[tuple[Settings, bool], DetectionSettings] = {}

        def submit(
            rows: Sequence[Placed], settings: Sequence[Settings], are_tiles: Sequence[bool]
        ) -> TimedTicket[list[Boxes]]:
            for key in zip(settings, are_tiles, strict=True):
                if key not in made:
                    made[key] = self._detection_settings(key[0], of_tile=key[1])
            chosen = [made[key] for key in zip(settings, are_tiles, strict=True)]
            return self._program.submit(rows, chosen)

        rows, ahead = self._settings.batch, max(0, self._program.runs_ahead - 1)
        for each in filled_runs(pictures, submit, rows=rows, ahead=ahead):
            yield each.entry if isinstance(each.entry, ImageError) else self._merged(each, keep)

    def _merged(self, picture: Pending, keep: Keep) -> Outcome | ImageError:
        """Return the result of a picture, given the results of its rows."""
        entry, settings = picture.entry, picture.settings
        assert isinstance(entry, Prepared)
        found, timing = picture.found[0], {"prepare": entry.milliseconds, **picture.milliseconds}
        if entry.tiles and NOT_NUMBERS in picture.found:
            found = NOT_NUMBERS
        elif entry.tiles:
            start = time.perf_counter()
            suppression = self._detection_settings(settings).suppression
            most = settings.most_boxes
            warn = partial(self._warn_once, entry.picture.name)
            found = merge(picture.found, entry.tiles, suppression, max_detections=most, warn=warn)
            timing["suppress"] = timing.get("suppress", 0.0) + (time.perf_counter() - start) * 1e3
        return self._outcome(entry, found, timing, settings, keep=keep)

    def _warn_once(self, name: str, line: str) -> None:
        """Log a warning about a picture only once, because frames of a video are alike."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning("%s: %s", name, line)

    def _detection_settings(
        self, settings: Settings, *, of_tile: bool = False
    ) -> DetectionSettings:
        latest = self._latest  # cached: thousands of runs per second have the same settings
        if latest is not None and latest[0] is settings and not of_tile:
            return latest[1]
        made = self._made_settings(settings, of_tile=of_tile)
        if not of_tile:
            self._latest = settings, made
        return made

    def _made_settings(self, settings: Settings, *, of_tile: bool) -> DetectionSettings:
        suppression = self._suppression
        if settings.nms != suppression.threshold:
            suppression = replace(suppression, threshold=settings.nms)
        return DetectionSettings(
            settings.lowest_score,
            suppression,
            self._settings.hierarchy,
            settings.classes,
            None if of_tile else settings.most_boxes,  # limited once the tiles are merged
        )

    def _outcomes(self, run: _Run, *, keep: Keep) -> Iterator[Outcome | ImageError]:
        """Yield the result or the error of each picture, in order."""
        rows: Sequence[Any] = ()
        timing: dict[str, float] = {}
        if run.ticket is not None:
            rows = run.ticket.result()
            rows = rows[0] if self._task == "classifier" else rows
            timing = {stage: each / len(rows) for stage, each in run.ticket.milliseconds.items()}
        remaining = iter(zip(rows, run.settings, strict=True))
        for entry in run.pictures:
            if isinstance(entry, ImageError):
                yield entry
            else:
                found, chosen = next(remaining)
                times = {"prepare": entry.milliseconds, **timing}
                yield self._outcome(entry, found, times, chosen, keep=keep)

    def _outcome(
        self,
        entry: Prepared,
        found: Any,
        timing: dict[str, float],
        settings: Settings,
        *,
        keep: Keep,
    ) -> Outcome | ImageError:
        """Return the result of a picture, given its Boxes or the probabilities of its classes."""
        picture = entry.picture
        if self._task == "classifier":
            has_numbers = bool(np.isfinite(found).all())
            probabilities = found.ravel() if has_numbers else np.zeros_like(found.ravel())
            classification = Classification(
                picture.size,
                self._multiply_down_the_tree(probabilities),
                self._labels,
                picture.path,
                timing=timing,
                top_k=settings.top_k if has_numbers else 0,
                frame=picture.frame,
                stamp=picture.stamp,
                picture=self._kept(picture) if keep == "always" else None,
            )
            if has_numbers:
                return classification
            error = ImageError(f"{picture.name}: {NO_PROBABILITIES}")
            error.result = classification
            return error
        if found is NOT_NUMBERS:
            error = ImageError(f"{picture.name}: {NO_NUMBERS}")
            error.result = self._result(
                *(picture, NO_BOXES, settings, timing),
                keep=keep,
                tiles=entry.tiles,
                is_unknown=True,
            )
            return error
        codes = None
        if settings.read:
            start = time.perf_counter()
            found, codes = self._read_codes(picture, found, settings)
            timing["read"] = (time.perf_counter() - start) * 1e3
        return self._result(
            *(picture, found, settings, timing),
            keep=keep,
            codes=codes,
            tiles=entry.tiles,
        )

    def _result(
        self,
        picture: Picture,
        found: Boxes,
        settings: Settings,
        timing: dict[str, float],
        *,
        keep: Keep,
        codes: Sequence[Code | None] | None = None,
        tiles: tuple[Area, ...] = (),
        is_unknown: bool = False,
    ) -> Result:
        keeps = keep == "always" or (keep == "if needed" and not self._can_be_read_again(picture))
        return Result.of(
            found,
            self._kept(picture) if keeps else picture,
            names=self._labels,
            timing=timing,
            oriented=self._intake.orient,
            codes=codes,
            tiles=tiles,
            keep_picture=keeps,
            is_untrusted=self._is_untrusted,
            sought=settings.classes,
            limit=settings.max_detections,
            is_unknown=is_unknown,
        )

    @staticmethod
    def _kept(picture: Picture) -> Picture:
        """Return a picture for a result to keep, not in GPU memory, which the runs need."""
        if isinstance(picture, FramePicture):
            picture.fetch()
        return picture

    def _can_be_read_again(self, picture: Picture) -> bool:
        """Return whether a picture can be read from its path: it is neither a video nor a URL."""
        if picture.path is None or self._is_untrusted or not is_of_file(picture.stamp):
            return False
        return media_of(picture.path).kind is MediaKind.PICTURE

    def _read_codes(
        self, picture: Picture, found: Boxes, settings: Settings
    ) -> tuple[Boxes, list[Code | None]]:
        """Return the boxes that have a code or a sufficient score, and their codes."""
        reader = self.code_reader()
        found, codes = reader.read(picture.pixels, found, classes=settings.classes)
        pairs = enumerate(zip(found.scores.tolist(), codes, strict=True))
        rows = [row for row, (score, code) in pairs if code or score > settings.threshold]
        rows = rows[: settings.max_detections]
        return found.take(np.array(rows, np.int64)), [codes[row] for row in rows]

    def read_codes(self, picture: Picture, result: Result, settings: Settings) -> Result:
        """Read the codes of a result that has all boxes above settings.lowest_score."""
        start = time.perf_counter()
        columns = result.xywhn, result.scores, result.class_ids
        boxes, codes = self._read_codes(picture, Boxes(*columns, result.scores), settings)
        taken = (time.perf_counter() - start) * 1e3
        return replace(
            result,
            xywhn=boxes.xywh,
            scores=boxes.scores,
            class_ids=boxes.class_ids,
            codes=codes,
            limit=settings.max_detections,
            timing={**result.timing, "read": taken},
        )

    def code_reader(self) -> CodeReader:
        """Return the reader, created on first use, or raise the error that prevents it."""
        with self._lock:
            if self._reader is None:
                from engine.codes.reader import CodeReader

                if self._task != "detector":
                    raise InputError(f"read: {self._graph.file}: is not a detector")
                self._reader = CodeReader(self._labels)
            return self._reader

    def _multiply_down_the_tree(self, probabilities: Array) -> Array:
        """Convert conditional probabilities of a class tree to absolute ones, as darknet does."""
        if not self._graph.tree_parents:
            return probabilities
        return class_tree.multiply_down(
            probabilities[None].copy(), self._graph.tree_parents
        ).ravel()


def submitting_threads(program: Program, workers: int, *, reads_ahead: bool) -> int:
    """Return how many threads prepare and submit the batches of a stream.

    What is read ahead is in pinned memory or on the device, so they need not copy it.
    """
    few = workers + program.runs_ahead
    return few if reads_ahead else max(few, min(program.submitters, usable_cores()))


def _chunks(sources: Iterable[Wanted], size: int) -> Iterator[list[Wanted]]:
    """Yield the sources in lists; if their iterator fails, first yield those before."""
    remaining = iter(sources)
    while True:
        chunk: list[Wanted] = []
        try:
            chunk.extend(islice(remaining, size))
        except Exception:
            if chunk:
                yield chunk
            raise
        if not chunk:
            return
        yield chunk
