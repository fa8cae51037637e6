"""Every convolution of a network by every algorithm that its device would consider."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from typing import Protocol, runtime_checkable

from engine.backends.base import Device
from engine.benchmark.roofline import Peaked, operations
from engine.benchmark.subject import Subject
from engine.errors import InputError
from engine.passes import optimise
from engine.plan.build import Plan
from engine.plan.ops import Conv2d


@runtime_checkable
class Tuned(Protocol):
    """A device that chooses among algorithms by measuring them."""

    def algorithm_times(
        self, plan: Plan, op: Conv2d, *, batch: int = 1, precision: str = "float32"
    ) -> tuple[str, dict[str, float]]: ...


@dataclass(frozen=True)
class AlgorithmTime:
    layers: tuple[int, ...]  # those with such a convolution
    convolution: str
    algorithm: str
    is_chosen: bool
    microseconds: float
    rate: float  # operations in a second
    share: float | None  # of what the device could do at most


def tuned_of(device: Device) -> Tuned:
    if not isinstance(device, Tuned):
        raise InputError(f"{device.name}: chooses its algorithms by rule. Try: --device cuda")
    return device


def measure(subject: Subject, batch: int) -> Iterator[AlgorithmTime]:
    """The fastest first, convolution by convolution."""
    device = subject.device
    tuned = tuned_of(device)
    plan = optimise(subject.plan, subject.passes) if subject.passes else subject.plan
    with closing(device.compile(plan, batch=batch, precision=subject.precision)) as program:
        plan = program.plan  # what it has chosen algorithms for
    peaks = device.peaks(subject.precision) if isinstance(device, Peaked) else None
    for alike in _alike(plan):
        op = alike[0]
        layers = tuple(plan.layer_of(each) for each in alike)
        work = operations(op) * batch * op.out.steps
        chosen, times = tuned.algorithm_times(plan, op, batch=batch, precision=subject.precision)
        for name, milliseconds in sorted(times.items(), key=lambda item: item[1]):
            if isfinite(milliseconds) and milliseconds > 0:
                rate = work * 1e3 / milliseconds
                yield AlgorithmTime(
                    *(layers, describe(op), name, name == chosen),
                    *(milliseconds * 1e3, rate, rate / peaks.operations if peaks else None),
                )


def describe(op: Conv2d) -> str:
    """For people: 16 x 208 x 208 -> 32 x 104 x 104, 3 x 3 / 2."""
    height, width = op.kernel
    stride = f" / {op.stride[0]}" if op.stride != (1, 1) else ""
    groups = f", {op.groups} groups" if op.groups > 1 else ""
    return f"{op.src.shape} -> {op.out.shape}, {height} x {width}{stride}{groups}"


def _alike(plan: Plan) -> list[list[Conv2d]]:
    groups: dict[object, list[Conv2d]] = {}
    for op in plan.ops:
        if isinstance(op, Conv2d):
            kinds = (op.activation, op.last_activation, op.residual is None, op.signed)
            window = (op.weight.shape, op.stride, op.padding, op.dilation, op.groups)
            key = (op.src.shape, op.bias is None, *kinds, *window)
            groups.setdefault(key, []).append(op)
    return list(groups.values())
