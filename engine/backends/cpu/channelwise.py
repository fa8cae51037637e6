"""Normalisation and softmax over the channels of a pixel or over runs of values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.arrays import Array
from engine.backends.cpu.storage import Buffers, Kernel, flat
from engine.plan import ops

SUM_FLOOR = 1e-4  # darknet adds it to every sum over channels
BLOCK_BYTES = 256 * 1024  # of a softmax: it passes several times over what is in the cache


def normalise_channels(op: ops.NormaliseChannels, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)

    def run() -> None:
        if op.kind == "positive":
            np.maximum(src, 0, out=out)
        elif op.kind == "softmax":
            np.exp(src, out=out)
        else:
            np.exp(src - src.max(axis=-1, keepdims=True), out=out)
        np.divide(out, out.sum(axis=-1, keepdims=True) + SUM_FLOOR, out=out)

    return run


def l2_norm(op: ops.L2Norm, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)

    def run() -> None:
        np.divide(src, np.sqrt(np.square(src).sum(axis=-1, keepdims=True)), out=out)

    return run


def local_norm(op: ops.LocalNorm, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    channels = src.shape[-1]
    ahead, behind = op.size // 2, (op.size - 1) // 2 + 1

    def run() -> None:
        square = np.square(src)
        change = np.zeros_like(square)
        change[..., 0] = square[..., :ahead].sum(axis=-1)
        change[..., 1 : max(1, channels - ahead)] = square[..., ahead + 1 :]
        change[..., behind:] -= square[..., : max(0, channels - behind)]
        norm = op.kappa + op.alpha * np.cumsum(change, axis=-1)
        np.multiply(src, norm**-op.beta, out=out)

    return run


def softmax(op: ops.Softmax, buffers: Buffers) -> Kernel:
    src, out = buffers.nchw(op.src), buffers.nchw(op.out)

    def run() -> None:
        out[...] = softmax_runs(flat(src) / op.temperature, op.runs).reshape(out.shape)

    return run


def softmax_runs(values: Array, runs: Sequence[int]) -> Array:
    """Return the softmax over runs of values along the last axis; the lengths repeat."""
    groups = values.reshape(-1, sum(runs))
    starts = np.cumsum((0, *runs[:-1]))
    result = np.empty_like(groups)
    block = max(1, BLOCK_BYTES // groups[0].nbytes)
    for first in range(0, len(groups), block):
        # transposed, because NumPy reduces whole rows at a time
        part = groups[first : first + block].T.copy()
        part -= np.repeat(np.maximum.reduceat(part, starts), runs, axis=0)
        np.exp(part, out=part)
        part /= np.repeat(np.add.reduceat(part, starts), runs, axis=0)
        result[first : first + block] = part.T
    return result.reshape(values.shape)
