"""Pooling as ONNX nodes."""

from __future__ import annotations

import numpy as np

from engine.export.graph_builder import GraphBuilder, exports
from engine.plan import ops
from engine.plan.shapes import Shape, Window

_LOWEST = float(np.finfo(np.float32).min)


@exports(ops.MaxPool)
def max_pool(graph: GraphBuilder, op: ops.MaxPool) -> str:
    value, window = graph[op.src], op.window
    pads = _padding(graph, op)
    if not _fits(window, pads):  # ONNX has no windows that lie entirely in the padding
        value = graph.pad(value, (0, 0, *pads[:2]), (0, 0, *pads[2:]), _LOWEST)
        pads = (0, 0, 0, 0)
    return graph.node("MaxPool", value, kernel_shape=window.size, strides=window.stride, pads=pads)


@exports(ops.AveragePool)
def average_pool(graph: GraphBuilder, op: ops.AveragePool) -> str:
    covers_map = op.window == Window((op.src.shape.height, op.src.shape.width))
    # a [local_avgpool] may have the same window, but it does not grow with the map
    if covers_map and graph.varies(op.src) and graph.title.endswith("[avgpool]"):
        graph.mark_fixed(op.out)
        return graph.node("GlobalAveragePool", graph[op.src])
    pads = _padding(graph, op)
    if not _fits(op.window, pads):
        graph.reject("windows that lie entirely in the padding")
    return graph.node(
        "AveragePool",
        graph[op.src],
        kernel_shape=op.window.size,
        strides=op.window.stride,
        pads=pads,
        count_include_pad=0,
    )


@exports(ops.MaxPoolDepth)
def max_pool_depth(graph: GraphBuilder, op: ops.MaxPoolDepth) -> str:
    channels, groups = op.src.shape.channels, op.out.shape.channels
    per_group = -(-channels // groups)
    value, missing = graph[op.src], per_group * groups - channels
    if missing:
        value = graph.pad(value, (0, 0, 0, 0), (0, missing, 0, 0), _LOWEST)
    rest = -1 if graph.varies(op.src) else op.out.shape.size
    layers = graph.reshape(value, 0, per_group, rest)
    return graph.reshape_map(graph.reduce("Max", layers, 1), op.out.shape, op.src)


def _padding(graph: GraphBuilder, op: ops.MaxPool | ops.AveragePool) -> tuple[int, int, int, int]:
    """Return the padding that windows reach or, with a dynamic size, all of it.

    In both cases the number of windows is darknet's, unless one window covers the whole map: then
    the padding may exceed the .cfg's.
    """
    if not graph.varies(op.src):
        return _used_padding(op.window, op.src.shape, op.out.shape)
    top, left, bottom, right = op.window.padding
    extents = (op.src.shape.height + top + bottom, op.src.shape.width + left + right)
    if any(size == extent for size, extent in zip(op.window.size, extents, strict=True)):
        graph.require_fixed("a window as large as its map", op.src)
    return op.window.padding


def _used_padding(window: Window, src: Shape, out: Shape) -> tuple[int, int, int, int]:
    """Return the padding that windows reach; with more, ONNX would add another window."""
    top, left, _, _ = window.padding
    bottom = (out.height - 1) * window.stride[0] + window.size[0] - top - src.height
    right = (out.width - 1) * window.stride[1] + window.size[1] - left - src.width
    return top, left, max(0, bottom), max(0, right)


def _fits(window: Window, pads: tuple[int, int, int, int]) -> bool:
    (height, width), (top, left, bottom, right) = window.size, pads
    return max(top, bottom) < height and max(left, right) < width
