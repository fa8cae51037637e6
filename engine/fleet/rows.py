"""Results as a PyArrow table with one row per picture, and as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from engine.errors import ImageError
from engine.files.naming import escaped_bytes
from engine.vision import serialize
from engine.vision.classification import Classification
from engine.vision.result import Result

# Boxes are left, top, right, bottom in pixels. All columns but path are null if there is an error.
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


# Extra columns of detectors that read codes: null for a box whose code was not read.
CODE_SCHEMA = pa.schema(
    {
        "texts": pa.list_(pa.string()),
        "formats": pa.list_(pa.string()),
        "corners": pa.list_(pa.list_(pa.float32())),  # x and y of four points
    }
)

# The same for classifiers: the best classes, the best one first.
SCHEMA_OF_CLASSES = pa.schema([each for each in SCHEMA if each.name != "boxes"])


class Tally(NamedTuple):
    """Counts of pictures and boxes."""

    pictures: int = 0
    boxes: int = 0
    pictures_with_boxes: int = 0
    failed_pictures: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(*map(sum, zip(self, other, strict=True)))


def table(
    paths: Sequence[str | None],
    outcomes: Sequence[Result | ImageError],
    *,
    has_codes: bool = False,
) -> pa.Table:
    """Return a table with a row for each picture; `paths` are their names.

    With `has_codes` it has the columns of CODE_SCHEMA, too.
    """
    results = [each for each in outcomes if not isinstance(each, ImageError)]
    is_failed = pa.array([isinstance(each, ImageError) for each in outcomes], pa.bool_())
    counts = [0 if isinstance(each, ImageError) else len(each) for each in outcomes]
    starts = pa.array(np.cumsum([0, *counts]), pa.int32())

    def lists_of(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(starts, values, mask=is_failed)

    edges = np.concatenate([np.empty((0, 4), np.float32), *(each.boxes for each in results)])
    corners = pa.array(np.arange(0, edges.size + 1, 4), pa.int32())
    scores = np.concatenate([np.empty(0, np.float32), *(each.scores for each in results)])
    class_ids = np.concatenate([np.empty(0, np.int64), *(each.class_ids for each in results)])
    labels = [label for each in results for label in each.labels]
    errors = [
        escaped_bytes(str(each)) if isinstance(each, ImageError) else None for each in outcomes
    ]
    columns = [
        pa.array([path if path is None else escaped_bytes(path) for path in paths], pa.string()),
        lists_of(pa.ListArray.from_arrays(corners, pa.array(edges.ravel()))),
        lists_of(pa.array(scores)),
        lists_of(pa.array(class_ids)),
        lists_of(pa.array([escaped_bytes(each) for each in labels], pa.string())),
        pa.array(errors, pa.string()),
    ]
    made = pa.Table.from_arrays(columns, schema=SCHEMA)
    if has_codes:
        codes = [code for each in results for code in each.codes or [None] * len(each)]
        said = (
            [code and escaped_bytes(code.text) for code in codes],
            [code and code.format for code in codes],
            [code and [value for point in code.corners for value in point] for code in codes],
        )
        for column, values in zip(CODE_SCHEMA, said, strict=True):
            made = made.append_column(column, lists_of(pa.array(values, column.type.value_type)))
    return made


def without_missing_codes(found: pa.Table) -> pa.Table:
    """Drop the columns of CODE_SCHEMA from a table in which no picture has them."""
    missing = [each for each in CODE_SCHEMA.names if each in found.column_names]
    has_any = any(found[each].null_count < len(found) for each in missing)
    return found if has_any else found.drop_columns(missing)


def table_of_classes(
    paths: Sequence[str | None], outcomes: Sequence[Classification | ImageError]
) -> pa.Table:
    """Return a classifier's table with a row for each picture."""
    rows: list[dict[str, object]] = []
    for path, outcome in zip(paths, outcomes, strict=True):
        row: dict[str, object] = {"path": path if path is None else escaped_bytes(path)}
        if isinstance(outcome, ImageError):
            row["error"] = escaped_bytes(str(outcome))
        else:
            best = outcome.top()
            row["scores"] = [each.score for each in best]
            row["class_ids"] = [each.class_id for each in best]
            row["labels"] = [escaped_bytes(each.label) for each in best]
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA_OF_CLASSES)


def problems(rows: pa.Table, limit: int) -> list[str]:
    """Return the first errors in a table of results."""
    return [str(each) for each in rows["error"].drop_null().slice(0, limit).to_pylist()]


def tally(rows: pa.Table) -> Tally:
    """Return the counts of a table of results."""
    counts = pyarrow.compute.list_value_length(rows["scores"]).to_numpy(zero_copy_only=False)
    counts = np.nan_to_num(counts.astype(np.float64)).astype(np.int64)
    failed = len(rows) - rows["error"].null_count
    return Tally(len(rows), int(counts.sum()), int(np.count_nonzero(counts)), failed)


def are_whole(rows: pa.Table, pictures: int) -> bool:
    """Return whether the table has a result or an error for each of this number of pictures."""
    if len(rows) != pictures or not {*SCHEMA_OF_CLASSES.names} <= {*rows.column_names}:
        return False
    has_scores, has_error = (pyarrow.compute.is_valid(rows[name]) for name in ("scores", "error"))
    return not pictures or bool(pyarrow.compute.all(pyarrow.compute.xor(has_scores, has_error)))


def json_lines(rows: pa.Table) -> bytes:
    """Return one JSON object per line; a number that is not finite becomes null."""
    return "".join(serialize.json_text(_finite(row)) + "\n" for row in rows.to_pylist()).encode()


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    if isinstance(value, float):  # the shortest text for this float32
        return serialize.json_number(float(str(np.float32(value))))
    return value
