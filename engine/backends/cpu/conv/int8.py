"""A convolution of int8 values: exact sums of products, then the epilogue in float32.

The products are those of float32 matrices of whole numbers, which are exact as long as no partial
sum can exceed 2^24. Channels are divided so that none can, and the parts are added as integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from engine.arrays import Array
from engine.backends.cpu.conv.base import Convolution, spans
from engine.backends.cpu.definitions import DEFINITIONS
from engine.backends.cpu.storage import Buffers, Kernel, Scales
from engine.backends.cpu.workers import Workers
from engine.plan import int8, ops
from engine.plan.activations import ACTIVATIONS

_EXACT = 1 << 24  # the largest magnitude up to which float32 holds every whole number
_SCRATCH = "int8"

# Returns an algorithm that adds up products in any order, and does nothing else in between.
Choose = Callable[[ops.Conv2d, Array], Convolution]
Stage = Callable[[Array, Array | None], Array]


class Int8Convolution(Convolution):
    """A convolution, sample by sample: the sums of each part, and then the rest op by op."""

    def __init__(
        self,
        op: ops.Conv2d,
        weight: Array,
        bias: Array | None,
        scales: Scales,
        choose: Choose,
        workers: Workers,
    ) -> None:
        self.op, self.bias, self.scales, self.workers = op, bias, scales, workers
        quantised, by_filter = int8.quantise_weights(weight)
        self.factors = int8.factors(scales[op.src], by_filter)
        self.parts: list[tuple[slice, Convolution]] = []
        for channels in _exact_parts(quantised):
            values = np.ascontiguousarray(quantised[:, channels], np.float32)
            self.parts.append((channels, choose(_bare(op, values.shape), values)))
        packed = (values for _, inner in self.parts for values in inner.weights)
        self.weights = (*packed, self.factors, *(() if bias is None else (bias,)))
        self.shapes = [_shape_of(each) for each in (op.src, op.sums, op.sums)]
        workers.reserve_shared(_SCRATCH, *(4 * math.prod(shape) for shape in self.shapes))

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Kernel:
        cells, sums, words = self.workers.carve_shared(_SCRATCH, np.float32, *self.shapes)
        total = words.view(np.int32)
        products = [inner.bind(cells[..., part], sums) for part, inner in self.parts]
        bias = 0.0 if self.bias is None else self.bias
        finish = [self._stage(step) for step in self.op.tail]

        def run() -> None:
            for row in range(len(src)):
                np.copyto(cells[0], src[row])
                _add_up(products, sums, total)
                values = int8.multiply_add(sums, self.factors, bias)
                for stage in finish:
                    values = stage(values, None if residual is None else residual[row : row + 1])
                self._put(values[0], out[row])

        return run

    def _stage(self, step: ops.TailOp) -> Stage:
        """Return a function of one sample's values so far and of a residual."""
        if isinstance(step, ops.Activate):
            return partial(_activate, step.activation)
        if isinstance(step, ops.Add):
            scale = np.float32(self.scales.get(step.sources[1], 1.0))
            return partial(_add, scale, step.activation)
        return partial(_call, step)

    def _put(self, values: Array, out: Array) -> None:
        if self.op.out in self.scales:
            int8.quantise(values, self.scales[self.op.out], out)
        else:
            np.copyto(out, values)


def _activate(name: str, values: Array, _: Array | None) -> Array:
    return ACTIVATIONS[name].numpy(values)


def _add(scale: np.float32, activation: str, values: Array, residual: Array | None) -> Array:
    assert residual is not None
    return ACTIVATIONS[activation].numpy(int8.multiply_add(residual, scale, values))


def _call(step: ops.TailOp, values: Array, _: Array | None) -> Array:
    """Run a pool, the output of a detection layer, or an upsampling."""
    out = np.empty(_shape_of(step.out), np.float32)
    known = {step.reads[0]: values, step.out: out}
    DEFINITIONS[type(step)](step, Buffers(known.__getitem__, {}))()
    return out


def _add_up(products: list[Kernel], sums: Array, total: Array) -> None:
    """Run the products of all parts; leave their sum, rounded to float32, in `sums`."""
    if len(products) == 1:
        products[0]()
        return
    total.fill(0)
    for multiply in products:
        multiply()
        total += sums.astype(np.int32)
    np.copyto(sums, total, casting="unsafe")


def _exact_parts(weight: NDArray[np.int8]) -> list[slice]:
    """Divide the channels into the fewest parts whose sums float32 holds exactly."""
    filters, channels = weight.shape[:2]
    magnitudes = np.abs(weight.reshape(filters, channels, -1).astype(np.int32)).sum(axis=2) * 128
    for count in range(1, channels + 1):
        parts = [slice(*span) for span in spans(channels, -(-channels // count))]
        if all(magnitudes[:, part].sum(axis=1).max(initial=0) <= _EXACT for part in parts):
            return parts
    raise AssertionError("passes/quantise.py leaves such kernels in float32")


def _bare(op: ops.Conv2d, shape: tuple[int, ...]) -> ops.Conv2d:
    """Return the convolution of some of the channels, without bias and tail."""
    part = ops.Tensor(op.src.index, op.src.shape.with_channels(shape[1]), op.src.steps)
    return ops.Conv2d(
        op.sums,
        part,
        ops.Constant(op.weight.name, shape),
        stride=op.stride,
        padding=op.padding,
        dilation=op.dilation,
    )


def _shape_of(tensor: ops.Tensor) -> tuple[int, ...]:
    channels, height, width = tensor.shape.sides
    return 1, height, width, channels
