"""A small model that finds another number of boxes in each picture."""

import numpy as np
import pytest

from engine.darknet import cfg, graph, weights
from tests.small_models import DETECTOR, write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    written = write_model(tmp_path_factory.mktemp("fleet"), DETECTOR, ["cat", "dog", "cow"])
    network = graph.build(cfg.read(written.cfg))
    random = np.random.default_rng(1)
    arrays = [
        {
            name: random.uniform(0.1 if name == "variance" else -1, 1, values.shape)
            for name, values in layer.items()
        }
        for layer in weights.initial(network)
    ]
    weights.save(written.weights, network, arrays, overwrite=True)
    return written
