"""Time each op of a network and compare it with its lower bound."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from engine.backends.base import TimedProgram
from engine.benchmark.roofline import Bound, HasPeaks, lower_bound, operations
from engine.benchmark.workload import Workload

_REPLAYS = 50


@runtime_checkable
class DeviceTimedProgram(Protocol):
    """A program that times back-to-back runs on the device, without gaps for the host."""

    def measure(self, images: NDArray[Any], *, repeats: int = 20) -> list[float]: ...


@dataclass(frozen=True)
class LayerTime:
    layer: int
    section: str
    op: str
    shape: str  # output shape
    milliseconds: float
    share: float  # share of the total time of all ops
    operations: int  # for the whole batch
    algorithm: str
    bound: Bound | None  # None if the peaks of the device are unknown

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations * 1e3 / self.milliseconds if self.milliseconds else 0.0

    @property
    def reached(self) -> float | None:
        """Fraction of the roofline reached; above 1 if values stayed in the cache."""
        return _share(self.bound.milliseconds, self.milliseconds) if self.bound else None

    @property
    def lost(self) -> float:
        """Milliseconds above the lower bound."""
        return self.milliseconds - self.bound.milliseconds if self.bound else 0.0


@dataclass(frozen=True)
class Profile:
    batch: int
    forward: float  # milliseconds of a whole forward pass
    layers: tuple[LayerTime, ...]

    @property
    def bound(self) -> float | None:
        """The sum of the lower bounds of all ops, in milliseconds."""
        bounds = [each.bound.milliseconds for each in self.layers if each.bound]
        return sum(bounds) if bounds else None

    @property
    def reached(self) -> float | None:
        return None if self.bound is None else _share(self.bound, self.forward)

    def losses(self, count: int = 3) -> list[LayerTime]:
        """Return the ops that exceed their lower bounds most."""
        known = [each for each in self.layers if each.bound]
        return sorted(known, key=lambda each: each.lost, reverse=True)[:count]


def measure(workload: Workload, batch: int, *, repeats: int = 10) -> Profile:
    """Return a row for each op, in order; a fused op counts as the last section in it."""
    device = workload.device
    peaks = device.peaks(workload.precision) if isinstance(device, HasPeaks) else None
    program = workload.compile(batch)
    try:
        scales = program.plan.scales
        images = workload.images(batch)
        times = program.profile(images, repeats=repeats)
        forward = median(_forward_times(program, images, repeats))
    finally:
        program.close()
    total = sum(each.milliseconds for each in times) or 1.0
    rows = []
    for each in times:
        layer = workload.plan.layer_of(each.op)
        rows.append(
            LayerTime(
                *(layer, workload.graph.nodes[layer].kind, type(each.op).__name__),
                *(str(each.op.out.shape), each.milliseconds, each.milliseconds / total),
                *(operations(each.op) * batch * each.op.out.steps, each.algorithm),
                lower_bound(each.op, batch, peaks, scales) if peaks else None,
            )
        )
    return Profile(batch, forward, tuple(rows))


def _forward_times(program: TimedProgram, images: NDArray[Any], repeats: int) -> list[float]:
    if isinstance(program, DeviceTimedProgram):
        return program.measure(images, repeats=_REPLAYS)
    return [program.stages(images)[0].forward for _ in range(repeats)]


def _share(bound: float, measured: float) -> float:
    return bound / measured if measured else 0.0
