"""The pictures in a batch of a dataset, whatever columns they are in."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from engine.errors import ImageError, InputError
from engine.fleet.opening import opened
from engine.inputs import Wanted

# what Ray calls the contents of files, decoded pictures, names, and items without a name
COLUMNS = ("bytes", "image", "path", "item")


class NamedBytes(BytesIO):
    """A file in memory whose errors tell its name."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(content)
        self.name = name


def pictures(batch: Any, column: str | None = None) -> list[tuple[str | None, Wanted]]:
    """Name and picture of each row of a batch, in any form that Ray has for batches.

    They are in `column`, else in the first there is of COLUMNS; names are in the column `path`.
    """
    if isinstance(batch, pa.Table):
        from ray.data.block import BlockAccessor

        batch = BlockAccessor.for_block(batch).to_batch_format("numpy")
    chosen = column_of(list(batch), column)
    values = list(batch[chosen])
    names = list(batch["path"]) if "path" in batch else [None] * len(values)
    return [picture(value, name) for value, name in zip(values, names, strict=True)]


def column_of(columns: Sequence[str], column: str | None = None) -> str:
    wanted = COLUMNS if column is None else (column,)
    chosen = next((each for each in wanted if each in columns), None)
    if chosen is None:
        raise InputError(f"column: expected {' or '.join(wanted)}, got {', '.join(columns)}")
    return chosen


def picture(value: Any, name: str | None) -> tuple[str | None, Wanted]:
    """Of a row: a path, an address, encoded bytes, an array, or what Hugging Face makes of them."""
    if isinstance(value, dict):
        name = name or value.get("path")
        value = value.get("bytes") or value.get("path")
    if value is None:
        return name, ImageError(f"{name or 'picture'}: picture: is missing")
    if isinstance(value, str):
        return name or value, opened(value)
    if isinstance(value, bytes) and name:
        return name, NamedBytes(name, value)
    return name, value
