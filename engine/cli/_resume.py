"""Find the outputs of an earlier run that lack a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.cli._sinks.base import Sink
    from engine.sources.item import Item


def lacking(item: Item, sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """Return the outputs to write for a picture, or none if an earlier run completed it.

    Outputs that do not know (crops, a table, rows of boxes) are written before the others, so they
    are complete if the others are.
    """
    is_due = any(sink.is_due(item) for sink in sinks)  # its files are out of date
    shows_more = any(sink.shows_more(item) for sink in sinks)

    def is_stale(sink: Sink) -> bool:
        return (is_due and sink.has_names) or (shows_more and sink.has_pixels)

    answers = [is_stale(sink) or sink.lacks(item) for sink in sinks]
    if None in answers and False in answers:
        telling = [sink for sink in sinks if not is_stale(sink)]
        found = next((each for sink in telling if (each := sink.found(item)) is not None), None)
        answers = [
            sink.misses(item, found) if lacks is None else lacks
            for sink, lacks in zip(sinks, answers, strict=True)
        ]
    if True not in answers and False in answers:
        return ()
    return tuple(sink for sink, lacks in zip(sinks, answers, strict=True) if lacks is not False)
