"""Input and output shapes of OpenCV's layers, and the operations that OpenCV counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from engine.arrays import Array
from engine.compat.cv2_dnn.layers import CvLayer
from engine.darknet.graph import Graph, Node
from engine.darknet.layers.base import NETWORK_INPUT
from engine.darknet.layers.maxpool import MaxPool
from engine.darknet.layers.region import Region
from engine.darknet.layers.route import Route
from engine.darknet.layers.yolo import Yolo
from engine.errors import InputError

Sides: TypeAlias = tuple[int, ...]  # pictures, channels, height, width
Shapes: TypeAlias = tuple[tuple[Array, ...], ...]  # tensor shapes of each layer

KEEP_SHAPE = ("softmax", "dropout", "cost")  # sections that keep the shape of their input

# Operations per output value, as OpenCV counts them.
_PER_VALUE = {
    "BatchNorm": 3,
    "Mish": 3,
    "ReLU": 1,
    "Sigmoid": 3,
    "Softmax": 4,
    "Swish": 3,
    "TanH": 1,
}
# Operations per input value.
_PER_INPUT = {"Region": 60, "Reorg": 21, "Scale": 2}


class LayerShapes(NamedTuple):
    """A layer with the shapes of its inputs and of its output."""

    layer: CvLayer
    inputs: tuple[Sides, ...]
    output: Sides


def of_input(given: Any, channels: int) -> tuple[int, int, int]:
    """Return pictures, height and width of an input shape, which may be in a list of one."""
    try:
        numbers = np.asarray(given).reshape(-1)
    except ValueError:  # lists of different lengths
        numbers = np.zeros(0)
    is_shape = numbers.dtype.kind in "iu" and len(numbers) == 4 and (numbers > 0).all()
    if not is_shape or numbers[1] != channels:
        raise InputError(f"shape: expected (pictures, {channels}, height, width), got {given!r}")
    count, _, height, width = numbers.tolist()
    return count, height, width


def as_arrays(shapes: Iterable[Iterable[Sides]]) -> Shapes:
    return tuple(tuple(np.array(each, np.int32) for each in layer) for layer in shapes)


def shapes_of(graph: Graph, layers: tuple[CvLayer, ...], count: int) -> Iterator[LayerShapes]:
    """Yield the shapes of all layers for `count` pictures of the graph's size."""
    source = (count, *graph.net.shape.sides)
    outputs: dict[int, Sides] = {NETWORK_INPUT: source}
    for index, group in groupby(layers, key=lambda each: each.node):
        node = graph.nodes[index]
        sources = [outputs[each] for each in node.sources]
        inputs: list[Sides] = []
        for layer in group:
            if layer.type == "Slice":  # each reads one source; the next layer reads all slices
                whole = sources[len(inputs)]
                shapes = LayerShapes(layer, (whole,), _sliced(node, whole))
                inputs.append(shapes.output)
            else:
                read = tuple(inputs or sources)
                if isinstance(node.layer, Yolo) and layer.part == "rows":
                    read = (*read, source)
                shapes = LayerShapes(layer, read, _output(node, layer, read[0]))
                inputs = [shapes.output]
            outputs[index] = shapes.output
            yield shapes


def _sliced(node: Node, source: Sides) -> Sides:
    assert isinstance(node.layer, Route)
    return (source[0], source[1] // node.layer.groups, *source[2:])


def _output(node: Node, layer: CvLayer, source: Sides) -> Sides:
    count = source[0]
    if layer.part == "channels last":
        return (count, *source[2:], source[1])
    if layer.part == "rows":
        assert isinstance(node.layer, Yolo | Region)
        values = 5 + node.layer.classes
        rows = prod(source[1:]) // values, values
        return rows if count == 1 else (count, *rows)
    if node.kind in KEEP_SHAPE:
        return source
    return (count, node.shape.size) if node.kind == "connected" else (count, *node.shape.sides)


def operations_of(graph: Graph, shapes: LayerShapes) -> int:
    """Return the operations that OpenCV counts for a layer."""
    layer, inputs, output = shapes
    node = graph.nodes[layer.node]
    values = prod(output)
    if layer.type == "Convolution":
        groups = getattr(node.layer, "groups", 1)  # OpenCV counts as if there were none
        return output[0] * node.operations * groups + values
    if layer.type == "InnerProduct":
        return 3 * prod(inputs[0][1:]) * values
    if layer.type == "Pooling":
        return values * (_window(node.layer) if isinstance(node.layer, MaxPool) else 2)
    if layer.type == "Eltwise":
        return len(inputs) * values
    read = sum(map(prod, inputs))
    return _PER_VALUE.get(layer.type, 0) * values + _PER_INPUT.get(layer.type, 0) * read


def _window(layer: MaxPool) -> int:
    return (layer.size or layer.stride) ** 2
