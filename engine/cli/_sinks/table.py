"""Results as tables on stdout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.cli._sinks.base import Sink
from engine.cli._table import Cell, align
from engine.cli._tracking import sequence_of_item
from engine.files.naming import shown, shown_text
from engine.sources.item import Item
from engine.vision.classification import Classification
from engine.vision.result import Result


class Table(Sink):
    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print = print_line
        # the latest counts and the name of each video or folder of pictures
        self._counts: dict[str, tuple[str, Mapping[str, Any]]] = {}

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        width, height = outcome.size
        title = f"{shown(item.name)}  {width} x {height}  {milliseconds:.1f} ms"
        if isinstance(outcome, Result):
            has_tracks = outcome.track_ids is not None
            has_texts = outcome.codes is not None
            headings = [*_OF_CLASSES[:1], *["track"] * has_tracks, *_OF_BOXES[1:]]
            headings += ["format", "text"] * has_texts
            rows = _boxes(outcome)
            if outcome.counts is not None:
                sequence = sequence_of_item(item)
                name = item.frame.video if item.frame else sequence.name
                self._counts[sequence.key] = name, outcome.counts
        else:
            headings, rows = _OF_CLASSES, _classes(outcome)
        lines = align(rows, headings=headings) if rows else ["  nothing found"]
        self._print("\n".join([title, *lines]))

    def finish(self) -> None:
        for name, counts in self._counts.values():
            rows: list[list[Cell]] = [
                [f"  {shown(each['name'])}: {key}", _count_text(each[key])]
                for each in (*counts["lines"], *counts["zones"])
                for key in each
                if key != "name"
            ]
            self._print("\n".join([shown(name), *align(rows)]))


_OF_CLASSES = ["  class", "score"]
_OF_BOXES = [*_OF_CLASSES, "left", "top", "right", "bottom"]


def _boxes(result: Result) -> list[list[Cell]]:
    return [
        [
            "  " + shown(found.label),
            *([] if found.track_id is None else [found.track_id]),
            found.score,
            *map(round, found.box),
            *([] if result.codes is None else [found.format or "", shown_text(found.text or "")]),
        ]
        for found in result
    ]


def _count_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {shown(label)}" for label, count in counts.items()) or "0"


def _classes(result: Classification) -> list[list[Cell]]:
    return [["  " + shown(best.label), best.score] for best in result]
