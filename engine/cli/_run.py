"""Run pictures through a detector and pass each result or failure to the sinks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.cli import FAILED
from engine.cli._interrupts import Interrupts
from engine.cli._progress import Progress
from engine.cli._resume import lacking
from engine.cli._sinks.base import Sink
from engine.cli._sources import Feed, require_result
from engine.errors import EngineError, ImageError

if TYPE_CHECKING:
    from engine.cli._tracking import Following
    from engine.detector import Detector
    from engine.inputs import Wanted
    from engine.sources.item import Item


_NOTHING_FOUND = "Nothing found. Try --threshold 0.1, {}or another --model"


def run_all(
    detector: Detector,
    feed: Feed,
    sinks: Sequence[Sink],
    *,
    about: dict[str, Any],
    progress: Progress,
    workers: int,
    keep_pictures: bool = False,
    fail_fast: bool = False,
    resume: bool = False,
    written_to: Sequence[str] = (),
    sums_up: bool = False,
    following: Following | None = None,
    hiding: Mapping[str, Any] | None = None,
) -> int:
    """Run all pictures of the feed and return the exit status; sinks get the results in order.

    With `sums_up` a last line sums up a run of several pictures; `written_to` names the outputs in
    this line, and in that of an interrupted run. With `resume` the pictures that the outputs have
    are left out. `following` gives the boxes of results an identity. `hiding` holds arguments of
    Result.hide().
    """
    # pictures that have no result yet, and the sinks that want it
    waiting: deque[tuple[Item, Sequence[Sink]]] = deque()
    earlier = 0  # pictures that an earlier run completed

    def sources() -> Iterator[Wanted]:
        nonlocal earlier
        for item in feed.decoded_by(detector.card_decoder).items():
            wanted = lacking(item, sinks) if resume else sinks
            if resume and not wanted:
                earlier += 1
                progress.skip()
            else:
                waiting.append((item, wanted))
                yield item.source

    count = failures = boxes = with_boxes = 0  # of pictures
    failed_sources = 0  # folders, videos and others that gave no picture, or not all of theirs
    stream = detector.stream(
        _Stoppable(sources(), feed.stopped.set),
        on_error="yield",
        workers=workers,
        keep_pictures=keep_pictures,
        expand=False,
    )

    def report_interrupt() -> None:
        """Say how far the outputs go, because they may look like those of a whole run."""
        done = f"{count} picture{'s' * (count != 1)} done"
        before = f", {earlier} done before" if earlier else ""
        where = f"; results of these are in {', '.join(written_to)}" if written_to else ""
        if written_to and not outputs.have_begun:
            where = ", so no output is written and none is replaced"
        progress.print_stderr(f"interrupted: {done}{before}{where}")

    progress.start(feed.total)
    interrupts = Interrupts()
    outputs = _Outputs(sinks, about, detector.labels, progress, interrupts)
    with interrupts, outputs.complete(report_interrupt), closing(stream) as outcomes:
        if resume:  # which pictures the outputs lack is asked while the first ones run
            outputs.begin()
        first = start = time.perf_counter()
        for outcome in outcomes:
            item, wanted = waiting.popleft()
            milliseconds = (time.perf_counter() - start) * 1e3
            outputs.begin()
            with interrupts.deferred():
                count += item.is_picture
                if isinstance(outcome, ImageError):
                    failures += item.is_picture
                    failed_sources += not item.is_picture
                    progress.print_stderr(f"Error: {outcome}")
                    if following:
                        following.fail(item)
                    for sink in wanted:
                        sink.fail(item, outcome)
                else:
                    if hiding:  # before boxes without an identity are left out
                        outcome = outcome.hide(**hiding)
                    if following:
                        outcome = following.take(item, outcome)
                    found = len(outcome) if isinstance(outcome, Sized) else 0
                    boxes += found
                    with_boxes += found > 0
                    for sink in wanted:
                        sink.take(item, outcome, milliseconds)
            progress.step()
            if fail_fast and (failures or failed_sources):
                _cut_short(sinks)
                break
            start = time.perf_counter()
        seconds = time.perf_counter() - first
        if written_to and not (resume or count > failures):
            require_result(feed)
        outputs.begin()
    if failures:
        progress.print_stderr(f"{failures} of {count} pictures could not be read")
    if failed_sources:
        what = "source has" if failed_sources == 1 else "sources have"
        progress.print_stderr(
            f"{failed_sources} {what} no pictures or could not be read to the end"
        )
    if sums_up:
        where = f": {', '.join(written_to)}" if written_to else ""
        before = f", {earlier} done before" if earlier else ""
        if earlier and not count:
            progress.print_stderr(f"nothing left to do{before}{where}")
        elif count + earlier > 1:
            found_text = f", {boxes} boxes in {with_boxes}" if detector.task == "detector" else ""
            counts = f"{count} picture{'s' * (count != 1)}{found_text}, {failures} failed"
            rate = f"{count / seconds:.1f} per second"
            progress.print_stderr(f"{counts}, {rate}{before}{where}")
        if detector.task == "detector" and count > failures and not boxes:
            tiles = "" if detector.settings.tiles else "--tiles auto for small objects, "
            progress.print_stderr(_NOTHING_FOUND.format(tiles))
    return FAILED if failures or failed_sources else 0


class _Stoppable:
    """An iterator, and what ends it while it waits for a camera."""

    def __init__(self, pictures: Iterator[Wanted], stop: Callable[[], None]) -> None:
        self._pictures = pictures
        self.stop = stop

    def __iter__(self) -> Iterator[Wanted]:
        return self._pictures


@dataclass(eq=False)
class _Outputs:
    """The sinks of a run. None changes a file before the first picture is done."""

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
        """Complete the sinks after the run or an interrupt, discard them after an error.

        `report_interrupt` is called when they are complete after an interrupt.
        """
        try:
            for sink in self.sinks:  # all before one changes a file: a refused run changes none
                sink.lock()
            try:
                yield
            except KeyboardInterrupt:  # the usual way to stop a camera
                try:
                    with self.interrupts.deferred():
                        _cut_short(self._started)
                    _finish(self._started, self.progress, self.interrupts)
                except EngineError as error:  # the interrupt stays the reason for the end
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
