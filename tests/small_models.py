"""Small models with random weights, as files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine.darknet import cfg, graph, weights

# one convolution and a head: the least that finds boxes
SMALLEST = """
[net]
width=32
height=32
channels=3

[convolutional]
filters=6
size=3
stride={stride}
pad=1
activation=leaky

[convolutional]
filters=6
activation=linear

[yolo]
mask=0
anchors=8,8
classes=1
"""

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


_HEAD_FILTERS = 16
_SIDES = [2, 3, 10, 11]  # filters of DETECTOR's head that become widths and heights of boxes
_OBJECTNESS = [4, 12]


@dataclass(frozen=True)
class Model:
    cfg: Path
    weights: Path
    names: Path

    @property
    def options(self) -> list[str]:
        return ["--cfg", str(self.cfg), "--weights", str(self.weights), "--device", "cpu"]


def write_model(folder: Path, text: str, names: list[str]) -> Model:
    """Write a model with positive weights; a detector finds objects everywhere."""
    random = np.random.default_rng(3)
    return _write(folder, text, names, lambda _, shape: random.uniform(0.1, 1, shape))


def write_detector(folder: Path) -> Model:
    """Write a detector that finds about 40 objects of all classes in each picture."""
    random = np.random.default_rng(106)

    def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
        made = random.uniform(0.1 if name == "variance" else -1, 1, shape)
        if shape[0] == _HEAD_FILTERS:
            made[_SIDES] *= 0.3 if name == "weight" else 1.0
            made[_OBJECTNESS] -= 1.5 if name == "bias" else 0.0
        return made

    return _write(folder, DETECTOR, ["cat", "dog", "cow"], values)


def _write(
    folder: Path,
    text: str,
    names: list[str],
    values: Callable[[str, tuple[int, ...]], np.ndarray],
) -> Model:
    model = Model(folder / "net.cfg", folder / "net.weights", folder / "net.names")
    model.cfg.write_text(text)
    model.names.write_text("".join(f"{name}\n" for name in names))
    network = graph.build(cfg.read(model.cfg))
    arrays = [
        {name: values(name, initial.shape) for name, initial in layer.items()}
        for layer in weights.initial(network)
    ]
    weights.save(model.weights, network, arrays)
    return model


@pytest.fixture(scope="session")
def tiny_detector(tmp_path_factory):
    return write_detector(tmp_path_factory.mktemp("detector"))


@pytest.fixture(scope="session")
def overflowing(tmp_path_factory, tiny_detector):
    """Return a detector with weights that are finite, and products of them that are not."""
    path = tmp_path_factory.mktemp("overflowing") / "net.weights"
    network = graph.build(cfg.read(tiny_detector.cfg))
    large = [
        {
            name: np.full(values.shape, 1e38 if name == "weight" else 1, np.float32)
            for name, values in layer.items()
        }
        for layer in weights.initial(network)
    ]
    large[2]["weight"][:, ::2] *= -1
    weights.save(path, network, large)
    return Model(tiny_detector.cfg, path, tiny_detector.names)


@pytest.fixture(scope="session")
def overflowing_when_bright(tmp_path_factory, tiny_detector):
    """Return a detector that finds boxes in dark pictures, and overflows where one is bright."""
    return _overflowing_when_bright(tiny_detector, tmp_path_factory)


@pytest.fixture(scope="session")
def classifier_overflowing_when_bright(tmp_path_factory, tiny_classifier):
    """Return a classifier that overflows where a picture is bright."""
    return _overflowing_when_bright(tiny_classifier, tmp_path_factory)


def _overflowing_when_bright(model: Model, tmp_path_factory) -> Model:
    path = tmp_path_factory.mktemp("overflowing_when_bright") / "net.weights"
    network = graph.build(cfg.read(model.cfg))
    arrays = [dict(layer) for layer in weights.load(model.weights, network)]
    first = arrays[0]
    first["weight"] = np.full_like(first["weight"], 2e38)
    if "variance" in first:
        first["variance"] = np.ones_like(first["variance"])
        first["scale"] = np.abs(first["scale"])
    weights.save(path, network, arrays)
    return Model(model.cfg, path, model.names)


@pytest.fixture(scope="session")
def tiny_classifier(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("classifier"), CLASSIFIER, list("uvwxyz"))


@pytest.fixture(scope="session")
def tiny_recurrent_detector(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recurrent-detector")
    last = "[convolutional]\nfilters=6\nactivation=linear"
    memory = "[crnn]\nsize=3\npad=1\noutput=6\nhidden=6\nactivation=leaky\n\n"
    text = SMALLEST.format(stride=8).replace(last, memory + last)
    assert "[crnn]" in text
    return write_model(folder, text, ["cat"])


@pytest.fixture(scope="session")
def tiny_recurrent(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("recurrent"), RECURRENT, [])
