"""python -m engine classify."""

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image

from engine import cli
from engine.darknet import cfg, graph, weights


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "cat.png"
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(path)
    return str(path)


def test_the_best_classes_come_first(tiny_classifier, picture, capsys):
    names = ["--names", str(tiny_classifier.names), "--top-k", "3"]
    assert cli.main(["classify", *tiny_classifier.options, *names, picture]) == 0
    title, headings, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith(picture)
    assert headings.split() == ["class", "score"]
    scores = [float(row.split()[1]) for row in rows]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


def test_json_holds_the_same(tiny_classifier, picture, capsys):
    assert cli.main(["classify", *tiny_classifier.options, "--json", "-", picture]) == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    assert len(image["classes"]) == 5


def test_detector_is_referred_to_detect(tiny_detector, picture, capsys):
    assert cli.main(["classify", *tiny_detector.options, picture]) == 2
    assert "Try: detect" in capsys.readouterr().err


@pytest.mark.parametrize("option", [[], ["--list"]])
def test_default_model_is_not_a_classifier(picture, tmp_path, capsys, option):
    (tmp_path / "list.txt").write_text(picture)
    source = str(tmp_path / "list.txt")
    assert cli.main(["classify", *option, source]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no model: name one with --model, or with --cfg and --weights" in line


@pytest.mark.parametrize("scale", [1e38, -1e38])
def test_nan_is_an_error_of_the_picture(tiny_classifier, picture, tmp_path, scale, capsys):
    network = graph.build(cfg.read(tiny_classifier.cfg))
    arrays = weights.initial(network)
    filled = [
        {name: np.full(values.shape, scale, np.float32) for name, values in layer.items()}
        for layer in arrays
    ]
    extreme = tmp_path / "extreme.weights"
    weights.save(extreme, network, filled)
    options = ["--cfg", str(tiny_classifier.cfg), "--weights", str(extreme), "--device", "cpu"]
    assert cli.main(["classify", *options, picture]) == 1
    done = capsys.readouterr()
    assert "nan" not in done.out
    reason = "expected numbers, got NaN or infinity. The network's values overflow"
    assert f"Error: {picture}: probabilities: {reason}\n" in done.err
    assert "Warning" not in done.err


@pytest.mark.parametrize(
    ("label", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("-1.5 2 1e-05", "-1.5 2 1e-05"),  # such as corners
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("plain dog", "plain dog"),
    ],
)
def test_names_in_csv_hold_no_formula_or_escape_sequence(
    tiny_classifier, picture, tmp_path, label, cell, capsys
):
    names = tmp_path / "odd.names"
    names.write_text(f"{label}\n" * 6)
    options = [*tiny_classifier.options, "--names", str(names), "--csv", "-"]
    assert cli.main(["classify", *options, picture]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["label"] for row in rows} == {cell}
