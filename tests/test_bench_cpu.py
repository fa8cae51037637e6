"""tools/bench_cpu.py: a line for each installed engine; times are not checked."""

import json

import pytest

import engine
from engine.backends.cpu import blas
from tools import bench_cpu


@pytest.mark.slow
def test_one_line_per_engine_and_number_of_threads(tiny_detector, tmp_path, capsys):
    words = ["--cfg", str(tiny_detector.cfg), "--weights", str(tiny_detector.weights)]
    words += ["--engines", "engine", "--rounds", "3", "--json", str(tmp_path / "times.json")]
    assert bench_cpu.main(words) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith(blas.describe())
    assert [line.split()[0] for line in lines] == [
        *("1", "median", "engine"),
        *("2", "median", "engine"),
    ]
    times = json.loads((tmp_path / "times.json").read_text())
    for threads in "1", "2":
        (engine,) = times[threads]
        assert len(engine["wall"]) == len(engine["processor"]) == 3
        assert min(engine["wall"]) > 0
        assert engine["peak_mb"] > 1


@pytest.mark.parametrize("device", ["cpu", "ort"])
def test_this_engine_runs_on_the_device_that_is_named(monkeypatch, tmp_path, device):
    named = []
    monkeypatch.setattr(engine, "load", lambda *_, **options: named.append(options["device"]))
    network = bench_cpu.Network(tmp_path, tmp_path, (3, 8, 8), device)
    bench_cpu.this_engine(network, 1)
    assert named == [device]


def test_ratios_compare_times_of_the_same_round():
    ours, other = bench_cpu.Times("engine", [2.0, 9.0, 3.0]), bench_cpu.Times("it", [4.0, 9.0, 5.0])
    assert bench_cpu._ratio(ours, other) == 3 / 5
    assert bench_cpu._ratio(ours, bench_cpu.Times("darknet", [6.0])) == 3 / 6
