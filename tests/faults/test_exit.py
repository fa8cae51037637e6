"""An interpreter that exits during work: quickly, silently, with its own status."""

import time

import pytest

from tests.faults.child import run
from tests.faults.test_memory import LARGER
from tests.lanes import slow_except
from tests.small_models import write_model

LOADED = """
import os, sys, threading, time
import numpy as np
import engine

noise = np.zeros((60, 80, 3), np.uint8)
detector = engine.load(*sys.argv[1:], device="cpu", threads=3)

def look_on():
    while True:
        detector(noise)

def endless():
    while True:
        yield noise
"""

ENDS = {
    "threads amid calls": (
        """
for _ in range(4):
    threading.Thread(target=look_on, daemon=True).start()
time.sleep(0.3)
sys.exit(7)
""",
        7,
    ),
    "a stream that was left": (
        """
stream = detector.stream(endless(), workers=2)
next(stream)
sys.exit(7)
""",
        7,
    ),
    "a stream on another thread": (
        """
def draw():
    for _ in detector.stream(endless()):
        pass
threading.Thread(target=draw, daemon=True).start()
time.sleep(0.3)
sys.exit(7)
""",
        7,
    ),
    "a stream that goes on after the main thread": (
        """
def draw():
    threading.main_thread().join()
    assert len(list(detector.stream([noise] * 20, workers=2))) == 20
    assert len(detector([noise] * 3)) == 3
threading.Thread(target=draw).start()
""",
        0,
    ),
    "a source that gives nothing": (
        """
def silent():
    yield noise
    threading.Event().wait()
stream = detector.stream(silent())
next(stream)
sys.exit(7)
""",
        7,
    ),
    "no farewell": (
        """
threading.Thread(target=look_on, daemon=True).start()
time.sleep(0.3)
os._exit(7)
""",
        7,
    ),
    "closed amid calls": (
        """
def look_until_closed():
    try:
        look_on()
    except engine.EngineError as error:
        said.append(str(error))
said = []
others = [threading.Thread(target=look_until_closed) for _ in range(4)]
for each in others:
    each.start()
time.sleep(0.3)
detector.close()
for each in others:
    each.join()
assert said == ["program: closed. Load the network again"] * 4, said
""",
        0,
    ),
    "never closed": ("detector(noise)", 0),
}


@pytest.mark.parametrize("kind", slow_except(list(ENDS)[:1], ENDS))
def test_interpreter_exits(kind, tmp_path):
    program, status = ENDS[kind]
    model = write_model(tmp_path, LARGER, ["thing"])
    start = time.monotonic()
    end = run(LOADED + program, model.cfg, model.weights)
    assert (end.status, end.out, end.err) == (status, "", "")
    assert time.monotonic() - start < 60
