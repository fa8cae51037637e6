"""Ops that look across the channels of a pixel, or along a row's flat values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.backends.cpu.storage import Array, Buffers, Step, flat
from engine.plan import ops

SUM_FLOOR = 1e-4  # darknet adds it to every sum over channels


def normalise_channels(op: ops.NormaliseChannels, at: Buffers) -> Step:
    src, out = at.last(op.src), at.last(op.out)

    def run() -> None:
        if op.kind == "positive":
            np.maximum(src, 0, out=out)
        elif op.kind == "softmax":
            np.exp(src, out=out)
        else:
            np.exp(src - src.max(axis=-1, keepdims=True), out=out)
        np.divide(out, out.sum(axis=-1, keepdims=True) + SUM_FLOOR, out=out)

    return run


def l2_norm(op: ops.L2Norm, at: Buffers) -> Step:
    src, out = at.last(op.src), at.last(op.out)

    def run() -> None:
        np.divide(src, np.sqrt(np.square(src).sum(axis=-1, keepdims=True)), out=out)

    return run


def local_norm(op: ops.LocalNorm, at: Buffers) -> Step:
    src, out = at.last(op.src), at.last(op.out)
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


def softmax(op: ops.Softmax, at: Buffers) -> Step:
    src, out = at[op.src], at[op.out]

    def run() -> None:
        out[...] = softmax_runs(flat(src) / op.temperature, op.runs).reshape(out.shape)

    return run


def softmax_runs(values: Array, runs: Sequence[int]) -> Array:
    """Softmax over runs of consecutive values along the last axis; the lengths repeat."""
    length = sum(runs)
    groups = values.reshape(*values.shape[:-1], -1, length)
    starts = np.cumsum((0, *runs[:-1]))
    peaks = np.maximum.reduceat(groups, starts, axis=-1)
    powers = np.exp(groups - np.repeat(peaks, runs, axis=-1))
    sums = np.add.reduceat(powers, starts, axis=-1)
    return np.asarray(powers / np.repeat(sums, runs, axis=-1)).reshape(values.shape)
