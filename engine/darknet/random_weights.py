"""Weights that nobody trained, for what does not depend on them: activations stay near 1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.darknet import weights
from engine.darknet.graph import Graph, Node

_NETWORK_INPUT = -1
_ACTIVATED = {"linear": 2.0, "swish": 0.8, "logistic": 0.3}  # mean squares; of the others near 1


def arrays(graph: Graph) -> tuple[dict[str, NDArray[np.float32]], ...]:
    """Normal ones for every filter, of the deviation that keeps the size of what passes through."""
    made = weights.initial(graph)
    rng = np.random.default_rng(0)
    sizes = {_NETWORK_INPUT: 1.0}
    for node, layer in zip(graph.nodes, made, strict=True):
        before, sizes[node.index] = _sizes(node, sizes)
        for name, values in layer.items():
            if name.endswith("variance"):
                layer[name] = np.ones_like(values)
            elif values.ndim > 1:
                deviation = (2 / (before * values[0].size)) ** 0.5
                layer[name] = rng.standard_normal(values.shape, np.float32) * np.float32(deviation)
    return made


def _sizes(node: Node, sizes: Mapping[int, float]) -> tuple[float, float]:
    """The mean square of what a layer reads, and of what it hands on.

    Without it each block of a residual network would double what passes, and each factor of
    scale_channels take most of it away: deep ones would leave the range of halves.
    """
    read = [sizes[source] for source in node.sources] or [1.0]
    if node.kind == "shortcut":
        return read[0], sum(read)
    if node.kind == "route":
        return read[0], max(read)
    if node.kind == "scale_channels":
        return read[0], read[0] * read[1]
    if any(len(parameter.shape) > 1 for parameter in node.parameters):
        return read[0], _ACTIVATED.get(getattr(node.layer, "activation", ""), 1.0)
    return read[0], read[0]
