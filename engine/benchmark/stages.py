"""The parts of a run, from pictures in memory to boxes: how long each takes, and how steadily."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from engine.backends.base import TimedProgram
from engine.benchmark.subject import Subject
from engine.inputs import Intake
from engine.settings import Settings
from engine.vision.boxes import Kind, Suppression
from engine.vision.postprocess import postprocess_batch

STAGES = ("preprocess", "upload", "forward", "download", "postprocess", "total")
Times = tuple[float, ...]  # milliseconds of each stage

_LEAST, _MOST = 10, 100_000  # runs


@dataclass(frozen=True)
class Effort:
    """How long to run before and while it counts."""

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
        """Pictures in a second, if this were all."""
        return self.batch * 1e3 / self.median if self.median else float("inf")


def measure(subject: Subject, batch: int, effort: Effort) -> list[Timing]:
    program = subject.compile(batch)
    try:
        run = _run_of(subject, program, batch)
        return timings(batch, STAGES, samples(run, effort))
    finally:
        program.close()


def samples(run: Callable[[], Times], effort: Effort) -> list[Times]:
    """What the run says of itself, often enough."""
    end = time.perf_counter() + effort.warm_up
    for count in range(_MOST):  # the first few compile, record and allocate
        if count >= 3 and time.perf_counter() > end:
            break
        run()
    taken: list[Times] = []
    end = time.perf_counter() + effort.seconds
    while len(taken) < _LEAST or (time.perf_counter() < end and len(taken) < _MOST):
        taken.append(run())
    return taken


def timings(batch: int, names: Iterable[str], taken: list[Times]) -> list[Timing]:
    rows = []
    for name, column in zip(names, np.array(taken).T, strict=True):
        median, p90, p99 = np.percentile(column, (50, 90, 99)).tolist()
        rows.append(Timing(batch, name, median, p90, p99, len(taken)))
    return rows


def _run_of(subject: Subject, program: TimedProgram, batch: int) -> Callable[[], Times]:
    if subject.graph.task == "other":
        return _arrays(subject, program, batch)
    return _pictures(subject, program, batch)


def _arrays(subject: Subject, program: TimedProgram, batch: int) -> Callable[[], Times]:
    """A network that is not for pictures."""
    images = subject.images(batch)

    def run() -> Times:
        start = time.perf_counter()
        stages, _ = program.stages(images)
        total = (time.perf_counter() - start) * 1e3
        return 0.0, stages.upload, stages.forward, stages.download, 0.0, total

    return run


def _pictures(subject: Subject, program: TimedProgram, batch: int) -> Callable[[], Times]:
    """A device that scales pictures itself does so in its forward stage."""
    intake = Intake.of(subject.graph)
    intake = replace(intake, scales=not program.scales_pictures)
    pictures = subject.pictures(batch)
    threshold = subject.threshold(program)
    kind, beta = subject.graph.nms
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
