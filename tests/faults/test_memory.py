"""A failure of any allocation is one error line, and the next call succeeds."""

import itertools
import re
import threading
from dataclasses import replace

import numpy as np
import pytest

import engine
from engine.concurrency import thread_cache
from tests.faults.child import run
from tests.small_models import RECURRENT, write_model

ALLOCATING = ("empty", "zeros", "full", "empty_like", "zeros_like", "ascontiguousarray", "fromfile")
PICTURE = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)


class Scarce:
    """NumPy's functions, whose `last`-th call from now on finds no memory."""

    def __init__(self, monkeypatch, last):
        self.left = last
        for name in ALLOCATING:
            monkeypatch.setattr(np, name, self._counting(getattr(np, name)))

    def _counting(self, function):
        def counted(*arguments, **options):
            self.left -= 1
            if self.left == 0:
                raise MemoryError("Unable to allocate 1. TiB")
            return function(*arguments, **options)

        return counted


def failures(monkeypatch, task):
    """Make each allocation of `task` fail in turn and return how many there are."""
    for last in itertools.count(1):
        said = "memory was enough"
        with monkeypatch.context() as patch:
            scarce = Scarce(patch, last)
            try:
                task()
            except engine.EngineError as error:
                said = str(error)
        assert re.fullmatch(r"[^\n]*memory[^\n]*", said), said
        if scarce.left > 0:
            return last - 1
    raise AssertionError


@pytest.mark.parametrize("passes", [True, False])
def test_every_allocation_of_a_load_may_fail(tiny_detector, monkeypatch, passes):
    def load():
        engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu:1", passes=passes).close()

    assert failures(monkeypatch, load) > 10
    load()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
def test_every_allocation_of_a_call_may_fail(tiny_detector, monkeypatch, threads):
    files = tiny_detector.cfg, tiny_detector.weights, tiny_detector.names
    with engine.load(*files, device="cpu", threads=threads, threshold=0.01) as detector:
        expected = detector(PICTURE).to_dict()["detections"]
        assert expected
        assert failures(monkeypatch, lambda: detector(PICTURE)) > 3
        assert detector(PICTURE).to_dict()["detections"] == expected
        assert failures(monkeypatch, lambda: detector([PICTURE] * 3)) > 3
        assert failures(monkeypatch, lambda: list(detector.stream([PICTURE] * 3))) > 3
        assert detector(PICTURE).to_dict()["detections"] == expected


def test_failed_call_leaves_the_state_unchanged(tmp_path, monkeypatch):
    twice = RECURRENT + RECURRENT.partition("[rnn]")[1] + RECURRENT.partition("[rnn]")[2]
    model = write_model(tmp_path, twice, [])
    x = np.random.default_rng(0).random((1, 5, 1, 1), np.float32)
    with engine.load(model.cfg, model.weights, device="cpu:1") as detector:
        first, second = detector.forward(x)[0], detector.forward(x)[0]
        assert not np.array_equal(first, second)
        detector.reset()
        assert np.array_equal(detector.forward(x)[0], first)
        program = detector._program
        kernels = program._bound[1].kernels
        for last in range(len(kernels)):
            with monkeypatch.context() as patch:
                broken = [*kernels[:last], out_of_memory]
                patch.setitem(program._bound, 1, replace(program._bound[1], kernels=tuple(broken)))
                with pytest.raises(engine.DeviceError, match="cpu: out of memory"):
                    detector.forward(x)
        assert np.array_equal(detector.forward(x)[0], second)


def out_of_memory():
    raise MemoryError


SCARCE = """
import os, resource, sys
from pathlib import Path
import engine

cfg, weights, picture = sys.argv[1:]

def look():
    with engine.load(cfg, weights, device="cpu:1", threshold=0.01) as detector:
        found = detector(picture)
        found.plot()
        return len(found)

expected = look()  # what is loaded late is here from now on
pages = int(Path("/proc/self/statm").read_text().split()[0])
used = pages * resource.getpagesize()
for room in range(0, 24 << 20, 1 << 19):
    if not (child := os.fork()):
        resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.RLIM_INFINITY))
        try:
            assert look() == expected
        except engine.EngineError as error:
            print(f"Error: {error}", file=sys.stderr, flush=True)
            os._exit(error.exit_code)
        os._exit(0)
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

LARGER = """
[net]
width=256
height=256
channels=3

[convolutional]
filters=16
size=3
pad=1
stride=1
activation=leaky

[convolutional]
filters=24
size=3
pad=1
stride=2
activation=leaky

[convolutional]
filters=6
activation=linear

[yolo]
mask=0
anchors=10,14
classes=1
"""


@pytest.mark.slow
def test_any_amount_of_memory_gives_an_answer_or_one_error_line(tmp_path):
    pytest.importorskip("resource", reason="Windows has no limit on address space")
    model = write_model(tmp_path, LARGER, ["thing"])
    picture = tmp_path / "street.ppm"
    picture.write_bytes(b"P6 80 60 255\n" + PICTURE.tobytes())
    end = run(SCARCE, model.cfg, model.weights, picture)
    assert end.status == 0, end.err
    statuses = [int(line.split()[1]) for line in end.out.splitlines()]
    assert len(statuses) == 48
    assert set(statuses) <= {0, 1, 4}, end.err
    assert statuses[-1] == 0, end.err
    assert len(end.errors) == sum(status > 0 for status in statuses) > 0, end.err


def no_thread(self):
    raise RuntimeError("can't start new thread")


def test_thread_start_failure_is_reported(tmp_path, monkeypatch):
    model = write_model(tmp_path, LARGER, ["thing"])
    with engine.load(model.cfg, model.weights, device="cpu", threads=3) as detector:
        with monkeypatch.context() as patch:
            patch.setattr(thread_cache, "_idle", [])
            patch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(engine.DeviceError, match="cpu: no more threads can be started"):
                detector(PICTURE)
            with pytest.raises(engine.DeviceError, match="stream: no more threads can be started"):
                list(detector.stream([PICTURE]))
        assert len(list(detector.stream([PICTURE]))) == 1
