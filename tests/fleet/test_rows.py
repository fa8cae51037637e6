"""Results and errors as rows, their tally, and lines of JSON."""

import json
import re
from dataclasses import replace

import pytest

from tests import needs

pytest.importorskip("pyarrow", reason=needs.advice("pyarrow"))

import numpy as np
import pyarrow as pa

from engine.errors import ImageError
from engine.fleet import rows, shard_files
from engine.fleet.storage import Folder
from engine.vision.code import Code
from engine.vision.result import Result

RANDOM = np.random.default_rng(0)


def result(count):
    return Result(
        *((640, 480), RANDOM.random((count, 4), np.float32), RANDOM.random(count, np.float32)),
        *(RANDOM.integers(0, 3, count), ("cat", "dog")),
    )


OUTCOMES = [result(2), ImageError("b.jpg: picture: missing"), result(0), result(3)]
NAMES = ["a.jpg", "b.jpg", None, "d.jpg"]


def test_row_holds_the_values_of_its_result():
    found = rows.table(NAMES, OUTCOMES)
    assert found.schema == rows.SCHEMA
    for row, name, outcome in zip(found.to_pylist(), NAMES, OUTCOMES, strict=True):
        assert row["path"] == name
        if isinstance(outcome, Result):
            assert row["error"] is None
            assert row["boxes"] == outcome.boxes.tolist()
            assert row["scores"] == outcome.scores.tolist()
            assert row["class_ids"] == outcome.class_ids.tolist()
            assert row["labels"] == outcome.labels
        else:
            assert row["error"] == str(outcome)
            assert (row["boxes"], row["scores"], row["class_ids"], row["labels"]) == (None,) * 4


@pytest.mark.parametrize("outcomes", [[], [OUTCOMES[1]], [OUTCOMES[2]]], ids=len)
def test_tables_without_boxes(outcomes):
    found = rows.table(["x"] * len(outcomes), outcomes)
    assert (found.schema, len(found)) == (rows.SCHEMA, len(outcomes))


def test_tally_counts_pictures_boxes_and_errors():
    assert rows.tally(rows.table(NAMES, OUTCOMES)) == (4, 5, 2, 1)
    assert rows.tally(rows.table([], [])) == (0, 0, 0, 0)
    assert rows.Tally(1, 2, 3, 4).plus(rows.Tally(10, 20, 30, 40)) == (11, 22, 33, 44)


def test_lines_hold_the_same_numbers():
    found = rows.table(NAMES, OUTCOMES)
    lines = [json.loads(line) for line in rows.json_lines(found).splitlines()]
    assert pa.Table.from_pylist(lines, schema=rows.SCHEMA).equals(found)


def test_lines_have_no_digits_that_a_float32_does_not_have():
    (line,) = rows.json_lines(rows.table(["x"], [result(3)])).splitlines()
    numbers = re.findall(rb"[0-9]+\.[0-9]+", line)
    assert len(numbers) == 3 * 5
    assert max(len(each.replace(b".", b"").lstrip(b"0")) for each in numbers) <= 9


def test_lines_are_valid_json_for_non_finite_numbers():
    strange = replace(result(2), scores=np.array([np.nan, np.inf], np.float32))
    (line,) = rows.json_lines(rows.table(["x"], [strange])).splitlines()
    assert json.loads(line)["scores"] == [None, None]


def test_undecodable_bytes_of_a_name_are_escaped():
    name = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    found = rows.table([name], [ImageError(f"{name}: no")])
    assert found["path"].to_pylist() == ["caf\\udce9.jpg"]
    assert found.schema.field("boxes").type == pa.list_(pa.list_(pa.float32()))


def test_texts_are_columns_if_codes_are_read():
    corners = ((1.0, 2.0), (3.0, 2.0), (3.0, 4.0), (1.0, 4.0))
    said = [None, Code("a\udc80\n", "QR Code", corners, b"a\x80\n")]
    read = replace(result(2), codes=said)
    found = rows.table(
        NAMES, [read, *OUTCOMES[1:3], replace(result(1), codes=[None])], has_codes=True
    )
    assert found.schema == pa.schema([*rows.SCHEMA, *rows.CODE_SCHEMA])
    first, failed, empty, last = found.select(["texts", "formats", "corners"]).to_pylist()
    assert first["texts"] == [None, "a\\udc80\n"]
    assert first["formats"] == [None, "QR Code"]
    assert first["corners"] == [None, [1, 2, 3, 2, 3, 4, 1, 4]]
    assert set(failed.values()) == {None}
    assert list(empty.values()) == [[]] * 3
    assert list(last.values()) == [[None]] * 3


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
@pytest.mark.parametrize("has_codes", [True, False])
def test_texts_stay_at_their_boxes_in_a_file(tmp_path, form, has_codes):
    said = [None, Code("b", "QR Code", ((1, 2), (3, 2), (3, 4), (1, 4)), b"b"), None]
    read = replace(result(3), codes=said)
    found = rows.table(NAMES[1:3], [OUTCOMES[1], read], has_codes=has_codes)
    files = shard_files.ShardFiles(Folder(str(tmp_path)), form, "detector")
    files.write(0, found)
    assert files.read(0).schema.names == found.schema.names
    assert files.read(0).to_pylist()[1].get("texts") == ([None, "b", None] if has_codes else None)
