"""The layers that OpenCV creates from a network's sections, with OpenCV's names.

OpenCV splits a [convolutional] into conv_3, bn_3 and leaky_4, and a [yolo] into permute_16 and
yolo_16. An activation's number is one above that of its section. A section unknown to OpenCV is one
layer, named after the section.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engine.darknet.graph import Graph, Node
from engine.darknet.layers.convolutional import Convolutional

Part = Literal["sums", "normalised", "before activation", "output", "channels last", "rows"]

_SIMPLE = {
    "maxpool": ("pool", "Pooling"),
    "avgpool": ("avgpool", "Pooling"),
    "softmax": ("softmax", "Softmax"),
    "dropout": ("identity", "Identity"),
    "cost": ("identity", "Identity"),
    "reorg": ("reorg", "Reorg"),
    "shortcut": ("shortcut", "Eltwise"),
    "sam": ("sam", "Eltwise"),
    "scale_channels": ("scale_channels", "Scale"),
    "upsample": ("upsample", "Resize"),
}
_LINEAR = {
    "convolutional": ("conv", "Convolution"),
    "connected": ("fullyConnected", "InnerProduct"),
}
_ACTIVATIONS = {
    "leaky": "ReLU",
    "relu": "ReLU",
    "swish": "Swish",
    "mish": "Mish",
    "logistic": "Sigmoid",
    "tanh": "TanH",
}


@dataclass(frozen=True)
class CvLayer:
    """An OpenCV layer: the section it belongs to, and which of the section's values it returns."""

    name: str
    type: str
    node: int
    part: Part


def layers_of(graph: Graph) -> tuple[CvLayer, ...]:
    """Return OpenCV's layers in its order; their ids count from 1, as 0 is the input."""
    found: list[CvLayer] = []
    number = 0
    for node in graph.nodes:
        slices = _slices(node)
        found += [
            CvLayer(f"slice_{number + each}", "Slice", node.index, "output")
            for each in range(slices)
        ]
        number += slices
        if slices != 1:
            found += _layers_of_node(node, number)
            number += 1
    return tuple(found)


def unconnected(graph: Graph, layers: tuple[CvLayer, ...]) -> tuple[int, ...]:
    """Return the positions of the layers whose output no other layer reads."""
    read = {source for node in graph.nodes for source in node.sources}
    last = {each.node: position for position, each in enumerate(layers)}
    return tuple(position for node, position in last.items() if node not in read)


def _slices(node: Node) -> int:
    """Return how many slices a [route] with groups makes; a single one is the whole layer."""
    groups = getattr(node.layer, "groups", 1)
    return len(node.sources) if node.kind == "route" and groups > 1 else 0


def _layers_of_node(node: Node, number: int) -> Iterator[CvLayer]:
    kind, layer, index = node.kind, node.layer, node.index
    if kind in ("yolo", "region"):
        yield CvLayer(f"permute_{number}", "Permute", index, "channels last")
        name = "detection_out" if kind == "region" else f"yolo_{number}"
        yield CvLayer(name, "Region", index, "rows")
        return
    if kind == "route":
        name, type_ = ("concat", "Concat") if len(node.sources) > 1 else ("identity", "Identity")
        yield CvLayer(f"{name}_{number}", type_, index, "output")
        return
    activation = getattr(layer, "activation", "linear")
    is_split = activation != "linear" and kind in (*_LINEAR, *_SIMPLE)
    if kind in _LINEAR:
        name, type_ = _LINEAR[kind]
        has_batch_norm = bool(getattr(layer, "batch_normalize", False)) or (
            isinstance(layer, Convolutional) and layer.cbn
        )
        is_whole = not (has_batch_norm or is_split)
        yield CvLayer(f"{name}_{number}", type_, index, "output" if is_whole else "sums")
        if has_batch_norm:
            part: Part = "normalised" if is_split else "output"
            yield CvLayer(f"bn_{number}", "BatchNorm", index, part)
    else:
        name, type_ = _SIMPLE.get(kind, (kind, kind))
        part = "before activation" if is_split else "output"
        yield CvLayer(f"{name}_{number}", type_, index, part)
    if is_split:
        type_ = _ACTIVATIONS.get(activation, activation)
        yield CvLayer(f"{activation}_{number + 1}", type_, index, "output")
