"""Processes that fork, spawn, share a folder, or have no home folder."""

import importlib
import importlib.machinery
import multiprocessing
import os
import sys
import threading
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from PIL import Image

import engine
from engine import ops
from engine.concurrency import fork_safety
from engine.concurrency.cached_property import cached_property
from engine.errors import EngineError
from tests.faults.child import ENGINE, run
from tests.faults.looking import NOISE, look
from tests.faults.test_memory import LARGER
from tests.lanes import slow_except
from tests.small_models import RECURRENT, write_model

SECONDS = 60

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path, LARGER, ["thing"])


def forked(function):
    """Return the answer of a forked child, or nothing if it hangs or fails."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12, if other threads run
        child = os.fork()
    if not child:
        try:
            os.write(writing, function())
        finally:
            os._exit(0)
    os.close(writing)
    alarm = threading.Timer(SECONDS, os.kill, (child, 9))
    alarm.start()
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    alarm.cancel()
    return answer


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("threads", slow_except([3], [1, 3]))
def test_child_forked_during_runs_finds_the_same(model, threads):
    with engine.load(
        model.cfg, model.weights, device="cpu", threads=threads, threshold=0.01
    ) as detector:
        expected = detector(NOISE).boxes.tobytes()
        is_over = threading.Event()

        def look_on():
            while not is_over.is_set():
                detector(NOISE)

        others = [threading.Thread(target=look_on) for _ in range(3)]
        for each in others:
            each.start()
        try:
            for _ in range(10):
                assert forked(lambda: detector(NOISE).boxes.tobytes()) == expected
        finally:
            is_over.set()
            for each in others:
                each.join()
        assert detector(NOISE).boxes.tobytes() == expected


@needs_fork
def test_child_forked_during_convolutions_computes_the_same():
    random = np.random.default_rng(0)
    x, w = random.random((1, 8, 40, 40), np.float32), random.random((8, 8, 3, 3), np.float32)
    expected = ops.conv2d(x, w, device="cpu").tobytes()
    is_over = threading.Event()

    def go_on():
        while not is_over.is_set():
            ops.conv2d(x, w, device="cpu")

    other = threading.Thread(target=go_on)
    other.start()
    try:
        for _ in range(10):
            child = forked(lambda: ops.conv2d(x, w, device="cpu").tobytes())
            assert child == expected
    finally:
        is_over.set()
        other.join()


@needs_fork
def test_a_fork_leaves_no_property_locked():
    is_computing, is_over = threading.Event(), threading.Event()

    class Place:
        @cached_property
        def name(self):
            if threading.current_thread() is other:
                is_computing.set()
                is_over.wait(SECONDS)
            return b"yard"

    other = threading.Thread(target=lambda: Place().name)
    other.start()
    try:
        assert is_computing.wait(SECONDS)
        place = Place()
        assert forked(lambda: place.name + place.name) == b"yardyard"
    finally:
        is_over.set()
        other.join()
    assert isinstance(Place.name, cached_property)


FORK_DURING_AN_IMPORT = """
import os, signal, sys, threading, time, warnings
import engine

late, cfg, weights, picture = sys.argv[1:]
is_imported = threading.Event()

class Slow:
    def find_spec(self, name, path, target=None):
        if name == late:
            is_imported.set()
            time.sleep(0.3)

def look():
    with engine.load(cfg, weights, device="cpu:1") as detector:
        detector(picture)

sys.meta_path.insert(0, Slow())
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12, if other threads run
engine.load
other = threading.Thread(target=look)
other.start()
assert is_imported.wait(60)
if not (child := os.fork()):
    signal.alarm(40)
    look()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
other.join()
"""


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("late", ["engine.detector", "engine.vision.formats", "PIL.ImageFile"])
def test_a_fork_waits_for_what_another_thread_imports(late, model, tmp_path):
    Image.fromarray(NOISE).save(tmp_path / "street.png")
    end = run(FORK_DURING_AN_IMPORT, late, model.cfg, model.weights, tmp_path / "street.png")
    assert (end.status, end.out, end.err) == (0, "", "")


FORK_BEFORE_AN_IMPORT = """
import os, signal, sys, threading, time, warnings
import engine
from engine.concurrency import fork_safety
from engine.concurrency.cached_property import cached_property

may_begin, has_begun = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path, target=None):
        if name == "colorsys":
            has_begun.set()
            time.sleep(1)

def look():
    may_begin.wait(60)
    import colorsys

def found_none():
    found = imported()
    if not found:
        may_begin.set()
        has_begun.wait(0.5)
    return found

