"""docs/speed.png: drawn from the rows that are committed, which docs/benchmarks.md repeats."""

import hashlib
import json
from pathlib import Path

import pytest
from PIL import Image

from tools import draw_speeds


def test_the_picture_is_drawn_from_the_rows_as_they_are():
    rows = draw_speeds.ROWS.read_bytes()
    with Image.open(draw_speeds.PICTURE) as picture:
        assert picture.text["rows"] == hashlib.sha256(rows).hexdigest(), (
            "python tools/draw_speeds.py"
        )
        assert picture.size[0] > 600


def test_a_bar_is_the_peers_time_by_ours():
    row = {"net": "b", "size": 416, "batch": 1, "precision": "float16", "ms": 2.0, "peer_ms": 5.0}
    rows = [row, {**row, "net": "a", "ms": 1.0}, {**row, "batch": 64}, {**row, "peer_ms": None}]
    assert draw_speeds.ratios(rows) == {"float16, batch 1": {"a@416": 5.0, "b@416": 2.5}}
    assert list(draw_speeds.ratios(rows)["float16, batch 1"]) == ["a@416", "b@416"]


TABLES = (Path(__file__).parents[1] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
WITH_PEER = [row for row in json.loads(draw_speeds.ROWS.read_bytes())["rows"] if row["peer_ms"]]


@pytest.mark.parametrize(
    "row", WITH_PEER, ids=lambda row: f"{row['net']}-{row['batch']}-{row['precision']}"
)
def test_the_tables_repeat_the_rows(row):
    section = TABLES[TABLES.index(f"### {row['precision']}\n") :]
    section = section[: section.find("\n### ", 4)]
    images = f"{row['batch'] * 1e3 / row['ms']:,.0f}"
    cells = f"{row['ms']:.3f} | {row['peer_ms']:.3f} | {row['ms'] / row['peer_ms']:.2f} | {images}"
    assert f"| {row['net']}@{row['size']} | {row['batch']} | {cells} |" in section
