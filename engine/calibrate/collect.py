"""Run a float network on pictures and count the magnitudes of every layer's output."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Protocol, runtime_checkable

import numpy as np

from engine.arrays import Array
from engine.backends import open_device
from engine.backends.base import Device, Program
from engine.calibrate.histogram import Histogram
from engine.passes import optimise
from engine.passes.quantise import LayerRanges
from engine.plan.build import Plan


@runtime_checkable
class _Autotuned(Protocol):
    def compile(
        self, plan: Plan, *, batch: int = 1, precision: str = "float32", tune: bool = True
    ) -> Program: ...

    def tune(self, plan: Plan, *, batch: int) -> None: ...


def can_measure(device: Device) -> bool:
    """Return whether a device can run int8 and return the outputs of all layers."""
    return device.name.partition(":")[0] == "cpu" or isinstance(device, _Autotuned)


def compile_once(device: Device, plan: Plan, precision: str = "float32") -> Program:
    """Compile a plan for a few runs, for which autotuning would take longer than it saves."""
    if isinstance(device, _Autotuned):
        return device.compile(plan, precision=precision, tune=False)
    return device.compile(plan, precision=precision)


def count_magnitudes(plan: Plan, device: Device, rows: Iterable[Array]) -> list[Histogram]:
    """Return a histogram for each layer of a plan without fusion; `rows` are its inputs."""
    found = [Histogram() for _ in plan.layers]
    whole = optimise(plan.keeping_layers(), device.passes)
    with closing(compile_once(device, whole)) as program:
        for row in rows:
            values = dict(zip(whole.outputs, program.forward(row), strict=True))
            for histogram, tensor in zip(found, plan.layers, strict=True):
                histogram.add(values[tensor])
    return found


def ranges_of_noise(plan: Plan) -> LayerRanges:
    """Return ranges that suit noise, to measure the speed of a network with random weights."""
    shape = (plan.steps, *plan.source.shape.sides)
    noise = np.random.default_rng(0).random(shape, np.float32)
    with closing(open_device("cpu")) as cpu:
        found = count_magnitudes(plan, cpu, [noise])
    return LayerRanges({number: each.limit("max") for number, each in enumerate(found)})
