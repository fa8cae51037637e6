"""Signals end a run at once and in one line, and its files are complete."""

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from importlib import import_module
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from PIL import Image

import engine
from engine.backends.cpu.workers import Workers
from engine.cli import _interrupts
from engine.cli._interrupts import SIGNALS, Terminated, interruptible
from engine.cli._progress import Progress
from engine.cli._run import run_all
from engine.cli._sinks.base import Sink
from engine.cli._sources import Feed, NamedMedia
from engine.errors import EngineError
from engine.sources.media import Media, MediaKind
from engine.sources.reader import FrameSelection
from tests.cli.child import ENVIRONMENT
from tests.faults.child import ENGINE, SECONDS, start
from tests.faults.test_memory import LARGER
from tests.small_models import write_model

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")


@pytest.fixture
def place(tmp_path, tiny_detector):
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "street.png")
    return tmp_path


@pytest.fixture
def running(place, tiny_detector):
    """Start a run that has processed one picture and waits for more names on stdin."""
    outputs = ["--jsonl", "found.jsonl", "--json", "found.json", "-o", "out", "--quiet"]
    command = ["detect", *tiny_detector.options, *outputs, "-"]
    process = start(ENGINE, *command, cwd=place, stdin=subprocess.PIPE)
    process.stdin.write("street.png\n" * 5)
    process.stdin.flush()
    rows = place / "found.jsonl"
    end = time.monotonic() + SECONDS
    while not (rows.exists() and rows.read_text().count("\n") >= 3):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()


def ended(process):
    """Wait for the end with stdin open, because the process must not wait for more."""
    status = process.wait(timeout=20)
    return status, process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_run_and_leaves_whole_files(running, place, number):
    running.send_signal(number)
    status, err = ended(running)
    assert status == 128 + number
    assert "Traceback" not in err
    lines = (place / "found.jsonl").read_text().splitlines()
    assert len(lines) >= 3
    assert all(json.loads(line)["path"] == "street.png" for line in lines)
    where = "results of these are in out, found.json, found.jsonl"
    assert err.splitlines()[-1] == f"interrupted: {len(lines)} pictures done; {where}"
    # results so far must be complete
    assert len(json.loads((place / "found.json").read_text())["images"]) == len(lines)
    for picture in (place / "out").glob("street*.png"):
        Image.open(picture).load()


class Output(Sink):
    """An output that is interrupted while it takes an item, or while it finishes."""

    def __init__(self, *, taking=0, finishing=0, number=signal.SIGINT):
        self.taking, self.finishing, self.number = taking, finishing, number
        self.taken, self.is_finished = 0, False

    def take(self, item, outcome, milliseconds):
        for _ in range(self.taking):
            signal.raise_signal(self.number)
        self.taken += 1

    def finish(self):
        for _ in range(self.finishing):
            signal.raise_signal(self.number)
        self.is_finished = True


def is_interrupted(place, tiny_detector, *outputs):
    before = [signal.getsignal(each) for each in SIGNALS]
    street = Media(str(place / "street.png"), MediaKind.PICTURE)
    feed = Feed([NamedMedia(street, "street")] * 3, FrameSelection(1, None), 3, ())
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as detector:
        progress = Progress(is_wanted=False)
        try:
            given = Namespace(workers=1, resume=False, fail_fast=False, quiet=True)
            run_all(detector, feed, outputs, given, about={}, progress=progress)
            return False
        except KeyboardInterrupt:
            return True
        finally:
            assert [signal.getsignal(each) for each in SIGNALS] == before


def test_interrupted_picture_goes_to_every_output(place, tiny_detector):
    first, second = Output(taking=1), Output()
    assert is_interrupted(place, tiny_detector, first, second)
    assert (first.taken, second.taken) == (1, 1)
    assert first.is_finished
    assert second.is_finished


def test_terminated_run_finishes_every_output(place, tiny_detector):
    first, second = Output(taking=1, number=signal.SIGTERM), Output()
    with interruptible():
        assert is_interrupted(place, tiny_detector, first, second)
        assert (first.taken, second.taken) == (1, 1)
        assert first.is_finished
        assert second.is_finished
        with pytest.raises(Terminated):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("seconds", [0, 5])
