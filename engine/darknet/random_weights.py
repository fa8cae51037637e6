"""Weights that nobody trained, for what does not depend on them: activations stay near 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.darknet import weights
from engine.darknet.graph import Graph


def arrays(graph: Graph) -> tuple[dict[str, NDArray[np.float32]], ...]:
    """Normal ones for every filter, of the deviation that keeps the size of what passes through."""
    made = weights.initial(graph)
    rng = np.random.default_rng(0)
    for layer in made:
        for name, values in layer.items():
            if name.endswith("variance"):
                layer[name] = np.ones_like(values)
            elif values.ndim > 1:
                deviation = (2 / values[0].size) ** 0.5
                layer[name] = rng.standard_normal(values.shape, np.float32) * np.float32(deviation)
    return made
