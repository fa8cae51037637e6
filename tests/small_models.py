"""Small models with random weights, as files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine.darknet import cfg, graph, weights

DETECTOR = """
[net]
width=64
height=48
channels=3

[convolutional]
batch_normalize=1
filters=8
size=3
pad=1
stride=2
activation=leaky

[maxpool]
size=2
stride=2

[convolutional]
filters=16
activation=linear

[yolo]
mask=0,1
anchors=10,14, 23,27
classes=3
num=2
"""

CLASSIFIER = """
[net]
width=32
height=32
channels=3

[convolutional]
filters=6
size=3
pad=1
stride=2
activation=leaky

[avgpool]

[softmax]
"""

RECURRENT = """
[net]
inputs=5

[rnn]
output=4
hidden=3
activation=tanh
"""


@dataclass(frozen=True)
class Model:
    cfg: Path
    weights: Path
    names: Path

    @property
    def options(self) -> list[str]:
        return ["--cfg", str(self.cfg), "--weights", str(self.weights), "--device", "cpu"]


def write_model(folder: Path, text: str, names: list[str]) -> Model:
    model = Model(folder / "net.cfg", folder / "net.weights", folder / "net.names")
    model.cfg.write_text(text)
    model.names.write_text("".join(f"{name}\n" for name in names))
    network = graph.build(cfg.read(model.cfg))
    random = np.random.default_rng(3)
    arrays = [
        {name: random.uniform(0.1, 1, values.shape) for name, values in layer.items()}
        for layer in weights.initial(network)
    ]
    weights.save(model.weights, network, arrays)
    return model


@pytest.fixture(scope="session")
def tiny_detector(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("detector"), DETECTOR, ["cat", "dog", "cow"])


@pytest.fixture(scope="session")
def tiny_classifier(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("classifier"), CLASSIFIER, list("uvwxyz"))


@pytest.fixture(scope="session")
def tiny_recurrent(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("recurrent"), RECURRENT, [])
