"""Other programs that run the same network and weights, interleaved with the engine.

Each peer is a module with `open_peer(workload, batch)`, which returns a function from images to
outputs or raises PeerUnavailable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module

from engine.arrays import Array
from engine.benchmark.peers.base import PeerUnavailable, RunPeer
from engine.benchmark.stages import TimeBudget, Timing, summarize
from engine.benchmark.workload import Workload

PEERS = {"opencv": "OpenCV DNN", "onnxruntime": "ONNX Runtime", "pytorch": "PyTorch"}
ENGINE = "engine"

_MIN_RUNS = 5
_PAUSE_SECONDS = 0.02  # lets the spinning threads of the previous program go to sleep


def measure(
    workload: Workload, batch: int, budget: TimeBudget, *, tell: Callable[[str], None]
) -> dict[str, Timing]:
    """Time each program from images to outputs in host memory, in rounds of one run each.

    `tell` receives a line for each peer that is skipped.
    """
    program = workload.compile(batch)
    try:
        runs: dict[str, RunPeer] = {ENGINE: program.forward}
        for name, title in PEERS.items():
            try:
                runs[name] = import_module(f"{__name__}.{name}_peer").open_peer(workload, batch)
            except PeerUnavailable as reason:
                tell(f"{title}: skipped, {reason}")
        samples = _interleave(runs, workload.images(batch), budget)
    finally:
        program.close()
    return {name: summarize(batch, ["forward"], each)[0] for name, each in samples.items()}


def _interleave(
    runs: dict[str, RunPeer], images: Array, budget: TimeBudget
) -> dict[str, list[tuple[float, ...]]]:
    for run in runs.values():
        for _ in range(3):
            run(images)
    samples: dict[str, list[tuple[float, ...]]] = {name: [] for name in runs}
    end = time.perf_counter() + budget.seconds * len(runs)
    while len(samples[ENGINE]) < _MIN_RUNS or time.perf_counter() < end:
        for name, run in runs.items():
            time.sleep(_PAUSE_SECONDS)
            start = time.perf_counter()
            run(images)
            samples[name].append(((time.perf_counter() - start) * 1e3,))
    return samples
