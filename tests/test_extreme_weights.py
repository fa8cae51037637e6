"""Finite weights whose products overflow give results or one error, and never a warning."""

import warnings
from contextlib import suppress

import numpy as np
import pytest

import engine
from engine import cli
from engine.darknet import cfg, graph, weights
from engine.errors import ImageError
from tests.pictures import write_picture

# A convolution that Winograd's tiles compute, whose weights are summed when it is loaded.
WIDE = """
[net]
width=32
height=32
channels=16

[convolutional]
filters=32
size=3
pad=1
activation=linear

[yolo]
mask=0
anchors=8,8
classes=27
"""
PICTURE = np.full((40, 40, 3), 200, np.uint8)
REASON = "scores: expected numbers, got NaN or infinity. The network's values overflow"


@pytest.mark.parametrize("kind", ["tiny_classifier", "tiny_detector"])
@pytest.mark.parametrize("scale", [3e38, -1e38, 1e-45])
@pytest.mark.parametrize(("passes", "variance"), [(True, 1), (False, 1), (False, 0)])
def test_extreme_weights_cause_no_warning_of_numpy(
    kind, scale, passes, variance, tmp_path, request
):
    model = request.getfixturevalue(kind)
    network = graph.build(cfg.read(model.cfg))
    filled = [
        {
            name: np.full(
                values.shape, variance * abs(scale) if "variance" in name else scale, np.float32
            )
            for name, values in layer.items()
        }
        for layer in weights.initial(network)
    ]
    extreme = tmp_path / "extreme.weights"
    weights.save(extreme, network, filled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = engine.load(model.cfg, extreme, model.names, device="cpu", passes=passes)
        with detector, suppress(ImageError):
            detector(PICTURE).to_dict()


def test_weights_that_are_summed_ahead_cause_no_warning_of_numpy(tmp_path):
    made = tmp_path / "net.cfg"
    made.write_text(WIDE)
    network = graph.build(cfg.read(made))
    large = [
        {name: (values + 1) * np.float32(3e38) for name, values in layer.items()}
        for layer in weights.initial(network)
    ]
    large[0]["weight"][:, :, 1] *= -1
    weights.save(tmp_path / "net.weights", network, large)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with engine.load(made, tmp_path / "net.weights", device="cpu") as detector:
            detector.forward(np.ones((1, 16, 32, 32), np.float32))


@pytest.fixture(scope="module")
def detector(overflowing):
    with engine.load(overflowing.cfg, overflowing.weights, device="cpu", batch=2) as opened:
        yield opened


@pytest.fixture
def pictures(tmp_path):
    return [str(write_picture(tmp_path / f"{n}.png", (50, 40), seed=n)) for n in range(3)]


def test_python_raises_or_yields_an_error_for_each_picture(detector, pictures):
    with pytest.raises(ImageError, match=REASON):
        detector(pictures[0])
    outcomes = list(detector.stream(pictures, on_error="yield"))
    assert [str(each) for each in outcomes] == [f"{path}: {REASON}" for path in pictures]
    with pytest.raises(ImageError, match=f"picture: {REASON}"):
        detector(np.full((40, 50, 3), 200, np.uint8))


@pytest.mark.parametrize("options", [{"tiles": (2, 2)}, {"classes": [1]}, {"max_detections": 1}])
def test_tiles_and_choices_do_not_hide_it(detector, pictures, options):
    (outcome,) = detector.stream(pictures[:1], on_error="yield", **options)
    assert str(outcome) == f"{pictures[0]}: {REASON}"


@pytest.mark.parametrize("command", [["detect"], ["detector", "test"]])
def test_commands_print_one_line_and_end_with_1(overflowing, pictures, command, capsys, tmp_path):
    if command == ["detect"]:
        arguments = ["detect", *overflowing.options, pictures[0]]
    else:
        data = tmp_path / "net.data"
        data.write_text(f"classes=3\nnames={overflowing.names}\n")
        files = data, overflowing.cfg, overflowing.weights
        arguments = [*command, *map(str, files), pictures[0], "-nogpu", "-dont_show"]
    assert cli.main(arguments) == 1
    done = capsys.readouterr()
    assert f"Error: {pictures[0]}: {REASON}\n" in done.err
    assert "Warning" not in done.err


def test_evaluate_counts_them_as_failures(overflowing, pictures, tmp_path, capsys):
    for path in pictures:
        (tmp_path / path).with_suffix(".txt").write_text("0 0.5 0.5 0.6 0.8\n")
    names = ["--names", str(overflowing.names)]
    assert cli.main(["evaluate", *overflowing.options, *names, str(tmp_path)]) == 1
    assert REASON in capsys.readouterr().err
