"""Run pictures through a detector and pass each result or failure to the sinks."""

from __future__ import annotations

import argparse
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.cli import FAILED, _outputs
from engine.cli._interrupts import Interrupts
from engine.cli._progress import Progress
from engine.cli._resume import lacking
from engine.cli._sinks.base import Sink, UndrawnError, drawing
from engine.cli._sources import Feed, require_result
from engine.errors import EngineError, ImageError

if TYPE_CHECKING:
    from engine.cli._tracking import Following
    from engine.detector import Detector
    from engine.inputs import Wanted
    from engine.sources.item import Item


def run_all(
    detector: Detector,
    feed: Feed,
    sinks: Sequence[Sink],
    arguments: argparse.Namespace,
    *,
    about: dict[str, Any],
    progress: Progress,
    keep_pictures: bool = False,
    following: Following | None = None,
    hiding: Mapping[str, Any] | None = None,
) -> int:
    """Run all pictures of the feed and return the exit status; sinks get the results in order.

    `following` tracks objects across results. `hiding` holds arguments of Result.hide().
    """
    tally = _Tally(_outputs.written_to(arguments), is_detector=detector.task == "detector")
    # pictures without a result yet, and the sinks that need it
    waiting: deque[tuple[Item, Sequence[Sink]]] = deque()

    def sources() -> Iterator[Wanted]:
        for item in feed.decoded_by(detector.card_decoder).items():
            wanted = lacking(item, sinks) if arguments.resume else sinks
            if arguments.resume and not wanted:
                tally.earlier += 1
                progress.skip()
            else:
                waiting.append((item, wanted))
                yield item.source

    stream = detector.stream(
        _Stoppable(sources(), feed.stopped.set),
        on_error="yield",
        workers=arguments.workers,
        keep_pictures=keep_pictures,
        expand=False,
    )

    def report_interrupt() -> None:
        progress.print_stderr(tally.interrupted(have_begun=outputs.have_begun))

    progress.start(feed.total)
    interrupts = Interrupts()
    outputs = _Outputs(sinks, about, detector.labels, progress, interrupts)
    with interrupts, outputs.complete(report_interrupt), closing(stream) as outcomes:
        if arguments.resume:  # checks what the outputs lack while the first pictures run
            outputs.begin()
        first = start = time.perf_counter()
        for outcome in outcomes:
            item, wanted = waiting.popleft()
            milliseconds = (time.perf_counter() - start) * 1e3
            outputs.begin()
            with interrupts.deferred():
                if hiding:  # before boxes without an identity are dropped
                    outcome = _hidden(item, outcome, hiding)
                if isinstance(outcome, ImageError):
                    tally.fail(item, outcome)
                    progress.print_stderr(f"Error: {outcome}")
                    if following:
                        following.fail(item)
                else:
                    if following:
                        outcome = following.take(item, outcome)
                    tally.take(item, outcome)
                undrawn = list(_write(wanted, item, outcome, milliseconds))
                if undrawn and not isinstance(outcome, ImageError):
                    tally.failures[_UNDRAWN] += 1
                for error in undrawn:
                    progress.print_stderr(f"Error: {error}")
            progress.step()
            if arguments.fail_fast and tally.has_failed:
                _cut_short(sinks)
                break
            start = time.perf_counter()
        seconds = time.perf_counter() - first
        if tally.written_to and not (arguments.resume or tally.has_results):
            require_result(feed)
        outputs.begin()
    for line in tally.problems():
        progress.print_stderr(line)
    if not arguments.quiet:
        for line in tally.summary(seconds, with_tiles=detector.settings.tiles is not None):
            progress.print_stderr(line)
    return FAILED if tally.has_failed else 0


def _hidden(item: Item, outcome: Any, hiding: Mapping[str, Any]) -> Any:
    """Hide classes in a picture; return an error without the picture if memory runs out."""
    try:
        with drawing("--blur or --pixelate", item.name):
            if not isinstance(outcome, ImageError):
                return outcome.hide(**hiding)
            if outcome.result is not None:
                outcome.result = outcome.result.hide(**hiding)
            return outcome
    except UndrawnError as error:
        return error


def _write(
    sinks: Sequence[Sink], item: Item, outcome: Any, milliseconds: float
) -> Iterator[UndrawnError]:
    """Pass a result or an error to the sinks; yield the errors of drawing."""
    for sink in sinks:
        try:
            if isinstance(outcome, ImageError):
                sink.fail(item, outcome)
            else:
                sink.take(item, outcome, milliseconds)
        except UndrawnError as error:
            yield error


# The reasons why pictures failed, in the order in which the summary lists them.
_UNREAD = "{} could not be read"
_TOO_MANY_TILES = "{} would be cut into too many tiles"
_OVERFLOW = "in {} the network's values overflow"
_UNDRAWN = "{} could not be drawn"


