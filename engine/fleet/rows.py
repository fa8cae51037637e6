"""The columns that a picture becomes, as a PyArrow table, and as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from engine.errors import ImageError
from engine.vision import serialize
from engine.vision.result import Result

# boxes are left, top, right, bottom in pixels; all but path are null where there is an error
SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "boxes": pa.list_(pa.list_(pa.float32())),
        "scores": pa.list_(pa.float32()),
        "class_ids": pa.list_(pa.int64()),
        "labels": pa.list_(pa.string()),
        "error": pa.string(),  # why there is no result
    }
)


class Tally(NamedTuple):
    """How many pictures were seen, boxes found, in how many pictures, and pictures broken."""

    seen: int = 0
    boxes: int = 0
    found: int = 0
    broken: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(*map(sum, zip(self, other, strict=True)))


def table(paths: Sequence[str | None], outcomes: Sequence[Result | ImageError]) -> pa.Table:
    """A row for each picture; `paths` are their names."""
    results = [each for each in outcomes if not isinstance(each, ImageError)]
    is_broken = pa.array([isinstance(each, ImageError) for each in outcomes], pa.bool_())
    counts = [0 if isinstance(each, ImageError) else len(each) for each in outcomes]
    starts = pa.array(np.cumsum([0, *counts]), pa.int32())

    def of_results(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(starts, values, mask=is_broken)

    edges = np.concatenate([np.empty((0, 4), np.float32), *(each.boxes for each in results)])
    corners = pa.array(np.arange(0, edges.size + 1, 4), pa.int32())
    scores = np.concatenate([np.empty(0, np.float32), *(each.scores for each in results)])
    class_ids = np.concatenate([np.empty(0, np.int64), *(each.class_ids for each in results)])
    labels = [label for each in results for label in each.labels]
    errors = [_text(str(each)) if isinstance(each, ImageError) else None for each in outcomes]
    columns = [
        pa.array([path if path is None else _text(path) for path in paths], pa.string()),
        of_results(pa.ListArray.from_arrays(corners, pa.array(edges.ravel()))),
        of_results(pa.array(scores)),
        of_results(pa.array(class_ids)),
        of_results(pa.array([_text(each) for each in labels], pa.string())),
        pa.array(errors, pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def tally(found: pa.Table) -> Tally:
    counts = pyarrow.compute.list_value_length(found["scores"]).to_numpy(zero_copy_only=False)
    counts = np.nan_to_num(counts.astype(np.float64)).astype(np.int64)
    broken = len(found) - found["error"].null_count
    return Tally(len(found), int(counts.sum()), int(np.count_nonzero(counts)), broken)


def lines(found: pa.Table) -> bytes:
    """An object a line; a number that is not finite is null."""
    return "".join(serialize.json_text(_finite(row)) + "\n" for row in found.to_pylist()).encode()


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return serialize.json_number(value) if isinstance(value, float) else value


def _text(name: str) -> str:
    """Stray bytes of a file name are escaped, as in all our JSON."""
    return name.encode("utf-8", "backslashreplace").decode()
