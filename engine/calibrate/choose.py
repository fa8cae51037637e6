"""Choose the limits of activations and the layers that stay float, by their effect on the outputs.

The error is the difference of the network's outputs on a few pictures, relative to their root mean
square in float32. For a detector, the outputs compared are the scores of all boxes, regardless of
the threshold, and their sides and centres multiplied by the score: raw outputs would reflect the
background more than the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from math import inf

import numpy as np

from engine.arrays import Array
from engine.backends.base import Device
from engine.calibrate.collect import compile_once
from engine.calibrate.histogram import Histogram
from engine.concurrency.cached_property import cached_property
from engine.passes import FUSING, optimise
from engine.passes.quantise import (
    LayerRanges,
    candidates,
    integer_layers,
    quantise,
    where_it_gains,
)
from engine.plan.build import Plan

METHODS = ("max", "99.99%", "99.9%", "mse")
Report = Callable[[str], None]
Outputs = tuple[Array, ...]
_NONE = -1.0  # a threshold that every score exceeds


@dataclass(frozen=True)
class Chosen:
    """The result of choose()."""

    method: str
    ranges: LayerRanges
    error: float  # error of the network with these ranges
    error_without_floats: float  # error if no layer stayed float
    errors: dict[int, float] = field(default_factory=dict)  # if only this convolution is int8
    error_by_method: dict[str, float] = field(default_factory=dict)
    gains: bool = True  # False if all layers stay float because that is faster


class Measurement:
    """The errors of quantised versions of one plan on the same inputs."""

    def __init__(self, plan: Plan, device: Device, rows: Sequence[Array]) -> None:
        self.plan = optimise(plan, FUSING)
        self._device, self._rows = device, rows

    @cached_property
    def convolutions(self) -> list[int]:
        """The layers that may be int8."""
        return candidates(self.plan)

    @cached_property
    def _expected(self) -> list[Outputs]:
        return self._run(self.plan, "float32")

    @property
    def has_finite_outputs(self) -> bool:
        """Whether float32 gives a finite output for some input, so that errors can be measured.

        A head returns rows with scores of NaN where its input overflows.
        """
        return any(each.size and np.isfinite(each).all() for row in self._expected for each in row)

    def error(self, ranges: LayerRanges) -> float:
        """Return the error of the network with these ranges."""
        quantised = quantise(self.plan, ranges)
        if not quantised.scales:
            return 0.0
        return _relative_error(self._expected, self._run(quantised, "int8"))

    def _run(self, plan: Plan, precision: str) -> list[Outputs]:
        with closing(compile_once(self._device, plan, precision)) as program:
            if not plan.heads:
                return [program.forward(row) for row in self._rows]
            found = (program.detect(row, threshold=_NONE) for row in self._rows)
            return [_decoded(candidates) for each in found for candidates in each]


def choose(
    measurement: Measurement,
    histograms: Sequence[Histogram],
    target: float,
    report: Report = lambda text: None,
) -> Chosen:
    """Choose the method with the least error, then add float layers until the target is met.

    Layers become float in the order of the error that each of them causes alone.
    """
    by_method: dict[str, float] = {}
    limits: dict[str, dict[int, float]] = {}
    for method in METHODS:
        limits[method] = {n: each.limit(method) for n, each in enumerate(histograms)}
        by_method[method] = measurement.error(LayerRanges(limits[method]))
        report(f"{method}: error {by_method[method]:.4f}")
    best = min(by_method, key=by_method.__getitem__)
    largest, convolutions = limits[best], measurement.convolutions
    errors: dict[int, float] = {}
    for layer in convolutions:
        others = [each for each in convolutions if each != layer]
        errors[layer] = measurement.error(LayerRanges(largest, others))
        report(f"layer {layer}: error {errors[layer]:.4f} if only it is int8")
    floats: list[int] = []
    error = by_method[best]
    for layer in sorted(errors, key=lambda each: -errors[each]):
        if error <= target or not errors[layer]:
            break
        floats.append(layer)
        error = measurement.error(LayerRanges(largest, floats))
        report(f"layer {layer} stays float: error {error:.4f}")
    ranges = where_it_gains(measurement.plan, LayerRanges(largest))
    gains = not ranges.floats
    if gains:
        ranges = LayerRanges(largest, frozenset(floats))
    else:
        error = measurement.error(ranges)
    # Layers without a finite limit are float as well.
    integers = integer_layers(measurement.plan, ranges)
    ranges = LayerRanges(largest, frozenset(convolutions) - frozenset(integers))
    return Chosen(best, ranges, error, by_method[best], errors, by_method, gains)


def _relative_error(expected: Sequence[Outputs], found: Sequence[Outputs]) -> float:
    """Return the error of all outputs, ignoring those that are not finite in float32."""
    squares = []
    for outputs in zip(zip(*expected, strict=True), zip(*found, strict=True), strict=True):
        pairs = [pair for pair in zip(*outputs, strict=True) if np.isfinite(pair[0]).all()]
        if not pairs:
            continue
        first, second = (
            np.concatenate([each.reshape(-1) for each in part]).astype(np.float64)
            for part in zip(*pairs, strict=True)
        )
        if first.shape != second.shape or not np.isfinite(second).all():
            return inf
        size = np.square(first).sum()
        squares.append(np.square(second - first).sum() / size if size else 0.0)
    return float(np.sqrt(np.mean(squares))) if squares else 0.0


def _decoded(candidates: Array) -> Outputs:
    """Return the scores of all boxes, and their sides and centres times their best scores."""
    scores = candidates[:, 5:]
    centres, sides = candidates[:, :2], candidates[:, 2:4]
    best = scores.max(axis=1, initial=0, keepdims=True)
    return scores, best * np.sqrt(np.abs(sides)), best * centres
