"""A binary convolution: 32 channels in a word, xor and popcount instead of multiply and add.

The weights of such a layer are plus or minus one number for each filter (darknet's mean of the
absolute weights), so they are kept as bits and a scale.
"""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.conv.algorithm import Algorithm
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops


class Xnor(Algorithm):
    name = "xnor"
    priority = 10

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        return op.signed and op.groups == 1

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        return 4 * target.rows(op.src) * op.src.shape.area * _words(op)

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Return bits (kernel_y, kernel_x, words, filters) and a scale for each filter."""
        weight = constants["weight"]
        filters, channels = weight.shape[:2]
        bits = np.zeros((*op.kernel, _words(op), 32, filters), dtype=np.uint32)
        bits.reshape(*op.kernel, -1, filters)[:, :, :channels] = weight.transpose(2, 3, 1, 0) > 0
        words = (bits << np.arange(32, dtype=np.uint32)[:, None]).sum(axis=3, dtype=np.uint32)
        scale = np.abs(weight).reshape(filters, -1).max(axis=1).astype(np.float32)
        return {**constants, "weight": np.ascontiguousarray(words), "scale": scale}

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        words, pixels = _words(op), gpu.pixels(op.src)
        packed = {"out": gpu.workspace, "pixels": pixels, "words": words}
        gpu.launch_op("xnor_pack", op, pixels * words, **packed)
        own = {"src": gpu.workspace, "scale": gpu.array(op, "scale"), "words": words}
        gpu.launch_op("xnor_dot", op, **own)


def _words(op: ops.Conv2d) -> int:
    return -(-op.src.shape.channels // 32)


ALGORITHMS = (Xnor(),)
