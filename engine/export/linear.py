"""Convolutions and dense layers as ONNX nodes."""

from __future__ import annotations

import numpy as np

from engine.export.activations import activate
from engine.export.graph_builder import GraphBuilder, exports
from engine.plan import ops


@exports(ops.Conv2d)
def convolution(graph: GraphBuilder, op: ops.Conv2d) -> str:
    assert op.is_bare, "only onnx.PASSES can be exported"
    value, pads = graph[op.src], _effective_padding(op)
    if pads != op.padding:
        graph.require_fixed("a window that is larger than its map", op.src)
    extents = (op.src.shape.height + pads[0] + pads[2], op.src.shape.width + pads[1] + pads[3])
    if any(stride >= extent for stride, extent in zip(op.stride, extents, strict=True)):
        # the .cfg's stride may be longer, as the plan limits strides to the map
        graph.require_fixed("a stride as long as its map", op.src)
    if op.signed:
        graph.require_float32("signs (xnor), which rounding flips")
        value, pads = _signs(graph, value, pads), (0, 0, 0, 0)
    arrays = [op.weight] if op.bias is None else [op.weight, op.bias]
    value = graph.node(
        "Conv",
        value,
        *map(graph.constant, arrays),
        kernel_shape=op.kernel,
        strides=op.stride,
        pads=pads,
        dilations=op.dilation,
        group=op.groups,
    )
    return activate(graph, value, op.activation)


def _effective_padding(op: ops.Conv2d) -> tuple[int, int, int, int]:
    """Return the padding, enlarged where a window exceeds the padded map.

    Darknet's output size truncates toward zero, so such a map still has one window.
    """
    top, left, bottom, right = op.padding
    bottom, right = (
        max(after, (kernel - 1) * dilation + 1 - side - before)
        for after, kernel, dilation, side, before in zip(
            *((bottom, right), op.kernel, op.dilation, op.src.shape.sides[1:], (top, left)),
            strict=True,
        )
    )
    return top, left, bottom, right


def _signs(graph: GraphBuilder, value: str, pads: tuple[int, int, int, int]) -> str:
    """Map positive values to 1 and all others, including the padding, to -1."""
    is_positive = graph.node("Greater", value, graph.number(0))
    value = graph.node("Where", is_positive, graph.number(1), graph.number(-1))
    return graph.pad(value, (0, 0, *pads[:2]), (0, 0, *pads[2:]), -1) if any(pads) else value


@exports(ops.Deconv2d)
def deconvolution(graph: GraphBuilder, op: ops.Deconv2d) -> str:
    arrays = [op.weight] if op.bias is None else [op.weight, op.bias]
    return graph.node(
        "ConvTranspose",
        graph[op.src],
        *map(graph.constant, arrays),
        kernel_shape=op.weight.shape[2:],
        strides=[op.stride] * 2,
        pads=[op.padding] * 4,
    )


@exports(ops.LocalConv2d)
def local_convolution(graph: GraphBuilder, op: ops.LocalConv2d) -> str:
    """Export im2col as a convolution with one-hot filters, then a matrix product for each cell."""
    graph.require_fixed("weights for each cell", op.src)
    channels, cells = op.src.shape.channels, op.out.shape.area
    window = op.size * op.size
    one_hot = np.eye(window, dtype=np.float32).reshape(window, 1, op.size, op.size)
    columns = graph.node(
        "Conv",
        graph[op.src],
        graph.table(np.tile(one_hot, (channels, 1, 1, 1))),
        kernel_shape=[op.size] * 2,
        strides=[op.stride] * 2,
        pads=[op.padding] * 4,
        group=channels,
    )
    columns = graph.reshape(columns, 0, channels * window, cells)
    columns = graph.node("Transpose", columns, perm=[2, 1, 0])  # (cells, values, batch)
    sums = graph.node("MatMul", graph.constant(op.weight), columns)
    sums = graph.reshape_to(graph.node("Transpose", sums, perm=[2, 1, 0]), op.out.shape)
    bias = graph.constant_values(op.bias).reshape(1, *op.out.shape.sides)
    return graph.node("Add", sums, graph.table(bias))


@exports(ops.MatMul)
def dense(graph: GraphBuilder, op: ops.MatMul) -> str:
    graph.require_fixed("weights for each value of a map", op.src)
    flat = graph.reshape(graph[op.src], 0, op.src.shape.size)
    arrays = [op.weight] if op.bias is None else [op.weight, op.bias]
    sums = graph.node("Gemm", flat, *map(graph.constant, arrays), transB=1)
    return activate(graph, graph.reshape_to(sums, op.out.shape), op.activation)
