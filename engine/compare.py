"""Compare two ways to run a network on the same picture, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np

from engine.arrays import Array
from engine.backends import open_chosen
from engine.darknet.graph import Graph
from engine.errors import InputError
from engine.passes import FUSING, optimise
from engine.passes.quantise import LayerRanges, quantise
from engine.plan.build import Plan
from engine.plan.ops import Tensor

TOLERANCES = {"float64": 1e-4, "float32": 1e-4, "tf32": 1e-2, "float16": 2e-2, "int8": 0.3}
_NO_PASSES = "no-passes"


@dataclass(frozen=True)
class Way:
    """A device, a precision, and whether passes are applied."""

    device: str = "cpu"
    precision: str = "float32"
    has_passes: bool = True

    @classmethod
    def of(cls, text: str) -> Way:
        """Parse DEVICE[/PRECISION][/no-passes]."""
        device, *words = text.split("/")
        has_passes = _NO_PASSES not in words
        rest = [word for word in words if word != _NO_PASSES]
        if not device or len(rest) > 1 or (rest and rest[0] not in TOLERANCES):
            known = "|".join(TOLERANCES)
            raise InputError(f"{text!r}: expected DEVICE[/{known}][/{_NO_PASSES}]")
        if rest == ["int8"] and not has_passes:
            raise InputError(f"{text!r}: a pass makes layers int8, so {_NO_PASSES} leaves none")
        return cls(device, rest[0] if rest else "float32", has_passes)

    def here(self) -> Way:
        """Return this way with "auto" replaced by the actual device."""
        if self.device != "auto":
            return self
        with closing(open_chosen(self.device)) as device:
            return replace(self, device=device.name)

    def __str__(self) -> str:
        passes = "" if self.has_passes else f"/{_NO_PASSES}"
        return f"{self.device}/{self.precision}{passes}"


@dataclass(frozen=True)
class Difference:
    """The difference between the two outputs of one layer."""

    layer: int
    kind: str
    shape: str
    error: float  # norm of the difference, relative to the norm of the first output
    place: tuple[int, ...]  # row, channel, y and x of the largest difference
    first: float
    second: float


def compare(
    graph: Graph,
    plan: Plan,
    images: Array,
    ways: Sequence[Way],
    ranges: LayerRanges | None = None,
) -> Iterator[Difference]:
    """Yield the difference of each layer, in order; `ranges` are for int8."""
    first, second = (_outputs(plan, way, images, ranges) for way in ways)
    for node, tensor in zip(graph.nodes, plan.layers, strict=True):
        left, right = first[tensor], second[tensor]
        place, error = _furthest(left, right), _error(left, right)
        values = float(left[place]), float(right[place])
        yield Difference(node.index, node.kind, str(node.shape), error, place, *values)


def _outputs(
    plan: Plan, way: Way, images: Array, ranges: LayerRanges | None
) -> dict[Tensor, Array]:
    """Return the output of every layer; final outputs come from a second, fully fused program."""
    device = open_chosen(way.device)
    values: dict[Tensor, Array] = {}
    try:
        for each in (plan.keeping_layers(), plan) if way.has_passes else (plan.keeping_layers(),):
            passes = FUSING if way.precision == "int8" else device.passes
            ready = optimise(each, passes) if way.has_passes else each
            if way.precision == "int8":
                assert ranges is not None
                ready = quantise(ready, ranges)
            program = device.compile(
                ready, batch=len(images) // plan.steps, precision=way.precision
            )
            values.update(zip(ready.outputs, program.forward(images), strict=True))
            program.close()
    finally:
        device.close()
    return values


def _error(left: Array, right: Array) -> float:
    """Return the relative error of the finite values, or infinity if the others differ."""
    is_finite = np.isfinite(left)
    is_same = np.array_equal(left[~is_finite], right[~is_finite], equal_nan=True)
    if not is_same or not np.isfinite(right[is_finite]).all():
        return float("inf")
    left, right = (each[is_finite].astype(np.float64) for each in (left, right))
    size = float(np.linalg.norm(left))
    difference = float(np.linalg.norm(left - right))
    return difference / size if size else difference


def _furthest(left: Array, right: Array) -> tuple[int, ...]:
    with np.errstate(invalid="ignore"):
        apart = np.abs(left.astype(np.float64) - right)
    apart[np.isnan(apart)] = -1
    apart[np.isnan(left) != np.isnan(right)] = np.inf
    return tuple(int(each) for each in np.unravel_index(int(apart.argmax()), apart.shape))
