"""The pictures in a batch of a Ray dataset."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from engine.errors import ImageError, InputError
from engine.fleet.lazy_pictures import open_lazily
from engine.inputs import Wanted

# Ray's columns for file contents, decoded pictures, file names and plain items
COLUMNS = ("bytes", "image", "path", "item")


class NamedBytes(BytesIO):
    """A file in memory whose name appears in error messages."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(content)
        self.name = name


def extract_pictures(batch: Any, column: str | None = None) -> list[tuple[str | None, Wanted]]:
    """Return the name and the picture of each row of a batch in any of Ray's batch formats.

    The pictures are in `column`, or else in the first of COLUMNS that exists; the names are in the
    column `path`.
    """
    if isinstance(batch, pa.Table):
        from ray.data.block import BlockAccessor

        batch = BlockAccessor.for_block(batch).to_batch_format("numpy")
    values = list(batch[picture_column(list(batch), column)])
    names = list(batch["path"]) if "path" in batch else [None] * len(values)
    return [to_picture(value, name) for value, name in zip(values, names, strict=True)]


def picture_column(columns: Sequence[str], column: str | None = None) -> str:
    """Return the column that holds the pictures."""
    wanted = COLUMNS if column is None else (column,)
    chosen = next((each for each in wanted if each in columns), None)
    if chosen is None:
        raise InputError(f"column: expected {' or '.join(wanted)}, got {', '.join(columns)}")
    return chosen


def to_picture(value: Any, name: str | None) -> tuple[str | None, Wanted]:
    """Return the name and the picture of a value.

    A value is a path, a URL, encoded bytes, an array, or a dict of a Hugging Face dataset.
    """
    if isinstance(value, dict):
        name = name or value.get("path")
        value = value.get("bytes") or value.get("path")
    if value is None:
        return name, ImageError(f"{name or 'picture'}: picture: missing")
    if isinstance(value, str):
        return name or value, open_lazily(value)
    if isinstance(value, bytes) and name:
        return name, NamedBytes(name, value)
    return name, value
