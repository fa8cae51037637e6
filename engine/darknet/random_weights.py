"""Random weights for tests and benchmarks, scaled so that activations keep a mean square near 1."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from engine.darknet import weights
from engine.darknet.graph import Graph, Node
from engine.darknet.layers.base import NETWORK_INPUT

# mean square of an activation's output; near 1 for those not listed
_MEAN_SQUARES = {"linear": 2.0, "swish": 0.8, "logistic": 0.3}


def arrays(graph: Graph) -> tuple[dict[str, NDArray[np.float32]], ...]:
    """Draw normally distributed filters whose deviation preserves the scale of the activations."""
    layers = weights.initial(graph)
    rng = np.random.default_rng(0)
    mean_squares = {NETWORK_INPUT: 1.0}
    for node, layer in zip(graph.nodes, layers, strict=True):
        read, mean_squares[node.index] = _mean_squares(node, mean_squares)
        for name, values in layer.items():
            if name.endswith("variance"):
                layer[name] = np.ones_like(values)
            elif values.ndim > 1:
                deviation = (2 / (read * values[0].size)) ** 0.5
                layer[name] = rng.standard_normal(values.shape, np.float32) * np.float32(deviation)
    return layers


def _mean_squares(node: Node, known: Mapping[int, float]) -> tuple[float, float]:
    """Estimate the mean squares of a layer's input and output.

    Without this estimate, the activations of a deep network would leave float16's range: each
    residual block doubles them, and each scale_channels shrinks them.
    """
    read = [known[source] for source in node.sources] or [1.0]
    if node.kind == "shortcut":
        return read[0], sum(read)
    if node.kind == "route":
        return read[0], max(read)
    if node.kind == "scale_channels":
        return read[0], read[0] * read[1]
    if any(len(parameter.shape) > 1 for parameter in node.parameters):
        return read[0], _MEAN_SQUARES.get(getattr(node.layer, "activation", ""), 1.0)
    return read[0], read[0]
