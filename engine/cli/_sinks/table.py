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
        rows = _boxes(outcome) if isinstance(outcome, Result) else _classes(outcome)
        self._print("\n".join([title, *(align(rows) if rows else ["  nothing found"])]))


def _boxes(result: Result) -> list[list[Cell]]:
    return [["  " + shown(found.label), found.score, *map(round, found.box)] for found in result]


def _classes(result: Classification) -> list[list[Cell]]:
    return [["  " + shown(best.label), best.score] for best in result]
