"""Other programs with the same network and weights, each in a file, timed in turn with ours.

A peer is `open_peer(subject, batch)`: it returns a function that takes the images and returns the
outputs, or raises Missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module

from engine.arrays import Array
from engine.benchmark.peers.base import Missing, Run
from engine.benchmark.stages import Effort, Timing, timings
from engine.benchmark.subject import Subject

PEERS = {"opencv": "OpenCV DNN", "onnxruntime": "ONNX Runtime", "pytorch": "PyTorch"}
OURS = "engine"

_LEAST = 5
_PAUSE = 0.02  # seconds: idle threads of the last one spin for a while


def measure(
    subject: Subject, batch: int, effort: Effort, *, tell: Callable[[str], None]
) -> dict[str, Timing]:
    """From images to outputs in host memory: one run of each, then the next round.

    `tell` gets a line for each peer that is not there.
    """
    program = subject.compile(batch)
    try:
        runs: dict[str, Run] = {OURS: program.forward}
        for name, title in PEERS.items():
            try:
                runs[name] = import_module(f"{__name__}.{name}_peer").open_peer(subject, batch)
            except Missing as reason:
                tell(f"{title}: skipped, {reason}")
        taken = _in_turn(runs, subject.images(batch), effort)
    finally:
        program.close()
    return {name: timings(batch, ["forward"], each)[0] for name, each in taken.items()}


def _in_turn(
    runs: dict[str, Run], images: Array, effort: Effort
) -> dict[str, list[tuple[float, ...]]]:
    for run in runs.values():
        for _ in range(3):
            run(images)
    taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in runs}
    end = time.perf_counter() + effort.seconds * len(runs)
    while len(taken[OURS]) < _LEAST or time.perf_counter() < end:
        for name, run in runs.items():
            time.sleep(_PAUSE)
            start = time.perf_counter()
            run(images)
            taken[name].append(((time.perf_counter() - start) * 1e3,))
    return taken
