"""A table of measured figures and their limits, printed row by row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One figure, its limit in words, and whether it is within the limit."""

    part: str
    what: str
    value: float
    unit: str
    should: str
    is_good: bool


class Figures:
    """Collected rows, each of which is printed at once."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(
        self,
        part: str,
        what: str,
        value: float,
        unit: str,
        should: str = "",
        is_good: bool = True,
    ) -> None:
        self.rows.append(Row(part, what, value, unit, should, bool(is_good)))
        judged = "" if not should else f"{should:22s} {'ok' if is_good else 'NO'}"
        print(f"{part:9s} {what:52s} {value:12.3f} {unit:9s} {judged}", flush=True)

    @property
    def are_good(self) -> bool:
        return all(row.is_good for row in self.rows)

    def as_dicts(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.rows]
