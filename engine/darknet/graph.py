"""The network graph: layers with their sources and shapes, validated and counted."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from engine.concurrency.cached_property import cached_property
from engine.darknet import network_limits, options
from engine.darknet.cfg import Option, Section
from engine.darknet.layers import LAYERS, net
from engine.darknet.layers.base import (
    NETWORK_INPUT,
    DetectionLayer,
    Layer,
    LayerContext,
    Parameter,
    from_section,
    unknown_options,
)
from engine.darknet.layers.net import Net
from engine.darknet.layers.softmax import Softmax
from engine.darknet.warnings_limit import MAX_WARNINGS
from engine.errors import ConfigError, InputError, suggest
from engine.plan.shapes import Shape

HEADER_BYTES = 20  # in .weights files of current darknet; old files have 16

_STRIDES = (2, 4, 8, 16, 32, 64, 128)  # total strides of networks

_log = logging.getLogger("engine")


def named_task(task: str) -> str:
    """Return how errors describe a network with an unexpected Graph.task."""
    return "another network" if task == "other" else f"a {task}"


@dataclass(frozen=True)
class Node:
    """A layer with its place in the network: sources, shapes and parameters."""

    layer: Layer
    sources: tuple[int, ...]  # -1 is the network's input
    shapes: tuple[Shape, ...]  # shapes of the sources
    shape: Shape
    parameters: tuple[Parameter, ...]

    @property
    def index(self) -> int:
        return self.layer.context.index

    @property
    def kind(self) -> str:
        return self.layer.kind

    @property
    def line(self) -> int:
        return self.layer.context.section.line

    @property
    def operations(self) -> int:
        """Return the number of multiplications and additions for one sample."""
        return self.layer.operations(self.shape, *self.shapes)

    @property
    def stored(self) -> tuple[Parameter, ...]:
        """Return the parameters that the .weights file holds."""
        if self.layer.dontload or self.layer.donor is not None:
            return ()
        return tuple(each for each in self.parameters if each.in_file)

    @property
    def parameter_count(self) -> int:
        return sum(each.size for each in self.stored)


@dataclass(frozen=True)
class Graph:
    net: Net
    nodes: tuple[Node, ...]
    file: str  # name in messages

    @property
    def output(self) -> Node:
        """Return the last layer that is not a training loss."""
        return next(
            (node for node in reversed(self.nodes) if not node.layer.is_cost), self.nodes[-1]
        )

    @property
    def titles(self) -> tuple[str, ...]:
        """Return the name of each layer as messages show it."""
        return tuple(f"{self.file}: layer {node.index} [{node.kind}]" for node in self.nodes)

    @cached_property
    def detections(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.layer.is_detection)

    @cached_property
    def task(self) -> Literal["detector", "classifier", "other"]:
        if self.detections:
            return "detector"
        is_softmax = self.output.kind == "softmax" and self.net.channels > 0
        has_names = self.output.shape.size <= network_limits.CLASSES
        return "classifier" if is_softmax and has_names else "other"

    @property
    def classes(self) -> int:
        """Return the number of classes, or 0 if the network is no detector or classifier."""
        if self.detections:
            return max(_detection(node).classes for node in self.detections)
        return self.output.shape.size if self.task == "classifier" else 0

    @property
    def tree_parents(self) -> tuple[int, ...]:
        """Return the parent of each class of a hierarchical classifier; otherwise ()."""
        last = self.output.layer
        tree = last.read_tree() if isinstance(last, Softmax) and last.groups == 1 else None
        return tree.parents if tree and self.task == "classifier" else ()

    @property
    def nms(self) -> tuple[str, float]:
        """Return kind and exponent of NMS, which darknet takes from the last detection layer."""
        return _detection(self.detections[-1]).nms if self.detections else ("default", 0.6)

    @property
    def letter_box(self) -> bool:
        return self.net.letter_box

    @cached_property
    def operations(self) -> int:
        return sum(node.operations for node in self.nodes)

    @cached_property
    def parameter_count(self) -> int:
        return sum(node.parameter_count for node in self.nodes)

    @property
    def weights_bytes(self) -> int:
        """Return the size of the .weights file with the current header."""
        return HEADER_BYTES + 4 * self.parameter_count


def build(
    sections: Sequence[Section], *, size: tuple[int, int] | None = None, time_steps: int = 1
) -> Graph:
    """Build the network that `sections` describe, for inputs of `size` (width, height) if given."""
    network = replace(_net(sections[0]), time_steps=time_steps)
    if size is None:
        graph = _connected(network, sections)
    else:
        try:
            graph = _connected(_resized(network, size), sections)
        except ConfigError:
            _refuse_size_between_strides(network, sections, size)
            raise
    _warn_about_unknown_options(sections)
    return graph


def _connected(network: Net, sections: Sequence[Section]) -> Graph:
    _check_size(network.shape, f"{network.where}: the input")
    if len(sections) == 1:
        raise ConfigError(f"{network.where}: expected layers after it, got none")
    nodes = _Builder(network)
    for index, section in enumerate(sections[1:]):
        nodes.add(LayerContext(index, section, network))
    return Graph(network, nodes.finish(), sections[0].file)


def _resized(network: Net, size: tuple[int, int]) -> Net:
    return replace(network, width=size[0], height=size[1], inputs=0)


def _refuse_size_between_strides(
    network: Net, sections: Sequence[Section], size: tuple[int, int]
) -> None:
    """Raise an InputError with the nearest sizes if only multiples of a stride can be built.

    Maps of different resolutions meet in one layer only if every division on the way is exact.
    """
    for stride in _STRIDES:
        below, above = (
            (round_side(size[0] / stride) * stride, round_side(size[1] / stride) * stride)
            for round_side in (math.floor, math.ceil)
        )
        nearest = [each for each in (below, above) if min(each) > 0]
        if size not in nearest and all(_can_build(network, sections, each) for each in nearest):
            expected = " or ".join(map(_size_text, nearest))
            raise InputError(
                f"size: expected a multiple of {stride}, got {_size_text(size)}. Try {expected}"
            )


def _can_build(network: Net, sections: Sequence[Section], size: tuple[int, int]) -> bool:
    try:
        _connected(_resized(network, size), sections)
    except ConfigError:
        return False
    return True


def _size_text(size: tuple[int, int]) -> str:
    width, height = size
    return str(width) if width == height else f"{width}x{height}"


class _Builder:
    """Append layers one by one and check the running totals against the limits."""

    def __init__(self, network: Net) -> None:
        self._input = network.shape
        self._nodes: list[Node] = []
        self._makes_map: list[bool] = []
        self._consumers: list[list[Layer]] = []
        self._references = self._parameters = self._activations = self._operations = 0
        self._trees = 0

    def add(self, context: LayerContext) -> None:
        tree = context.section.first.get("tree")
        self._trees += tree is not None
        if tree is not None:
            _limit(self._trees, network_limits.TREES, f"{context.section.where} tree: files in all")
        layer = from_section(_layer_class(context.section), context)
        sources = layer.sources()
        self._references += len(sources)
        _limit(
            self._references,
            network_limits.REFERENCES,
            f"{layer.where}: references to earlier layers in all",
        )
        if layer.needs_map:
            self._check_maps(layer, sources)
        shapes = tuple(
            self._input if each == NETWORK_INPUT else self._nodes[each].shape for each in sources
        )
        shape = layer.infer(*shapes)
        for size in (*layer.intermediates(*shapes), shape):
            if min(size.sides) < 1:
                name = "output" if size is shape else "map before the blur"
                raise layer.error("", f"leaves nothing of its input: the {name} would be {size}")
        _check_size(shape, f"{layer.where}: the output")
        _check_size(layer.padded(*shapes), f"{layer.where}: the padded input")
        if isinstance(layer, DetectionLayer):
            _limit(layer.classes, network_limits.CLASSES, f"{layer.at('classes')}")
        parameters = layer.parameters(*shapes)
        for each in parameters:
            _limit(each.size, network_limits.VALUES, f"{layer.where} {each.name}: numbers")
        node = Node(layer, sources, shapes, shape, parameters)
        if layer.donor is not None:
            self._check_donor(node, self._nodes[layer.donor])
        self._parameters += node.parameter_count
        _limit(self._parameters, network_limits.PARAMETERS, f"{layer.where}: weights up to here")
        self._activations += shape.size
        _limit(self._activations, network_limits.ACTIVATIONS, f"{layer.where}: outputs up to here")
        self._operations += node.operations
        _limit(self._operations, network_limits.OPERATIONS, f"{layer.where}: operations up to here")
        self._nodes.append(node)
        self._makes_map.append(layer.makes_map(*shapes))
        self._consumers.append([])
        for source in {*sources} - {NETWORK_INPUT}:
            self._consumers[source].append(layer)

    def finish(self) -> tuple[Node, ...]:
        return tuple(
            replace(node, layer=node.layer.with_consumers(consumers))
            for node, consumers in zip(self._nodes, self._consumers, strict=True)
        )

    def _check_maps(self, layer: Layer, sources: tuple[int, ...]) -> None:
        for source in sources:
            if source != NETWORK_INPUT and not self._makes_map[source]:
                kind = self._nodes[source].kind
                raise layer.error(
                    "", f"expected a feature map, got the vector of layer {source} [{kind}]"
                )

    def _check_donor(self, node: Node, donor: Node) -> None:
        wanted = {each.name: each.shape for each in node.parameters}
        found = {each.name: each.shape for each in donor.parameters}
        for name in ("weight", "bias"):
            if wanted.get(name) != found.get(name):
                raise node.layer.error(
                    "share_index",
                    f"expected a layer with {name} {wanted.get(name)}, "
                    f"got layer {donor.index} [{donor.kind}] with {found.get(name)}",
                )


def _net(section: Section) -> Net:
    if section.name not in Net.spellings:
        raise ConfigError(
            f"{section.file}:{section.line}: expected [net] as the first section, "
            f"got [{section.name}]"
        )
    return net.from_section(section)


def _layer_class(section: Section) -> type[Layer]:
    where = f"{section.file}:{section.line}"
    if section.name in Net.spellings:
        raise ConfigError(f"{where}: expected a layer, got a second [{section.name}]")
    if section.name not in LAYERS:
        raise ConfigError(
            f"{where}: unknown section [{section.name}].{suggest(section.name, LAYERS)}"
        )
    return LAYERS[section.name]


def _check_size(shape: Shape, what: str) -> None:
    limit = network_limits.VALUES
    if shape.size > limit:
        raise ConfigError(f"{what} of {shape} is too large: expected at most {limit} values")


def _limit(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise ConfigError(f"{what}: expected at most {limit}, got {count}")


def _detection(node: Node) -> DetectionLayer:
    assert isinstance(node.layer, DetectionLayer), node.kind
    return node.layer


def _warn_about_unknown_options(sections: Sequence[Section]) -> None:
    """Warn once for each key of each kind of section, where it first occurs."""
    found: dict[tuple[str, str], tuple[Section, Option]] = {}
    for section in sections:
        for unknown in unknown_options(_class_of(section), section):
            found.setdefault((section.name, unknown.key), (section, unknown))
    for section, unknown in islice(found.values(), MAX_WARNINGS):
        key = unknown.key[:60]
        hint = suggest(key, options.keys(_class_of(section)))
        where = f"{section.file}:{unknown.line}: [{section.name}]"
        _log.warning("%s unknown option %r is ignored.%s", where, key, hint)
    if len(found) > MAX_WARNINGS:
        _log.warning("%s: %d more unknown options", sections[0].file, len(found) - MAX_WARNINGS)


def _class_of(section: Section) -> type[Layer] | type[Net]:
    return Net if section.name in Net.spellings else LAYERS[section.name]
