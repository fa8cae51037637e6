"""Locally connected layers and deconvolutions, by plain loops."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.registry import Arrays, runs
from engine.backends.cuda.ops.target import Target
from engine.plan import ops


def _local_weights(target: Target, op: ops.LocalConv2d, constants: Arrays) -> Arrays:
    """Weights (cells, window, filters) and bias (cells, filters): filters innermost."""
    weight = constants["weight"].transpose(0, 2, 1)
    bias = constants["bias"].reshape(op.out.shape.channels, -1).T
    return {name: np.ascontiguousarray(a) for name, a in (("weight", weight), ("bias", bias))}


@runs(ops.LocalConv2d, prepare=_local_weights)
def local_conv(gpu: Gpu, op: ops.LocalConv2d) -> None:
    _launch(gpu, op, "local_conv", op.size)


def _deconv_weights(target: Target, op: ops.Deconv2d, constants: Arrays) -> Arrays:
    """Weights (size, size, channels, filters): filters innermost."""
    weight = constants["weight"].transpose(2, 3, 0, 1)
    return {**constants, "weight": np.ascontiguousarray(weight)}


@runs(ops.Deconv2d, prepare=_deconv_weights)
def deconv(gpu: Gpu, op: ops.Deconv2d) -> None:
    _launch(gpu, op, "deconv", op.weight.shape[2])


def _launch(gpu: Gpu, op: ops.LocalConv2d | ops.Deconv2d, kernel: str, size: int) -> None:
    gpu.launch_map(
        kernel,
        op.src,
        op.out,
        weight=gpu.array(op, "weight"),
        bias=gpu.array(op, "bias"),
        channels=op.src.shape.channels,
        filters=op.out.shape.channels,
        size=size,
        stride=op.stride,
        padding=op.padding,
    )
