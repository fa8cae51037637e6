"""Linear ops except convolutions, which are in conv/."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from engine.backends.cpu.pooling import taps
from engine.backends.cpu.storage import Buffers, Kernel, flat
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS


def matmul(op: ops.MatMul, buffers: Buffers) -> Kernel:
    src, out = buffers.nchw(op.src), buffers.nchw(op.out)
    weight = buffers.constant(op.weight).T
    bias = None if op.bias is None else buffers.constant(op.bias)
    function = ACTIVATIONS[op.activation].numpy

    def run() -> None:
        sums = np.matmul(flat(src), weight)
        if bias is not None:
            sums += bias
        out[...] = function(sums).reshape(out.shape)

    return run


def gate(op: ops.Gate, buffers: Buffers) -> Kernel:
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    squeeze, expand = (buffers.constant(each)[:, :, 0, 0].T for each in (op.squeeze, op.expand))
    biases = [each and buffers.constant(each) for each in (op.squeeze_bias, op.expand_bias)]
    functions = [ACTIVATIONS[name].numpy for name in (op.squeeze_activation, op.activation)]

    def run() -> None:
        values = src.mean(axis=(1, 2))
        for weight, bias, function in zip((squeeze, expand), biases, functions, strict=True):
            values = values @ weight
            values = function(values if bias is None else values + bias)
        out[:, 0, 0] = values

    return run


def deconv2d(op: ops.Deconv2d, buffers: Buffers) -> Kernel:
    """Add the product of each tap of the kernel to the output cells below it."""
    src, out = buffers.nhwc(op.src), buffers.nhwc(op.out)
    weight = buffers.constant(op.weight)
    bias = None if op.bias is None else buffers.constant(op.bias)
    size = weight.shape[-1]
    # the taps of a convolution from `out` to `src`, with input and output exchanged
    down = list(taps(out.shape[1], src.shape[1], size, stride=op.stride, before=op.padding))
    across = list(taps(out.shape[2], src.shape[2], size, stride=op.stride, before=op.padding))

    def run() -> None:
        out[...] = 0 if bias is None else bias
        for i, from_y, to_y in down:
            for j, from_x, to_x in across:
                out[:, to_y, to_x] += np.matmul(src[:, from_y, from_x], weight[:, :, i, j])

    return run


def local_conv2d(op: ops.LocalConv2d, buffers: Buffers) -> Kernel:
    src, out = buffers.nchw(op.src), buffers.nchw(op.out)
    weight = buffers.constant(op.weight)
    bias = buffers.constant(op.bias).reshape(out.shape[1:])
    rows, channels, height, width = src.shape
    out_height, out_width = out.shape[2:]
    top = left = op.padding
    tall = max(top + height, (out_height - 1) * op.stride + op.size)
    wide = max(left + width, (out_width - 1) * op.stride + op.size)

    def run() -> None:
        padded = np.zeros((rows, channels, tall, wide), src.dtype)
        padded[:, :, top : top + height, left : left + width] = src
        windows = sliding_window_view(padded, (op.size, op.size), axis=(2, 3))
        windows = windows[:, :, :: op.stride, :: op.stride][:, :, :out_height, :out_width]
        columns = windows.transpose(2, 3, 1, 4, 5, 0).reshape(out_height * out_width, -1, rows)
        sums = np.matmul(weight, columns)
        out[...] = sums.transpose(2, 1, 0).reshape(out.shape) + bias

    return run
