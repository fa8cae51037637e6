"""What each op of a network takes, how much it computes, and how far that is from the least."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from engine.backends.base import TimedProgram
from engine.benchmark.roofline import Bound, Peaked, bound, operations
from engine.benchmark.subject import Subject

_REPLAYS = 50


@runtime_checkable
class Measured(Protocol):
    """A program whose device times runs in a row, so that it never waits for the host."""

    def measure(self, images: NDArray[Any], *, repeats: int = 20) -> list[float]: ...


@dataclass(frozen=True)
class LayerTime:
    layer: int
    section: str
    op: str
    shape: str  # of its output
    milliseconds: float
    share: float  # of all ops together
    operations: int  # for the whole batch
    algorithm: str
    bound: Bound | None  # where the device knows what it could do

    @property
    def rate(self) -> float:
        """Operations in a second."""
        return self.operations * 1e3 / self.milliseconds if self.milliseconds else 0.0

    @property
    def reached(self) -> float | None:
        """The share of the roofline: above 1 where values never left the cache."""
        return _share(self.bound.milliseconds, self.milliseconds) if self.bound else None

    @property
    def lost(self) -> float:
        """Milliseconds above the least."""
        return self.milliseconds - self.bound.milliseconds if self.bound else 0.0


@dataclass(frozen=True)
class Profile:
    batch: int
    forward: float  # milliseconds of all ops in a row
    layers: tuple[LayerTime, ...]

    @property
    def bound(self) -> float | None:
        """The least that all ops could take one after the other."""
        bounds = [each.bound.milliseconds for each in self.layers if each.bound]
        return sum(bounds) if bounds else None

    @property
    def reached(self) -> float | None:
        return None if self.bound is None else _share(self.bound, self.forward)

    def losses(self, count: int = 3) -> list[LayerTime]:
        """The ops that lose most against their bounds."""
        known = [each for each in self.layers if each.bound]
        return sorted(known, key=lambda each: each.lost, reverse=True)[:count]


def measure(subject: Subject, batch: int, *, repeats: int = 10) -> Profile:
    """A row for each op, in order; ops that passes have fused count to the last section."""
    device = subject.device
    peaks = device.peaks(subject.precision) if isinstance(device, Peaked) else None
    program = subject.compile(batch)
    try:
        images = subject.images(batch)
        times = program.profile(images, repeats=repeats)
        forward = median(_forward_times(program, images, repeats))
    finally:
        program.close()
    total = sum(each.milliseconds for each in times) or 1.0
    rows = []
    for each in times:
        layer = subject.plan.layer_of(each.op)
        rows.append(
            LayerTime(
                *(layer, subject.graph.nodes[layer].kind, type(each.op).__name__),
                *(str(each.op.out.shape), each.milliseconds, each.milliseconds / total),
                *(operations(each.op) * batch * each.op.out.steps, each.algorithm),
                bound(each.op, batch, peaks) if peaks else None,
            )
        )
    return Profile(batch, forward, tuple(rows))


def _forward_times(program: TimedProgram, images: NDArray[Any], repeats: int) -> list[float]:
    if isinstance(program, Measured):
        return program.measure(images, repeats=_REPLAYS)
    return [program.stages(images)[0].forward for _ in range(repeats)]


def _share(least: float, taken: float) -> float:
    return least / taken if taken else 0.0
