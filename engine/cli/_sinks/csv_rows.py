"""--csv: a row for each box, or for each of the best classes of a picture."""

from __future__ import annotations

import csv
from typing import Any

from engine.cli._sinks.base import Sink
from engine.cli._sinks.text_output import TextOutput
from engine.files.naming import escaped
from engine.sources.item import Item
from engine.vision import serialize

_BOX_COLUMNS = (*serialize.CSV_COLUMNS, "frame")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_CLASS_COLUMNS = ("path", "rank", "class_id", "label", "score", "frame")


class BoxRows(Sink):
    """A row for each box, written as soon as its picture is done; `-` is stdout."""

    _COLUMNS: tuple[str, ...] = _BOX_COLUMNS

    def __init__(self, path: str, *, overwrite: bool) -> None:
        self._out = TextOutput(path, overwrite=overwrite, incremental=True)
        self.is_stdout = self._out.is_stdout
        self._writer = csv.writer(self._out, lineterminator="\n")

    def begin(self, about: dict[str, Any]) -> None:
        self._out.open()
        self._writer.writerow(self._COLUMNS)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        number = item.frame.number if item.frame else ""
        for row in self._rows(outcome):
            cells = (_neutral(each) if isinstance(each, str) else each for each in row)
            self._writer.writerow((*cells, number))

    def finish(self) -> None:
        self._out.keep()

    def discard(self) -> None:
        self._out.discard()

    def _rows(self, outcome: Any) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = outcome.to_csv()
        return rows


def _neutral(text: str) -> str:
    """Escape control characters, and keep spreadsheets from running a name as a formula (OWASP)."""
    printable = escaped(text)
    return f"'{printable}" if text.startswith(_FORMULA_STARTS) else printable


class ClassRows(BoxRows):
    _COLUMNS = _CLASS_COLUMNS

    def _rows(self, outcome: Any) -> list[tuple[object, ...]]:
        return [
            (outcome.path or "", rank, best.class_id, best.label, best.score)
            for rank, best in enumerate(outcome, start=1)
        ]
