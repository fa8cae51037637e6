"""tools/bench_cpu.py: a line for each installed engine; times are not checked."""

import json
import subprocess
import sys

import numpy as np
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--rounds", "0"], "--rounds: expected 1 or more, got 0"),
        (["--threads", "1", "0"], "--threads: expected 1 or more, got 0"),
        (["--engines", "ort"], "invalid choice: 'ort'"),
        ([], "Error: none.cfg: cannot be read"),
    ],
)
def test_misuse_is_told(tmp_path, words, reason):
    words = ["--cfg", "none.cfg", "--weights", "none.weights", *words]
    done = subprocess.run(
        [sys.executable, bench_cpu.__file__, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert reason in done.stderr.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="getrusage() tells another value there")
def test_the_peak_memory_is_that_of_the_process_alone():
    code = "from tools import bench_cpu; print(bench_cpu.peak_mb())"
    large = np.ones(25_000_000)  # 200 MB
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 1 < float(done.stdout) < 100 < large.nbytes / 2**20


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
