"""docs/speed.png: drawn from the rows that docs/benchmarks.md shows."""

import hashlib

from PIL import Image

from tests.test_write_benchmarks import results_of
from tools import draw_speeds
from tools.bench_cuda import COMPILE, GRAPH


def test_picture_is_drawn_from_the_committed_rows():
    rows = results_of("benchmarks.md").read_bytes()
    with Image.open(draw_speeds.PICTURE) as picture:
        assert picture.text["rows"] == hashlib.sha256(rows).hexdigest(), (
            "python -m tools.write_benchmarks"
        )
        assert picture.size[0] > 600


def test_nothing_is_cut_off_at_the_right_edge():
    with Image.open(draw_speeds.PICTURE) as picture:
        edge = picture.convert("RGB").crop((picture.width - 10, 0, picture.width, picture.height))
    assert edge.getcolors() == [(10 * edge.height, (255, 255, 255))]


def row(network, batch=1, **peers_ms):
    names = {"graph": GRAPH, "compiled": COMPILE}
    peers = {names[name]: ms for name, ms in peers_ms.items()}
    about = {"network": network, "precision": "float16", "batch": batch, "peers_ms": peers}
    return {**about, "engine_ms": 2.0}


def test_a_bar_is_the_peers_time_divided_by_ours():
    rows = [
        row("b@416", graph=5.0),
        {**row("a@416", graph=5.0), "engine_ms": 1.0},
        row("a@416", batch=64, graph=5.0),
        row("c@416", compiled=5.0),
    ]
    speed_ups = draw_speeds.speed_ups(rows)
    assert speed_ups == {"float16, batch 1": {"a@416": 5.0, "b@416": 2.5}}
    assert list(speed_ups["float16, batch 1"]) == ["a@416", "b@416"]
