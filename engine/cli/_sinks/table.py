"""Results as tables on stdout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.cli._sinks.base import Sink
from engine.cli._table import Cell, align
from engine.files.naming import shown
from engine.sources.item import Item
from engine.vision.classification import Classification
from engine.vision.result import Result


class Table(Sink):
    def __init__(self, print_line: Callable[[str], None]) -> None:
        self._print = print_line

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        width, height = outcome.size
        title = f"{shown(item.name)}  {width} x {height}  {milliseconds:.1f} ms"
        if isinstance(outcome, Result):
            headings, rows = _OF_BOXES, _boxes(outcome)
        else:
            headings, rows = _OF_CLASSES, _classes(outcome)
        lines = align(rows, headings=headings) if rows else ["  nothing found"]
        self._print("\n".join([title, *lines]))


_OF_CLASSES = ["  class", "score"]
_OF_BOXES = [*_OF_CLASSES, "left", "top", "right", "bottom"]


def _boxes(result: Result) -> list[list[Cell]]:
    return [["  " + shown(found.label), found.score, *map(round, found.box)] for found in result]


def _classes(result: Classification) -> list[list[Cell]]:
    return [["  " + shown(best.label), best.score] for best in result]
