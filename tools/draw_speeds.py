"""Draws docs/speed.png from the rows of a card: python tools/draw_speeds.py

A bar says how many pictures the engine does in the time in which the peer does one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.benchmark import chart

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT / "tools" / "results" / "nvidia-h200.json"
PICTURE = ROOT / "docs" / "speed.png"
_BATCHES = (1, 8)
_PRECISIONS = ("float32", "float16")


def draw(rows: bytes) -> bytes:
    document = json.loads(rows)
    peer = document["peer"].partition(" ")[0]
    content = chart.png(
        f"{document['device']}: pictures in the time in which {peer} does one",
        f"forward passes; {document['peer']}; driver {document['driver']}, {document['date']}",
        ratios(document["rows"]),
        level=(1.0, peer),
    )
    signed = BytesIO()
    drawn_from = PngInfo()
    drawn_from.add_text("rows", hashlib.sha256(rows).hexdigest())
    Image.open(BytesIO(content)).save(signed, "PNG", optimize=True, pnginfo=drawn_from)
    return signed.getvalue()


def ratios(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The peer's time by ours; by bar and, in the order of their names, by network."""
    values: dict[str, dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: (row["precision"] == "float16", row["batch"])):
        if row["peer_ms"] and row["batch"] in _BATCHES and row["precision"] in _PRECISIONS:
            bars = values.setdefault(f"{row['precision']}, batch {row['batch']}", {})
            bars[f"{row['net']}@{row['size']}"] = row["peer_ms"] / row["ms"]
    return {bar: dict(sorted(groups.items())) for bar, groups in values.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=PICTURE)
    parser.parse_args().output.write_bytes(draw(ROWS.read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
