"""--csv: a row for each box, or for each of the best classes of a picture."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from engine.cli._output_files import Existing
from engine.cli._sinks.base import Sink
from engine.cli._sinks.earlier_lines import EarlierLines, Key, Line
from engine.cli._sinks.text_output import TextOutput
from engine.errors import ImageError
from engine.files.naming import printable
from engine.sources.item import Item
from engine.vision import serialize

_NUMBERS = re.compile(r"-?[0-9.]+(e-?[0-9]+)?( -?[0-9.]+(e-?[0-9]+)?)+")  # such as corners
_ESCAPE = re.compile(r"\\([nrt\\]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_CLASS_COLUMNS = ("path", "rank", "class_id", "label", "score")
_FRAME, _ERROR = "frame", "error"


class BoxRows(Sink):
    """A row for each box, written as soon as its picture is done; `-` is stdout.

    With `all_pictures` a picture without boxes has a row as well, and one that cannot be read has a
    row with its error.
    """

    option = "--csv"
    dialect: ClassVar[dict[str, Any]] = {"lineterminator": "\n"}
    _COLUMNS: tuple[str, ...] = serialize.CSV_COLUMNS

    def __init__(
        self,
        path: str,
        more: Sequence[str] = (),
        *,
        existing: Existing,
        all_pictures: bool = False,
    ) -> None:
        """Create the sink; `more` are the columns of identities and texts, if results have them."""
        self._all_pictures = all_pictures
        self._of_rows = (*self._COLUMNS, *more)
        self._columns = (*self._of_rows, _FRAME, *[_ERROR] * all_pictures)
        self._out = TextOutput(path, existing=existing, incremental=True)
        self.is_stdout = self._out.is_stdout
        self._earlier: EarlierLines | None = None
        self._replaces_last = True  # whether to replace the rows of the last picture
        self._is_past_last = False  # whether pictures now come after all existing rows
        if existing == "resume" and not self.is_stdout:
            head = self._text([self._columns]).rstrip("\n")
            self._earlier = EarlierLines.read(
                *(self.option, Path(path), self._parse),
                head=head,
                starts=(head,),
                has_groups=True,
            )
            self._is_past_last = self._earlier is None or self._earlier.last is None

    def lacks(self, item: Item) -> bool | None:
        if self.is_stdout:
            return None
        if self._earlier is None:
            return True
        key = _key_of(item)
        if self._earlier.may_lack(key):
            self._is_past_last = True
            return True if self._earlier.is_torn else None  # complete if it is in other outputs
        if self._earlier.has(key):
            return False
        return True if self._all_pictures else None

    def misses(self, item: Item, found: int | None) -> bool | None:
        if self._earlier is None:
            return None
        if found is None:  # rows may be missing at the end, and no other output knows
            return True if self._is_past_last else None
        rows = max(found, 1) if self._all_pictures else found
        key = _key_of(item)
        is_missing = (self._earlier.objects_in(key) or 0) < rows
        if self._earlier.is_last(key) and not is_missing:
            self._replaces_last = False
        return is_missing

    def lock(self) -> None:
        if self._earlier is None:
            self._out.lock()
        else:
            self._earlier.check()

    def begin(self, about: dict[str, Any], labels: Sequence[str]) -> None:
        size = 0
        if self._earlier is not None:
            self._earlier.remove_failures()
            size = self._earlier.size
        self._out.open(keep=size)
        if not size:
            self._out.write(self._text([self._columns]), is_result=False)

    def take(self, item: Item, outcome: Any, milliseconds: float) -> None:
        path = _key_of(item)[0]
        rows = [[path, *map(_cell, row[1:])] for row in self._rows(outcome)]
        if self._all_pictures and not rows:
            rows = [self._row_without_results(item)]
        self._write(item, ([*row, _frame_of(item), *[""] * self._all_pictures] for row in rows))

    def fail(self, item: Item, error: ImageError) -> None:
        if self._all_pictures:
            row = [*self._row_without_results(item), _frame_of(item), _neutral(str(error))]
            self._write(item, [row], is_result=False)

    def finish(self) -> None:
        self._out.keep()
        if self._earlier is not None:
            self._earlier.warn_of_others()

    def discard(self) -> None:
        self._out.discard()

    def _rows(self, outcome: Any) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = outcome.to_csv()
        return [row[: len(self._of_rows)] for row in rows]  # frames have one more column

    def _row_without_results(self, item: Item) -> list[object]:
        return [_key_of(item)[0], *[""] * (len(self._of_rows) - 1)]

    def _write(
        self, item: Item, rows: Iterable[Iterable[object]], *, is_result: bool = True
    ) -> None:
        text = self._text(rows)
        is_last = self._earlier is not None and self._earlier.is_last(_key_of(item))
        if self._earlier is not None and is_last and self._replaces_last:
            self._out.replace(self._earlier.last_start, self._earlier.size, text)
            self._replaces_last = False
        else:
            self._out.write(text, is_result=is_result)

    def _text(self, rows: Iterable[Iterable[object]]) -> str:
        out = io.StringIO()
        csv.writer(out, **self.dialect).writerows(rows)
        return out.getvalue()

    def _parse(self, line: str) -> Line:
        (row,) = csv.reader([line], **self.dialect)
        cells = dict(zip(self._columns, row, strict=True))
        frame = int(cells[_FRAME]) if cells[_FRAME] else None
        return Line((cells["path"], frame), 1, has_failed=bool(cells.get(_ERROR)))


def _key_of(item: Item) -> Key:
    name = item.frame.video if item.frame else item.name
    return _cell_of(name), item.frame.number if item.frame else None


def _frame_of(item: Item) -> int | str:
    return item.frame.number if item.frame else ""


def _cell_of(name: str) -> str:
    """Return the cell for a file name, in which a backslash may separate folders."""
    return str(_neutral(name) if os.sep == "\\" else _cell(name))


def _cell(value: object) -> object:
    """Return the cell for a value; different texts give different cells.

    A backslash is doubled if it could be taken for an escape.
    """
    if isinstance(value, str) and (not value.isprintable() or _ESCAPE.search(value)):
        value = value.replace("\\", 2 * "\\")
    return _neutral(value)


def _neutral(value: object) -> object:
    """Escape control characters, and prevent CSV injection into spreadsheets (OWASP)."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    is_formula = value.lstrip("'").startswith(_FORMULA_STARTS) and not _NUMBERS.fullmatch(value)
    return f"'{text}" if is_formula else text


class ClassRows(BoxRows):
    _COLUMNS = _CLASS_COLUMNS

    def _rows(self, outcome: Any) -> list[tuple[object, ...]]:
        return [
            (outcome.path or "", rank, best.class_id, best.label, serialize.score(best.score))
            for rank, best in enumerate(outcome, start=1)
        ]
