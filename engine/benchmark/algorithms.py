"""Time every convolution of a network with every algorithm that its device would consider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from typing import Protocol, runtime_checkable

from engine.backends.base import Device
from engine.benchmark.roofline import HasPeaks, operations, peak_rate
from engine.benchmark.workload import Workload
from engine.errors import InputError
from engine.plan.build import Plan
from engine.plan.ops import Conv2d


@runtime_checkable
class AutotunedDevice(Protocol):
    """A device that chooses algorithms by measuring them."""

    def algorithm_times(
        self, plan: Plan, op: Conv2d, *, batch: int = 1, precision: str = "float32"
    ) -> tuple[str, dict[str, float]]: ...


@dataclass(frozen=True)
class AlgorithmTime:
    layers: tuple[int, ...]  # all layers with this convolution
    convolution: str
    algorithm: str
    is_chosen: bool
    microseconds: float
    rate: float  # operations per second
    share: float | None  # share of the device's peak rate


def require_autotuning(device: Device) -> AutotunedDevice:
    if not isinstance(device, AutotunedDevice):
        raise InputError(f"{device.name}: has no autotuning. Try: --device cuda")
    return device


def measure(workload: Workload, batch: int) -> Iterator[AlgorithmTime]:
    """Yield the algorithms of each distinct convolution, fastest first."""
    device = workload.device
    autotuned, precision = require_autotuning(device), workload.precision
    plan = workload.ready_plan
    with closing(device.compile(plan, batch=batch, precision=precision)) as program:
        plan = program.plan  # the plan whose algorithms were chosen
    peaks = device.peaks(precision) if isinstance(device, HasPeaks) else None
    for identical in _group_identical(plan):
        op = identical[0]
        layers = tuple(plan.layer_of(each) for each in identical)
        work = operations(op) * batch * op.out.steps
        most = peak_rate(op, peaks, plan.scales) if peaks else None
        chosen, times = autotuned.algorithm_times(
            plan, op, batch=batch, precision=workload.precision
        )
        for name, milliseconds in sorted(times.items(), key=lambda item: item[1]):
            if isfinite(milliseconds) and milliseconds > 0:
                rate = work * 1e3 / milliseconds
                yield AlgorithmTime(
                    *(layers, describe(op), name, name == chosen),
                    *(milliseconds * 1e3, rate, rate / most if most else None),
                )


def describe(op: Conv2d) -> str:
    """Describe a convolution like "16 x 208 x 208 -> 32 x 104 x 104, 3 x 3 / 2"."""
    height, width = op.kernel
    stride = f" / {op.stride[0]}" if op.stride != (1, 1) else ""
    groups = f", {op.groups} groups" if op.groups > 1 else ""
    return f"{op.src.shape} -> {op.out.shape}, {height} x {width}{stride}{groups}"


def _group_identical(plan: Plan) -> list[list[Conv2d]]:
    groups: dict[object, list[Conv2d]] = {}
    for op in plan.ops:
        if isinstance(op, Conv2d):
            kinds = (type(op), op.activation, op.last_activation, op.signed)
            tail = (*(type(step) for step in op.tail), op.residual and op.residual.shape)
            window = (op.weight.shape, op.stride, op.padding, op.dilation, op.groups)
            key = (op.src.shape, op.out.shape, op.bias is None, *kinds, *tail, *window)
            groups.setdefault(key, []).append(op)
    return list(groups.values())