@pytest.mark.parametrize("number", SIGNALS)
def test_signal_does_not_interrupt_an_import(tmp_path, monkeypatch, number, seconds):
    text = f"import signal\nsignal.raise_signal({int(number)})\nis_whole = True\n"
    (tmp_path / "interrupted.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    def load(seconds):
        with interruptible():
            import_module("interrupted")
            time.sleep(seconds)

    with pytest.raises(KeyboardInterrupt) as caught:
        load(seconds)
    assert isinstance(caught.value, Terminated) == (number == signal.SIGTERM)
    assert sys.modules.pop("interrupted").is_whole
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


INTERRUPTED_OFTEN = """
import os, signal, sys, threading, time
def interrupt():
    time.sleep(float(sys.argv[1]))
    while True:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.005)
from engine import __main__ as program
threading.Thread(target=interrupt, daemon=True).start()
sys.argv[1:] = ["detect", *["street.png"] * 2000, *sys.argv[2:]]
program.run()
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.02, 0.2, 0.6])
def test_repeated_interrupts_end_with_one_status_and_no_traceback(place, tiny_detector, seconds):
    command = [sys.executable, "-c", INTERRUPTED_OFTEN, str(seconds), *tiny_detector.options]
    done = subprocess.run(
        command, cwd=place, env=ENVIRONMENT, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


def test_error_that_an_interrupt_caused_is_an_interrupt():
    def half_done():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise AttributeError("save_nargs")

    with pytest.raises(KeyboardInterrupt), interruptible():
        half_done()
    with pytest.raises(AttributeError), interruptible():
        raise AttributeError("not interrupted")


def test_signal_in_the_callback_of_a_weak_reference_is_not_lost():
    class Key:
        def __hash__(self):
            return 1

    class Table(dict):
        def __delitem__(self, key):
            signal.raise_signal(signal.SIGINT)  # in the callback, which removes the key
            super().__delitem__(key)

    def lose_a_key():
        table = WeakKeyDictionary()
        key = Key()
        table[key] = 1
        table.data = Table(table.data)
        del key
        gc.collect()
        time.sleep(10)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interruptible():
        lose_a_key()
    assert time.monotonic() - start < 5


def test_signal_interrupts_an_import_that_hangs(tmp_path, monkeypatch):
    text = "import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(60)\n"
    (tmp_path / "endless.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_interrupts, "_MAX_IMPORT_SECONDS", 0.2)
    start = time.monotonic()
    with interruptible(), pytest.raises(KeyboardInterrupt):
        import_module("endless")
    assert time.monotonic() - start < 10


def test_existing_signal_handler_is_kept(place, tiny_detector):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with interruptible():
            output = Output(taking=1, number=signal.SIGTERM)
            assert not is_interrupted(place, tiny_detector, output)
        assert seen == [signal.SIGTERM] * 3
        assert output.taken == 3
    finally:
        signal.signal(signal.SIGTERM, before)


def test_every_output_is_finished(place, tiny_detector):
    first, second = Output(finishing=1), Output()
    assert is_interrupted(place, tiny_detector, first, second)
    assert (first.taken, second.taken) == (3, 3)
    assert second.is_finished


def test_failing_output_does_not_prevent_the_others(place, tiny_detector, capsys):
    class Failing(Output):
        def __init__(self, why):
            super().__init__()
            self.why = why

        def finish(self):
            raise EngineError(self.why)

    last = Output()
    with pytest.raises(EngineError, match="the disk is full"):
        is_interrupted(
            place, tiny_detector, Failing("the disk is full"), Failing("no such folder"), last
        )
    assert last.is_finished
    assert capsys.readouterr().err == "Error: no such folder\n"


def test_failure_to_finish_after_an_interrupt_is_told(place, tiny_detector, capsys):
    class Full(Output):
        def finish(self):
            raise EngineError("the disk is full")

    assert is_interrupted(place, tiny_detector, Full(taking=1))
    told = "Error: the disk is full\ninterrupted: 1 picture done\n"
    assert capsys.readouterr().err == told


def test_second_interrupt_ends_at_once(place, tiny_detector):
    first, second = Output(taking=2), Output()
    assert is_interrupted(place, tiny_detector, first, second)
    assert (first.taken, second.taken) == (0, 0)


def test_an_interrupt_that_is_ignored_stays_ignored(place, tiny_detector):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        output = Output(taking=2, finishing=1)
        assert not is_interrupted(place, tiny_detector, output)
        assert output.taken == 3
    finally:
        signal.signal(signal.SIGINT, before)


def test_closed_pipe_ends_the_run(place, tiny_detector):
    command = ["detect", *tiny_detector.options, "--jsonl", "-", *["street.png"] * 200]
    process = start(ENGINE, *command, cwd=place)
    assert json.loads(process.stdout.readline())["path"] == "street.png"
    process.stdout.close()
    assert process.wait(timeout=SECONDS) == 141
    err = process.stderr.read()
    process.stderr.close()
    assert "Traceback" not in err
    assert "Error" not in err


def test_interrupt_waits_for_working_threads():
    """Threads that still work would write into the next run."""
    workers = Workers(2)
    if workers.count < 2:
        pytest.skip("this BLAS leaves no room for threads")
    is_begun, done = threading.Event(), []

    def task(worker, piece):
        if worker == 0:
            is_begun.wait(SECONDS)
        else:
            is_begun.set()
            time.sleep(0.5)
            done.append(piece)

    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        workers.run(task, 2)
    assert len(done) == 1
    workers.run(lambda worker, piece: done.append(piece), 4)
    assert len(done) == 5
    workers.close()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
def test_interrupted_call_leaves_the_detector_usable(tmp_path, threads):
    model = write_model(tmp_path, LARGER, ["thing"])
    noise = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    moments = random.Random(0)
    interrupted = 0
    with engine.load(
        model.cfg, model.weights, device="cpu", threads=threads, threshold=0.01
    ) as detector:
        expected = detector(noise).boxes.copy()
        start = time.perf_counter()
        detector(noise)
        usual = time.perf_counter() - start
        for _ in range(60):
            timer = threading.Timer(
                moments.uniform(0, usual), os.kill, (os.getpid(), signal.SIGINT)
            )
            try:
                timer.start()
                for _ in range(3):
                    detector(noise)
                timer.join()
                time.sleep(0.01)
            except KeyboardInterrupt:
                interrupted += 1
            assert np.array_equal(detector(noise).boxes, expected)
    assert interrupted > 30


@pytest.mark.parametrize(("status", "expected"), [(130, "left"), (143, "left"), (1, "ended")])
def test_an_interrupted_run_of_ray_does_not_take_the_interpreter_down(status, expected):
    """Threads of Ray that outlive it may crash while Python ends: seen once in ten runs."""
    code = f"""
import atexit, sys, types
import engine.cli
from engine.__main__ import run

sys.modules["ray"] = types.ModuleType("ray")
engine.cli.main = lambda: print("done", end=" ") or {status}
atexit.register(lambda: print("ended"))
run()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()) == (
        status,
        ["done"] if expected == "left" else ["done", "ended"],
    )
