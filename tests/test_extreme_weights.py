"""Finite weights whose products overflow give results or one error, and never a warning."""

import warnings
from contextlib import suppress

import numpy as np
import pytest

import engine
from engine.darknet import cfg, graph, weights
from engine.errors import ImageError

PICTURE = np.full((40, 40, 3), 200, np.uint8)


@pytest.mark.parametrize("kind", ["tiny_classifier", "tiny_detector"])
@pytest.mark.parametrize("scale", [3e38, -1e38, 1e-45])
def test_extreme_weights_cause_no_warning_of_numpy(kind, scale, tmp_path, request):
    model = request.getfixturevalue(kind)
    network = graph.build(cfg.read(model.cfg))
    filled = [
        {
            name: np.full(values.shape, abs(scale) if "variance" in name else scale, np.float32)
            for name, values in layer.items()
        }
        for layer in weights.initial(network)
    ]
    extreme = tmp_path / "extreme.weights"
    weights.save(extreme, network, filled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = engine.load(model.cfg, extreme, model.names, device="cpu")
        with detector, suppress(ImageError):
            detector(PICTURE).to_dict()
