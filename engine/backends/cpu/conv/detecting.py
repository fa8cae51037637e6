"""A detection layer's own output, in the place of the sums that it is made of."""

from __future__ import annotations

from collections.abc import Callable

from engine.arrays import Array
from engine.backends.cpu.conv.base import Convolution
from engine.backends.cpu.outputs import yolo_values
from engine.plan import ops


class Detecting(Convolution):
    """Runs `inner`, made for `op.before_yolo`, and then what `op.yolo` does."""

    def __init__(self, op: ops.Conv2d, inner: Convolution) -> None:
        assert op.yolo is not None
        self.yolo = op.yolo
        self.inner = inner
        self.weights = inner.weights

    def bind(self, src: Array, out: Array, residual: Array | None = None) -> Callable[[], None]:
        convolve = self.inner.bind(src, out, residual)
        finish = yolo_values(self.yolo, out, out)

        def run() -> None:
            convolve()
            finish()

        return run
