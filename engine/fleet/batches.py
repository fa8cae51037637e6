"""The pictures in a batch of a Ray dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from engine.errors import ImageError, InputError
from engine.fleet.lazy_pictures import open_lazily
from engine.inputs import Wanted
from engine.sources.archive import NamedBytes

# Ray's columns for file contents, decoded pictures, WebDataset's files by extension, file names and
# plain items
COLUMNS = ("bytes", "image", "jpg", "jpeg", "png", "webp", "path", "item")
_NAMES = ("path", "__key__")  # columns of picture names; the second is WebDataset's


def extract_pictures(batch: Any, column: str | None = None) -> list[tuple[str | None, Wanted]]:
    """Return the name and the picture of each row of a batch in any of Ray's batch formats.

    The pictures are in `column`, or else in the first of COLUMNS that exists; the names are in the
    column `path`.
    """
    if isinstance(batch, pa.Table):
        from ray.data.block import BlockAccessor

        batch = BlockAccessor.for_block(batch).to_batch_format("numpy")
    values = list(batch[picture_column(list(batch), column)])
    name_column = next((each for each in _NAMES if each in batch), None)
    names = [None] * len(values) if name_column is None else list(batch[name_column])
    # pandas has NaN in place of a missing text
    names = [each if isinstance(each, str) else None for each in names]
    return [to_picture(value, name) for value, name in zip(values, names, strict=True)]


def with_other_columns(results: pa.Table, batch: Any, column: str | None = None) -> pa.Table:
    """Return the results with the columns of the batch that are neither pictures nor names."""
    columns = batch.column_names if isinstance(batch, pa.Table) else list(batch)
    left_out = (picture_column(columns, column), "path")
    kept = [each for each in columns if each not in left_out]
    if not kept:
        return results
    if not isinstance(batch, pa.Table):
        from ray.data.block import BlockAccessor

        others = batch[kept] if hasattr(batch, "columns") else {each: batch[each] for each in kept}
        batch = BlockAccessor.for_block(BlockAccessor.batch_to_block(others)).to_arrow()
    for name in kept:
        own = f"input_{name}" if name in results.column_names else name
        results = results.append_column(own, batch[name])
    return results


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
        value = str(value)  # NumPy's strings look like arrays
        return name or value, open_lazily(value)
    if isinstance(value, bytes) and name:
        return name, NamedBytes(name, value)
    return name, value
