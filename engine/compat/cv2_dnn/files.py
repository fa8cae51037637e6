"""Distinguish darknet's files from others, and read them from paths or buffers."""

from __future__ import annotations

import os
import sys
from numbers import Real
from pathlib import Path
from reprlib import repr as brief
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np

from engine.arrays import Array
from engine.darknet import cfg, graph, weights
from engine.darknet.cfg import Section
from engine.darknet.graph import Graph
from engine.darknet.layers.base import Weights
from engine.errors import InputError

Buffer: TypeAlias = "bytes | bytearray | memoryview | Array"
Content: TypeAlias = "str | os.PathLike[str] | Buffer"

DARKNET_EPSILON = 1e-5  # added to the variance in batch normalisation; OpenCV adds 1e-6

_SUFFIXES = (".cfg", ".weights")
_OF_OTHERS = (
    *(".caffemodel", ".prototxt", ".pb", ".pbtxt", ".t7", ".net"),
    *(".xml", ".onnx", ".tflite"),
)


def is_buffer(given: object) -> TypeGuard[Buffer]:
    return isinstance(given, (bytes, bytearray, memoryview, np.ndarray))


def is_nothing(given: Content) -> bool:
    """Return whether no file was given, or an empty buffer."""
    return not len(given if is_buffer(given) else str(given))


def is_darknet(*given: Any, framework: str = "") -> bool:
    """Return whether readNet() should read these arguments as a darknet network.

    As in OpenCV 4, one darknet suffix is enough: weights may be called x.backup.
    """
    if framework:
        return framework.lower() == "darknet"
    suffixes = {_suffix(each) for each in given}
    return not suffixes.isdisjoint(_SUFFIXES) and suffixes.isdisjoint(_OF_OTHERS)


def in_order(config: Content, weights: Content) -> tuple[Content, Content]:
    """Return .cfg and .weights, which are in this order unless their suffixes say otherwise."""
    is_swapped = _suffix(config) == ".weights" or _suffix(weights) == ".cfg"
    return (weights, config) if is_swapped else (config, weights)


def _suffix(given: Content) -> str:
    return Path(given).suffix.lower() if isinstance(given, (str, os.PathLike)) else ""


def read_sections(config: Content) -> tuple[Section, ...]:
    if isinstance(config, (str, os.PathLike)):
        return cfg.read(Path(config))
    return cfg.parse(cfg.decode(_bytes(config), "cfg"))


def read_weights(source: Content, network: Graph, epsilon: float) -> tuple[Weights, ...]:
    """Return the arrays of the network; without a file they have their initial values.

    The engine adds darknet's epsilon to each variance later; the difference to `epsilon` is added
    here.
    """
    layers = _read_weights(source, network)
    if epsilon == DARKNET_EPSILON:
        return layers
    change = np.float32(checked_epsilon(epsilon) - DARKNET_EPSILON)
    return tuple(
        {name: each + change if name == "variance" else each for name, each in layer.items()}
        for layer in layers
    )


def checked_epsilon(epsilon: float) -> float:
    is_number = isinstance(epsilon, Real) and not isinstance(epsilon, bool)
    if not (is_number and 0 < epsilon <= sys.float_info.max):
        raise InputError(f"epsilon: expected a positive number, got {brief(epsilon)}")
    return epsilon


def _read_weights(source: Content, network: Graph) -> tuple[Weights, ...]:
    if is_nothing(source):
        return weights.initial(network)
    if is_buffer(source):
        return weights.loads(_bytes(source), network)
    return weights.load(Path(cast("str", source)), network)


def build(sections: tuple[Section, ...], size: tuple[int, int] | None = None) -> Graph:
    return graph.build(sections, size=size)


def _bytes(given: Buffer) -> bytes:
    if isinstance(given, np.ndarray):
        if given.dtype != np.uint8:
            raise InputError(f"buffer: expected uint8, got {given.dtype}")
        return given.tobytes()
    if not is_buffer(given):  # bytes(5) would be five zeros
        raise InputError(f"expected the name of a file or its bytes, got {type(given).__name__}")
    return bytes(given)
