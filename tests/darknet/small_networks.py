"""Networks of a few lines, built from text, and the errors of refused ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.darknet import weights
from engine.darknet.cfg import parse
from engine.darknet.graph import Graph, build
from engine.darknet.lower import lower
from engine.errors import ConfigError
from engine.plan.build import Plan
from engine.plan.shapes import Shape
from tests import needs

SOURCE = Shape(8, 6, 10)

NET = "[net]\nwidth={0.width}\nheight={0.height}\nchannels={0.channels}\n"


def graph_of(layers: str, source: Shape = SOURCE, **kwargs: Any) -> Graph:
    """`layers` after a [net] of `source`; the first line of `layers` is line 5."""
    return build(parse(NET.format(source) + layers, name="net.cfg"), **kwargs)


def shapes_of(layers: str, source: Shape = SOURCE) -> list[Shape]:
    return [node.shape for node in graph_of(layers, source).nodes]


def refusal(layers: str, source: Shape = SOURCE) -> str:
    """Return the error line with which a network is refused, which must not take long."""
    return refusal_of_text(NET.format(source) + layers)


def refusal_of_text(text: str) -> str:
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        build(parse(text, name="net.cfg"))
    assert time.process_time() - start < 10
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


def plan_of(layers: str, source: Shape = SOURCE, seed: int = 0) -> Plan:
    graph = graph_of(layers, source)
    return lower(graph, random_weights(graph, seed))


def random_weights(graph: Graph, seed: int = 0) -> tuple[dict[str, Any], ...]:
    random = np.random.default_rng(seed)
    layers = weights.initial(graph)
    for arrays in layers:
        for name, array in arrays.items():
            arrays[name] = random.random(array.shape, np.float32)
    return layers


def shared_folder(name: str) -> Path:
    """A folder of reference data next to the repository; skip the test without it."""
    folder = Path(__file__).resolve().parents[3] / "shared" / name
    if not folder.is_dir():
        pytest.skip(needs.no_shared(name))
    return folder
