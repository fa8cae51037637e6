from __future__ import annotations

import numpy as np
import pytest

from engine.backends import open_device
from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, plan_of, refusal

DETECTION = "[detection]\nclasses=3\ncoords=4\nnum=2\nside=2\n"
SOURCE = Shape(13, 2, 2)  # 2 x 2 cells x (3 + 5 x 2)


@pytest.mark.parametrize("square_root", [False, True])
def test_head(square_root):
    plan = plan_of(f"{DETECTION}sqrt={int(square_root)}\n", SOURCE)
    (head,) = plan.heads
    assert isinstance(head, ops.GridHead)
    assert (head.classes, head.side, head.boxes) == (3, 2, 2)
    assert head.square_root == square_root
    assert head.src == plan.layers[0]
    assert head.src.shape == Shape(52)


@pytest.mark.parametrize("softmax", [False, True])
def test_output_is_the_input_with_a_softmax_over_classes(softmax):
    plan = plan_of(f"{DETECTION}softmax={int(softmax)}\n", SOURCE)
    values = np.random.default_rng(0).standard_normal((2, *SOURCE.sides)).astype(np.float32)
    (out,) = open_device("cpu:1").compile(plan, batch=2).forward(values)
    expected = values.reshape(2, 52).astype(np.float64)
    if softmax:
        powers = np.exp(expected[:, :12].reshape(2, 4, 3))
        expected[:, :12] = (powers / powers.sum(axis=2, keepdims=True)).reshape(2, 12)
    np.testing.assert_allclose(out.reshape(2, 52), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("classes=3\ncoords=4\nnum=2\nside=3", "side: 3 x 3 cells x (3 classes + 5 x 2) need 117"),
        ("classes=3\ncoords=4\nnum=2", "need 637 values from the layer before, got 52"),
        ("classes=3\nnum=2\nside=2", "coords: expected 4, the coordinates of a box, got 1"),
        ("classes=0", "classes: expected at least 1"),
        ("side=0", "side: expected at least 1"),
        ("side=1000000000\ncoords=4", "values from the layer before, got 52"),
    ],
)
def test_invalid_options_are_refused(options, problem):
    assert problem in refusal(f"[detection]\n{options}\n", SOURCE)


def test_convolution_after_it_is_refused():
    assert "expected a feature map" in refusal(DETECTION + "[convolutional]\n", SOURCE)


def test_suppression_is_the_default():
    assert graph_of(DETECTION, SOURCE).nms[0] == "default"
