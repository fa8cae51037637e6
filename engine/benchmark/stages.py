"""Time the stages of a run, from pictures in memory to boxes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from engine.backends.base import TimedProgram
from engine.benchmark.workload import Workload
from engine.inputs import Intake
from engine.settings import Settings
from engine.vision.boxes import Kind, Suppression
from engine.vision.postprocess import postprocess_batch

STAGES = ("preprocess", "upload", "forward", "download", "postprocess", "total")
Times = tuple[float, ...]  # milliseconds of each stage

_MIN_RUNS, _MAX_RUNS = 10, 100_000


@dataclass(frozen=True)
class TimeBudget:
    """Seconds of warm-up and of measurement."""

    warm_up: float = 0.2
    seconds: float = 3.0


@dataclass(frozen=True)
class Timing:
    """Milliseconds of a stage for a whole batch."""

    batch: int
    stage: str
    median: float
    p90: float
    p99: float
    runs: int

    @property
    def rate(self) -> float:
        """Pictures per second if this were the only stage."""
        return self.batch * 1e3 / self.median if self.median else float("inf")


def measure(workload: Workload, batch: int, budget: TimeBudget) -> list[Timing]:
    program = workload.compile(batch)
    try:
        run = _make_run(workload, program, batch)
        return summarize(batch, STAGES, collect_samples(run, budget))
    finally:
        program.close()


def collect_samples(run: Callable[[], Times], budget: TimeBudget) -> list[Times]:
    """Warm up, then call `run` until the budget is used up; return its times."""
    end = time.perf_counter() + budget.warm_up
    for count in range(_MAX_RUNS):  # the first runs compile, capture graphs and allocate
        if count >= 3 and time.perf_counter() > end:
            break
        run()
    samples: list[Times] = []
    end = time.perf_counter() + budget.seconds
    while len(samples) < _MIN_RUNS or (time.perf_counter() < end and len(samples) < _MAX_RUNS):
        samples.append(run())
    return samples


def summarize(batch: int, names: Iterable[str], samples: list[Times]) -> list[Timing]:
    """Return the percentiles of each stage."""
    rows = []
    for name, column in zip(names, np.array(samples).T, strict=True):
        median, p90, p99 = np.percentile(column, (50, 90, 99)).tolist()
        rows.append(Timing(batch, name, median, p90, p99, len(samples)))
    return rows


def _make_run(workload: Workload, program: TimedProgram, batch: int) -> Callable[[], Times]:
    if not workload.takes_pictures:
        return _array_run(workload, program, batch)
    return _picture_run(workload, program, batch)


def _array_run(workload: Workload, program: TimedProgram, batch: int) -> Callable[[], Times]:
    """Return a run of a network whose input is not a picture."""
    images = workload.images(batch)

    def run() -> Times:
        start = time.perf_counter()
        stages, _ = program.stages(images)
        total = (time.perf_counter() - start) * 1e3
        return 0.0, stages.upload, stages.forward, stages.download, 0.0, total

    return run


def _picture_run(workload: Workload, program: TimedProgram, batch: int) -> Callable[[], Times]:
    """Return a run from pictures to results; a GPU scales pictures in its forward stage."""
    intake = Intake.of(workload.graph)
    intake = replace(intake, scales=not program.scales_pictures)
    pictures = workload.pictures(batch)
    threshold = workload.threshold(program)
    kind, beta = workload.graph.nms
    suppression = Suppression(Settings.nms, cast(Kind, kind), beta)

    def run() -> Times:
        start = time.perf_counter()
        prepared = intake.prepare(pictures, bgr=False)
        ready = time.perf_counter()
        stages, answer = program.stages(prepared.placed, threshold=threshold)
        answered = time.perf_counter()
        if threshold is None:
            np.argsort(answer[0].reshape(batch, -1), axis=1)[:, -Settings.top_k :]
        else:
            placements = [each.placement for each in prepared.placed]
            postprocess_batch(list(answer), placements, suppression)
        end = time.perf_counter()
        parts = (stages.upload, stages.forward, stages.download)
        return ((ready - start) * 1e3, *parts, (end - answered) * 1e3, (end - start) * 1e3)

    return run
