"""tools/bench_cuda.py: its rows, and the peer's beside them; times on the host mean nothing."""

import json

import pytest

from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tools import bench_cuda

PEER = """
import json, sys
spec, _, batches, _, variants, _, out = sys.argv[1:]
rows = [
    {"net": spec, "batch": int(batch), "variant": variant, "ms": 2.0 - ("compile" in variant)}
    for batch in batches.split(",")
    for variant in variants.split(",")
]
open(out, "w").write(json.dumps(rows))
"""


@pytest.mark.slow
@needs_gxx
def test_a_row_for_each_precision_and_batch(tiny_detector, tmp_path, monkeypatch, capsys):
    (tmp_path / "peer.py").write_text(PEER)
    words = [f"{tiny_detector.cfg}@16", "--batches", "1,2", "--precisions", "float32,float16"]
    files = ["--peer", str(tmp_path / "peer.py"), "--json", str(tmp_path / "rows.json")]
    with on_tape(HostDevice()) as device:
        monkeypatch.setattr(bench_cuda, "open_device", lambda name: device)
        assert bench_cuda.main([*words, *files, "--repeats", "1"]) == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["precision"], row["batch"]) for row in rows] == [
        *(("float32", 1), ("float32", 2), ("float16", 1), ("float16", 2))
    ]
    assert {(row["net"], row["size"]) for row in rows} == {("net", 16)}
    assert [(row["peer"], row["peer_ms"]) for row in rows[1:3]] == [
        ("fp32", 2),
        ("fp16-compile", 1),
    ]
    assert rows[2]["peers_ms"] == {"fp16": 2, "fp16-compile": 1}
    assert all(row["ms"] > 0 for row in rows)
    assert all(row["boxes_ms"] > 0 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(
    ("peer_ms", "ratio"), [(4.0, "ratio 0.50"), (None, "ms        500/s    (")]
)
def test_a_ratio_is_told_where_there_is_a_peer(peer_ms, ratio):
    row = {"net": "a", "size": 32, "batch": 1, "precision": "float32", "ms": 2.0, "ready_s": 1.0}
    row |= {"peer": "fp32", "peer_ms": peer_ms}
    assert ratio in bench_cuda.told({**row, "boxes_ms": None})
    assert "to boxes    3.000 ms" in bench_cuda.told({**row, "boxes_ms": 3.0})