sys.meta_path.insert(0, Slow())
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12, if other threads run
other = threading.Thread(target=look)
other.start()
imported = fork_safety._imported_by_other_threads
fork_safety._imported_by_other_threads = found_none
if not (child := os.fork()):
    signal.alarm(20)
    sys.meta_path.pop(0)
    import colorsys
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
other.join()
import colorsys
"""


@pytest.mark.slow
@needs_fork
def test_no_import_begins_between_the_look_and_the_fork():
    end = run(FORK_BEFORE_AN_IMPORT)
    assert (end.status, end.out, end.err) == (0, "", "")


@needs_fork
def test_only_one_fork_waits_for_an_import_without_end(monkeypatch):
    monkeypatch.setattr(fork_safety, "_PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(fork_safety, "_endless", set())
    is_imported, is_over = threading.Event(), threading.Event()

    class Endless:  # a module that does not end: while it is searched for, no process can fork
        def find_spec(self, name, path, target=None):
            mine = name == "a_program_that_serves"
            return importlib.machinery.ModuleSpec(name, self) if mine else None

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            is_imported.set()
            is_over.wait(SECONDS)

    def serve():
        importlib.import_module("a_program_that_serves")

    monkeypatch.setattr(sys, "meta_path", [Endless(), *sys.meta_path])
    thread = threading.Thread(target=serve)
    thread.start()
    assert is_imported.wait(SECONDS)
    try:
        begin = time.monotonic()
        assert forked(lambda: b"first") == b"first"
        assert fork_safety._endless == {"a_program_that_serves"}
        assert 2.0 < time.monotonic() - begin < SECONDS / 2
        begin = time.monotonic()
        assert forked(lambda: b"second") == b"second"
        assert time.monotonic() - begin < 2.0
    finally:
        is_over.set()
        thread.join()
        sys.modules.pop("a_program_that_serves", None)


@needs_fork
def test_child_has_its_own_consistent_state(tmp_path):
    model = write_model(tmp_path, RECURRENT, [])
    x = np.random.default_rng(0).random((1, 5, 1, 1), np.float32)
    with engine.load(model.cfg, model.weights, device="cpu:1") as detector:
        detector.forward(x)
        child = forked(lambda: detector.forward(x)[0].tobytes())
        assert detector.forward(x)[0].tobytes() == child


@needs_fork
def test_stream_does_not_continue_in_a_child(model):
    with engine.load(model.cfg, model.weights, device="cpu:1") as detector:
        stream = detector.stream([NOISE] * 5)
        next(stream)

        def go_on():
            try:
                next(stream)
            except EngineError as error:
                return str(error).encode()
            return b"went on"

        assert forked(go_on) == b"stream: started before a fork. Start another one"
        assert len(list(stream)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_pools_of_processes_find_the_same(model, method):
    files = str(model.cfg), str(model.weights)
    expected = look(files)
    context = multiprocessing.get_context(method)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            assert list(pool.map(look, [files] * 4)) == [expected] * 4


HOMES = {
    "none": {},
    "no folder": {"HOME": "/dev/null/home"},
    "read-only": {"HOME": "/proc"},
    "cache that is a file": {"HOME": "/", "ENGINE_CACHE": "/dev/null"},
}
HIDDEN = ("HOME", "ENGINE_HOME", "ENGINE_CACHE", "XDG_CACHE_HOME", "USERPROFILE")


def environment(home):
    there = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    return {**there, "PYTHONPATH": os.pathsep.join(sys.path), **HOMES[home]}


@pytest.mark.slow
@pytest.mark.parametrize("home", slow_except(["none"], HOMES))
def test_detecting_needs_no_home(home, tiny_detector, tmp_path):
    Image.fromarray(NOISE).save(tmp_path / "street.png")
    command = ["detect", *tiny_detector.options, "--quiet", "street.png", "-o", "out"]
    end = run(ENGINE, *command, cwd=tmp_path, env=environment(home))
    assert (end.status, end.err) == (0, "")
    assert (tmp_path / "out" / "street.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("home", [home for home in HOMES if HOMES[home]])
def test_unwritable_model_folder_is_one_error_line(home, tmp_path):
    """Check that the folder is created before the download starts."""
    command = ["models", "pull", "yolov4-tiny"]
    end = run(ENGINE, *command, cwd=tmp_path, env=environment(home))
    assert end.status == 1, end.err
    (line,) = end.errors
    assert "cannot be written" in line
    assert "ENGINE_CACHE can name another folder" in line
