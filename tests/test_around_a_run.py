"""Short runs of tools/around_a_run.py on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.runtime.jpeg_decoder import CardJpegDecoder
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.cuda.nvjpeg_host import HostNvjpeg, install
from tests.small_models import SMALLEST
from tools import around_a_run
from tools.around_a_run import AroundARun

NETWORK = SMALLEST.format(stride=8)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["calls", "jpgs"], "PART: expected calls, arrays, jpegs, decoded, got 'jpgs'"),
        (["load"], "PART: expected calls, arrays, jpegs, decoded, got 'load'"),
        ([], "--jpegs: expected a folder with JPEGs, for the parts jpegs and decoded"),
        (["decoded", "--jpegs", "."], "--jpegs: expected a folder with JPEGs"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    words: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        around_a_run.main(words)
    assert reason in capsys.readouterr().err


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    cfg = tmp_path / "small.cfg"
    cfg.write_text(NETWORK)
    Image.fromarray(np.zeros((40, 50, 3), np.uint8)).save(tmp_path / "picture.jpg")
    for name, value in {
        "CFG": cfg,
        "SIDES": (32, 32),
        "BATCH": 2,
        "ROUNDS": 1,
        "CALLS": 40,
        "WORKERS": 1,
        "DECODING_SECONDS": 60.0,  # a twentieth of it, in which a process has to start
    }.items():
        monkeypatch.setattr(around_a_run, name, value)
    with on_tape(HostDevice()) as device:
        monkeypatch.setattr("engine.backends.open_device", lambda name: device)
        install(monkeypatch, HostNvjpeg())
        decoder = CardJpegDecoder(device.context)
        monkeypatch.setattr(CudaDevice, "open_decoder", lambda device: decoder)
        monkeypatch.setattr(CudaDevice, "close", lambda self: None)
        yield AroundARun(tmp_path, device="cuda:0", jpegs=tmp_path, quick=True)


@needs_gxx
@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "targets"),
    [
        ("calls", {"one array": "<= 0.18", "one pinned array": "<= 0.14"}),
        ("arrays", {"2 ordinary arrays in turn": ">= 40000"}),
        ("jpegs", {"share of workers x one thread with Pillow": ">= 0.8"}),
        ("decoded", {"to boxes, 2 workers: share": ">= 0.85"}),
    ],
)
def test_each_part_has_its_figures(bench: AroundARun, part: str, targets: dict[str, str]) -> None:
    getattr(bench, part)()
    found = {row.what: row for row in bench.rows}
    assert {name: found[name].should for name in targets} == targets
    assert all(row.value > 0 for row in bench.rows)
    assert len(found) == len(bench.rows) >= 3
