"""Results as a data frame of pandas or polars."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

from engine.errors import InputError, suggest

Library: TypeAlias = Literal["pandas", "polars"]

_LIBRARIES = ("pandas", "polars")


def data_frame(
    rows: list[tuple[object, ...]], headings: Sequence[str], library: Library | None = None
) -> Any:
    """Return rows under headings; the default is the first library installed."""
    if library is not None and library not in _LIBRARIES:
        hint = suggest(library, _LIBRARIES)
        raise InputError(f"library: expected pandas or polars, got {library!r}.{hint}")
    wanted = _LIBRARIES if library is None else (library,)
    found = next((name for name in wanted if find_spec(name) is not None), None)
    if found is None:
        raise InputError(f"{' or '.join(wanted)}: is not installed. Run: pip install {wanted[0]}")
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in headings]
    return import_module(found).DataFrame(dict(zip(headings, columns, strict=True)))
