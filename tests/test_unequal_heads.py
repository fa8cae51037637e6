"""Networks whose detection layers have different numbers of classes."""

import json

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli
from engine.darknet import cfg, graph, weights
from tests.small_models import Model

NET = "[net]\nwidth=8\nheight=8\nchannels=3\n[avgpool]\n"
HEAD = "[route]\nlayers=0\n[convolutional]\nfilters={}\nactivation=linear\n[yolo]\nclasses={}\n"
ONE_BOX = "num=1\nmask=0\nanchors=4,4\n"
LABELS = ["cat", "dog", "cow"]
CERTAIN = 10.0  # before the logistic function


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a network: each head finds the same box as its last class."""

    def model_of(*classes):
        made = Model(*(tmp_path / f"net.{kind}" for kind in ("cfg", "weights", "names")))
        heads = (HEAD.format(5 + each, each) + ONE_BOX for each in classes)
        made.cfg.write_text(NET + "".join(heads))
        made.names.write_text("\n".join(LABELS))
        network = graph.build(cfg.read(made.cfg))
        arrays = weights.initial(network)
        convolutions = [layer for layer in arrays if layer]
        for layer, count in zip(convolutions, classes, strict=True):
            scores = [-CERTAIN] * (count - 1) + [CERTAIN]
            layer["bias"][:] = [0, 0, 0, 0, CERTAIN, *scores]
            layer["weight"][:] = 0
        weights.save(made.weights, network, arrays)
        return made

    return model_of


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "a.png"
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(path)
    return path


@pytest.mark.parametrize("classes", [(1, 3), (3, 1), (1, 3, 2), (3, 3, 1, 1)])
def test_a_box_has_the_classes_of_its_own_head(write, picture, classes):
    made = write(*classes)
    with engine.load(made.cfg, made.weights, made.names, device="cpu") as detector:
        result = detector(picture)
        assert detector.labels == tuple(LABELS)
        # The order of heads makes no difference: those that agree on the class find one object.
        assert sorted(result.class_ids) == sorted({each - 1 for each in classes})
        assert result.labels == [LABELS[each] for each in result.class_ids]
        assert len(result.to_yolo().splitlines()) == len(result)
        assert result.plot(picture).size == (16, 16)
        assert detector(picture, classes=["cow"]).labels == ["cow"]


def test_commands_know_the_classes_of_all_heads(write, picture, capsys):
    made = write(3, 1)
    picture.with_suffix(".txt").write_text("0 .5 .5 .5 .5\n2 .5 .5 .5 .5\n")
    options = [*made.options, "--names", str(made.names)]
    assert cli.main(["detect", *options, "--json", "-", str(picture)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["images"]
    assert {each["label"] for each in found["detections"]} == {"cat", "cow"}
    assert cli.main(["evaluate", *options, "--json", "-", str(picture.parent)]) == 0
    classes = json.loads(capsys.readouterr().out)["classes"]
    assert [each["name"] for each in classes] == LABELS
