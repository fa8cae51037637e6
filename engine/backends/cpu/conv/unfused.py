"""A convolution followed by the ops of its tail that no algorithm fuses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.arrays import Array
from engine.backends.cpu.conv.base import Convolution
from engine.backends.cpu.definitions import DEFINITIONS
from engine.backends.cpu.storage import Buffers, Kernel
from engine.backends.cpu.workers import Workers
from engine.plan import ops

_BETWEEN = "between"


class Unfused(Convolution):
    """The `part` of `op` that was prepared as `inner`, and the `rest` of its tail, op by op.

    It runs one sample at a time, so that the tensors between these ops stay in the cache.
    """

    def __init__(
        self,
        op: ops.Conv2d,
        part: ops.Conv2d,
        rest: Sequence[ops.TailOp],
        inner: Convolution,
        workers: Workers,
    ) -> None:
        self.op = op
        self.part = part
        self.rest = rest
        self.inner = inner
        self.workers = workers
        self.weights = inner.weights
        self.dtype = inner.weights[0].dtype
        self.between = [step.reads[0] for step in rest]
        self.shapes = [
            (1, each.shape.height, each.shape.width, each.shape.channels) for each in self.between
        ]
        sizes = (math.prod(shape) * self.dtype.itemsize for shape in self.shapes)
        workers.reserve_shared(_BETWEEN, *sizes)

    @property
    def algorithm(self) -> str:
        return f"{self.inner.algorithm}+unfused"

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Kernel:
        scratch = self.workers.carve_shared(_BETWEEN, self.dtype, *self.shapes)
        kernels: list[Kernel] = []
        for row in range(len(src)):
            sample = slice(row, row + 1)
            maps = dict(zip(self.between, scratch, strict=True)) | {self.op.out: out[sample]}
            if self.op.residual is not None and residual is not None:
                maps[self.op.residual] = residual[sample]
            added = None if self.part.residual is None else maps[self.part.residual]
            kernels.append(self.inner.bind(src[sample], maps[self.part.out], added))
            buffers = Buffers(maps.__getitem__, {})
            kernels += [DEFINITIONS[type(step)](step, buffers) for step in self.rest]

        def run() -> None:
            for kernel in kernels:
                kernel()

        return run