@dataclass
class _Tally:
    """The counts of a run, and the lines that report them."""

    written_to: Sequence[str]  # names of the outputs
    is_detector: bool
    earlier: int = 0  # pictures that an earlier run completed
    pictures: int = 0
    results: int = 0  # pictures with a result
    failures: Counter[str] = field(default_factory=Counter)  # failed pictures by reason
    failed_sources: int = 0  # folders, videos and others that lack some or all pictures
    boxes: int = 0
    with_boxes: int = 0  # pictures with boxes

    def take(self, item: Item, outcome: object) -> None:
        found = len(outcome) if isinstance(outcome, Sized) else 0
        self.pictures += item.is_picture
        self.results += item.is_picture
        self.boxes += found
        self.with_boxes += found > 0

    def fail(self, item: Item, error: ImageError) -> None:
        self.pictures += item.is_picture
        if item.is_picture:
            self.failures[_kind_of(error)] += 1
        self.failed_sources += not item.is_picture

    @property
    def has_failed(self) -> bool:
        return bool(self._failed or self.failed_sources)

    @property
    def has_results(self) -> bool:
        return self.results > 0

    def interrupted(self, *, have_begun: bool) -> str:
        """Return how far the outputs go, because they may look like those of a complete run."""
        where = f"; results of these are in {', '.join(self.written_to)}" if self.written_to else ""
        if self.written_to and not have_begun:
            where = ", so no output is written and none is replaced"
        return f"interrupted: {self._pictures} done{self._before}{where}"

    def problems(self) -> Iterator[str]:
        for kind in (_UNREAD, _TOO_MANY_TILES, _OVERFLOW, _UNDRAWN):
            if count := self.failures[kind]:
                yield kind.format(f"{count} of {self.pictures} pictures")
        if self.failed_sources:
            what = "source has" if self.failed_sources == 1 else "sources have"
            yield f"{self.failed_sources} {what} no pictures or could not be read to the end"

    def summary(self, seconds: float, *, with_tiles: bool) -> Iterator[str]:
        """Yield the summary of a run of several pictures, and a hint if nothing was found."""
        where = f": {', '.join(self.written_to)}" if self.written_to else ""
        if self.earlier and not self.pictures:
            yield f"nothing left to do{self._before}{where}"
        elif self.pictures + self.earlier > 1:
            found = f", {self.boxes} boxes in {self.with_boxes}" if self.is_detector else ""
            rate = f"{self.pictures / seconds:.1f} per second"
            counts = f"{self._pictures}{found}, {self._failed} failed"
            yield f"{counts}, {rate}{self._before}{where}"
        if self.is_detector and self.has_results and not self.boxes:
            tiles = "" if with_tiles else "--tiles auto for small objects, "
            yield f"Nothing found. Try --threshold 0.1, {tiles}or another --model"

    @property
    def _failed(self) -> int:
        return sum(self.failures.values())

    @property
    def _pictures(self) -> str:
        return f"{self.pictures} picture{'s' * (self.pictures != 1)}"

    @property
    def _before(self) -> str:
        return f", {self.earlier} done before" if self.earlier else ""


def _kind_of(error: ImageError) -> str:
    from engine.inputs import TooManyTilesError

    if isinstance(error, TooManyTilesError):
        return _TOO_MANY_TILES
    if isinstance(error, UndrawnError):
        return _UNDRAWN
    return _UNREAD if error.result is None else _OVERFLOW


class _Stoppable:
    """An iterator that can be stopped while it waits for a camera."""

    def __init__(self, pictures: Iterator[Wanted], stop: Callable[[], None]) -> None:
        self._pictures = pictures
        self.stop = stop

    def __iter__(self) -> Iterator[Wanted]:
        return self._pictures


@dataclass(eq=False)
class _Outputs:
    """The sinks of a run, none of which changes a file before the first picture is done."""

    sinks: Sequence[Sink]
    about: dict[str, Any]
    labels: Sequence[str]
    progress: Progress
    interrupts: Interrupts
    have_begun: bool = field(default=False, init=False)
    _started: list[Sink] = field(default_factory=list, init=False)

    def begin(self) -> None:
        """Start the sinks, once."""
        if self.have_begun:
            return
        self.have_begun = True
        with self.interrupts.deferred():
            for sink in self.sinks:
                sink.begin(self.about, self.labels)
                self._started.append(sink)

    @contextmanager
    def complete(self, report_interrupt: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Complete the sinks after the run or an interrupt; discard them after an error.

        `report_interrupt` is called once they are complete after an interrupt.
        """
        try:
            for sink in self.sinks:  # before any changes a file: a refused run changes none
                sink.lock()
            try:
                yield
            except KeyboardInterrupt:  # the usual way to stop a camera
                try:
                    with self.interrupts.deferred():
                        _cut_short(self._started)
                    _finish(self._started, self.progress, self.interrupts)
                except EngineError as error:  # the run still ended because of the interrupt
                    self.progress.print_stderr(f"Error: {error}")
                report_interrupt()
                raise
            _finish(self._started, self.progress, self.interrupts)
        except BaseException:
            for sink in self.sinks:
                sink.discard()
            raise
        finally:
            self.progress.stop()


def _cut_short(sinks: Sequence[Sink]) -> None:
    for sink in sinks:
        sink.cut_short()


def _finish(sinks: Sequence[Sink], progress: Progress, interrupts: Interrupts) -> None:
    """Complete every sink, even if another one fails; then raise the first error."""
    failures: list[EngineError] = []
    with interrupts.deferred():
        for number, sink in enumerate(sinks, start=1):
            try:
                sink.finish()
            except EngineError as error:
                failures.append(error)
                _cut_short(sinks[number:])
        for other in failures[1:]:
            progress.print_stderr(f"Error: {other}")
        if failures:
            raise failures[0]
