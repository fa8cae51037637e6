"""The network, the device and the input that a benchmark measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Array
from engine.backends.base import Device, JpegDecoder, TimedProgram, VideoDevice
from engine.darknet.graph import Graph
from engine.errors import InputError
from engine.passes import optimise
from engine.passes.quantise import LayerRanges, quantise
from engine.plan.build import Plan
from engine.settings import Settings
from engine.vision.pixels import PICTURE_CHANNELS

_CANDIDATES = 100  # per picture with random weights; a trained network has about as many
PICTURE = (576, 768)  # height and width of the default picture


def takes_pictures(graph: Graph) -> bool:
    """Return whether the input of a network can be a picture, and not only an array."""
    return graph.task != "other" and graph.net.channels in PICTURE_CHANNELS


@dataclass(frozen=True, eq=False)
class Workload:
    graph: Graph
    plan: Plan  # before any pass
    device: Device
    precision: str = "float32"
    passes: Sequence[str] = ()
    is_trained: bool = True
    picture: Array | None = None  # uint8 (height, width, channels)
    ranges: LayerRanges | None = None  # for int8
    decoders: tuple[JpegDecoder | None, VideoDevice] | None = None  # on the device

    @property
    def ready_plan(self) -> Plan:
        """The plan after the passes."""
        plan = optimise(self.plan, self.passes) if self.passes else self.plan
        return plan if self.ranges is None else quantise(plan, self.ranges)

    @property
    def takes_pictures(self) -> bool:
        """Whether the input can be a picture, and not only an array."""
        return takes_pictures(self.graph)

    def compile(self, batch: int) -> TimedProgram:
        plan = self.ready_plan
        program = self.device.compile(plan, batch=batch, precision=self.precision)
        if not isinstance(program, TimedProgram):
            raise InputError(f"{self.device.name}: expected one device, got several")
        program.settle()
        return program

    def pictures(self, batch: int) -> list[Array]:
        if self.picture is not None:
            return [self.picture] * batch
        shape = (*PICTURE, self.graph.net.channels)
        return [np.random.default_rng(0).integers(0, 256, shape, np.uint8)] * batch

    def images(self, batch: int) -> Array:
        """Return random rows of the network's input."""
        shape = (batch * self.plan.steps, *self.graph.net.shape.sides)
        return np.random.default_rng(0).random(shape, np.float32)

    def threshold(self, program: TimedProgram) -> float | None:
        """Return a threshold that leaves a realistic number of candidates; None without boxes."""
        if self.graph.task != "detector":
            return None
        if self.is_trained:
            return Settings.threshold
        rows = program.detect(self.images(1), threshold=0.0)[0]
        best = np.sort(rows[:, 5:].max(axis=1, initial=0))
        best = best[np.isfinite(best)]  # random weights may overflow
        return float(best[-_CANDIDATES]) if len(best) > _CANDIDATES else Settings.threshold
