"""69 and 70: networks with non-finite outputs, invalid thresholds, and the JSON they give."""

import json

import numpy as np
import pytest

from engine.darknet import cfg, graph, weights
from tests.bad_inputs.small import CONV, GOOD, NET, YOLO

MANY = NET.replace("32", "512") + CONV.replace("6", "18") + YOLO.replace("mask=0\n", "mask=0,0,0\n")


@pytest.fixture
def nonsense(tmp_path):
    """Return a function that writes constant weights; a bias of 100 makes widths overflow."""

    def write(network, number, bias):
        (tmp_path / "of.cfg").write_text(network)
        built = graph.build(cfg.read(tmp_path / "of.cfg"))
        arrays = [
            {name: np.full(each.shape, bias if name == "bias" else number) for name, each in layer}
            for layer in (each.items() for each in weights.initial(built))
        ]
        path = tmp_path / "nonsense.weights"
        weights.save(path, built, arrays, overwrite=True)
        return path

    return write


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("bias", [-1e38, -100, 0, 80, 88, 89, 100, 1e38])
@pytest.mark.parametrize("number", [0, 1e38, -1e38])
def test_69_70_non_finite_outputs_give_valid_json(detect, tmp_path, nonsense, number, bias):
    model = nonsense(GOOD, number, bias)
    path = tmp_path / "found.json"
    outputs = ["--json", str(path), "--save-txt", str(tmp_path), "-o", str(tmp_path / "out")]
    status, line = detect(*outputs, "--thresh", "0", model=model)
    assert status == 0, line
    found = json.loads(path.read_text(), parse_constant=refuse)["images"][0]["detections"]
    assert all(0 <= each["score"] <= 1 for each in found)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        *(("--thresh", value, 0) for value in ("0", "0.5", "1")),
        *(
            ("--thresh", value, 2)
            for value in ("-1", "1.5", "1e300", "nan", "inf", "-inf", "x", "")
        ),
        *(("--nms", value, 0) for value in ("0", "1")),
        *(("--nms", value, 2) for value in ("-1", "2", "nan", "inf", "x")),
    ],
)
def test_69_thresholds_are_valid_or_refused(detect, nonsense, option, value, expected):
    status, line = detect(f"{option}={value}", model=nonsense(GOOD, 0.1, 0.1))
    assert status == expected, line


@pytest.mark.slow
def test_69_a_million_candidates_of_equal_scores_take_bounded_time(detect, nonsense):
    """Test 786,432 boxes that all overlap."""
    model = nonsense(MANY, 0, 1)
    assert detect("--thresh", "0", "--nms", "1", network=MANY, model=model) == (0, "")
    assert detect("--thresh", "0", network=MANY, model=model) == (0, "")
