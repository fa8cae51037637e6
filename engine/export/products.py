"""Sums of products in ONNX: convolutions and dense layers."""

from __future__ import annotations

import numpy as np

from engine.export.activations import activate
from engine.export.writer import Writer, writes
from engine.plan import ops


@writes(ops.Conv2d)
def convolution(onto: Writer, op: ops.Conv2d) -> str:
    assert (op.pool, op.residual) == (None, None), "only PASSES are for export"
    value, pads = onto[op.src], _reached(op)
    if op.signed:
        value, pads = _signs(onto, value, pads), (0, 0, 0, 0)
    arrays = [op.weight] if op.bias is None else [op.weight, op.bias]
    value = onto.node(
        "Conv",
        value,
        *map(onto.constant, arrays),
        kernel_shape=op.kernel,
        strides=op.stride,
        pads=pads,
        dilations=op.dilation,
        group=op.groups,
    )
    return activate(onto, value, op.activation)


def _reached(op: ops.Conv2d) -> tuple[int, int, int, int]:
    """Its padding; more of it where a window is larger than the map: darknet's count truncates."""
    top, left, bottom, right = op.padding
    bottom, right = (
        max(behind, (kernel - 1) * dilation + 1 - side - before)
        for behind, kernel, dilation, side, before in zip(
            *((bottom, right), op.kernel, op.dilation, op.src.shape.sides[1:], (top, left)),
            strict=True,
        )
    )
    return top, left, bottom, right


def _signs(onto: Writer, value: str, pads: tuple[int, int, int, int]) -> str:
    """What is not positive counts as -1, cells outside too."""
    is_positive = onto.node("Greater", value, onto.number(0))
    value = onto.node("Where", is_positive, onto.number(1), onto.number(-1))
    return onto.pad(value, (0, 0, *pads[:2]), (0, 0, *pads[2:]), -1) if any(pads) else value


@writes(ops.Deconv2d)
def deconvolution(onto: Writer, op: ops.Deconv2d) -> str:
    arrays = [op.weight] if op.bias is None else [op.weight, op.bias]
    return onto.node(
        "ConvTranspose",
        onto[op.src],
        *map(onto.constant, arrays),
        kernel_shape=op.weight.shape[2:],
        strides=[op.stride] * 2,
        pads=[op.padding] * 4,
    )


@writes(ops.LocalConv2d)
def local_convolution(onto: Writer, op: ops.LocalConv2d) -> str:
    """Unfold by a convolution whose filters pick one value each; then a product for each cell."""
    channels, cells = op.src.shape.channels, op.out.shape.area
    window = op.size * op.size
    picks = np.eye(window, dtype=np.float32).reshape(window, 1, op.size, op.size)
    columns = onto.node(
        "Conv",
        onto[op.src],
        onto.array(np.tile(picks, (channels, 1, 1, 1))),
        kernel_shape=[op.size] * 2,
        strides=[op.stride] * 2,
        pads=[op.padding] * 4,
        group=channels,
    )
    columns = onto.reshape(columns, 0, channels * window, cells)
    columns = onto.node("Transpose", columns, perm=[2, 1, 0])  # cells, values, batch
    sums = onto.node("MatMul", onto.constant(op.weight), columns)
    sums = onto.shaped(onto.node("Transpose", sums, perm=[2, 1, 0]), op.out.shape)
    bias = onto.values(op.bias).reshape(1, *op.out.shape.sides)
    return onto.node("Add", sums, onto.array(bias))


@writes(ops.MatMul)
def dense(onto: Writer, op: ops.MatMul) -> str:
    flat = onto.reshape(onto[op.src], 0, op.src.shape.size)
    arrays = [op.weight] if op.bias is None else [op.weight, op.bias]
    sums = onto.node("Gemm", flat, *map(onto.constant, arrays), transB=1)
    return activate(onto, onto.shaped(sums, op.out.shape), op.activation)
