"""Draw docs/speed.png from the rows of a card: python -m tools.draw_speeds RESULTS.json

A bar shows the engine's speed, in pictures a second, as a multiple of the peer's.
tools/write_benchmarks.py draws it as well.
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
from tools.bench_cuda import GRAPH

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "speed.png"
_BATCHES = (1, 8)


def draw(rows: bytes) -> bytes:
    """Return the picture, which keeps the hash of its rows for a test."""
    document = json.loads(rows)
    peer = document["peer"].partition(" ")[0]
    content = chart.png(
        f"{document['card']}: speed relative to {peer}",
        f"forward passes; {document['peer']}, replayed CUDA graph; {document['date']}",
        speed_ups(document["rows"]),
        reference=(1.0, peer),
    )
    signed = BytesIO()
    drawn_from = PngInfo()
    drawn_from.add_text("rows", hashlib.sha256(rows).hexdigest())
    Image.open(BytesIO(content)).save(signed, "PNG", optimize=True, pnginfo=drawn_from)
    return signed.getvalue()


def speed_ups(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the peer's time divided by the engine's, by bar and then by network, in order."""
    measured = {row["precision"] for row in rows}
    precisions = ("float32" if "float32" in measured else "tf32", "float16")
    values: dict[str, dict[str, float]] = {}
    for row in sorted(rows, key=lambda row: (row["precision"] == "float16", row["batch"])):
        peer_ms = row["peers_ms"].get(GRAPH)
        if peer_ms and row["batch"] in _BATCHES and row["precision"] in precisions:
            bars = values.setdefault(f"{row['precision']}, batch {row['batch']}", {})
            bars[row["network"]] = peer_ms / row["engine_ms"]
    return {bar: dict(sorted(groups.items())) for bar, groups in values.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--output", type=Path, default=PICTURE)
    arguments = parser.parse_args()
    arguments.output.write_bytes(draw(arguments.results.read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
