"""python -m engine classify with a tree of classes, as darknet evaluates it."""

import json

import numpy as np
import pytest
from PIL import Image

from engine import cli
from engine.darknet import cfg, graph, weights

CFG = """
[net]
width=2
height=2
channels=3

[avgpool]

[connected]
output=5
activation=linear

[softmax]
tree=net.tree
"""
TREE = {"animal": -1, "thing": -1, "cat": 0, "dog": 0, "car": 1}
CONDITIONAL = [0.9, 0.1, 0.6, 0.4, 1.0]  # given the parent


@pytest.fixture
def model(tmp_path):
    (tmp_path / "net.tree").write_text("".join(f"{name} {TREE[name]}\n" for name in TREE))
    (tmp_path / "net.names").write_text("".join(f"{name}\n" for name in TREE))
    (tmp_path / "net.cfg").write_text(CFG)
    network = graph.build(cfg.read(tmp_path / "net.cfg"))
    arrays = weights.initial(network)
    arrays[1]["bias"][:] = np.log(CONDITIONAL)
    arrays[1]["weight"][:] = 0
    weights.save(tmp_path / "net.weights", network, arrays)
    Image.new("RGB", (20, 20)).save(tmp_path / "of-cat.png")
    return tmp_path


def classify(model, *arguments):
    files = [str(model / f"net.{kind}") for kind in ("cfg", "weights")]
    names = ["--names", str(model / "net.names"), "--device", "cpu"]
    return cli.main(["classify", *files, *names, *map(str, arguments)])


def test_probability_of_a_class_includes_its_ancestors(model, capsys):
    assert classify(model, model / "of-cat.png", "--json", "-") == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    found = {each["label"]: each["score"] for each in image["classes"]}
    expected = {"animal": 0.9, "cat": 0.54, "dog": 0.36, "thing": 0.1, "car": 0.1}
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, abs=1e-5)


def test_accuracy_counts_leaf_classes_only(model, capsys):
    (model / "list.txt").write_text(f"{model / 'of-cat.png'}\n")
    (model / "labels.txt").write_text("".join(f"of-{name}\n" for name in TREE))
    wanted = ["--list", model / "list.txt", "--labels", model / "labels.txt", "--top-k", 1]
    assert classify(model, *wanted) == 0
    assert "top1 1.0000" in capsys.readouterr().out
