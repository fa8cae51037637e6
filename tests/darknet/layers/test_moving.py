from __future__ import annotations

import pytest

from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import plan_of, shapes_of

SOURCE = Shape(16, 4, 8)


def only_op(layers, source=SOURCE):
    (op,) = plan_of(layers, source).ops
    return op


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("[upsample]\n", Shape(16, 8, 16)),
        ("[upsample]\nstride=3\n", Shape(16, 12, 24)),
        ("[upsample]\nstride=-2\n", Shape(16, 2, 4)),
        ("[reorg]\nstride=2\n", Shape(64, 2, 4)),
        ("[reorg]\nstride=2\nreverse=1\n", Shape(4, 8, 16)),
        ("[reorg3d]\nstride=2\n", Shape(64, 2, 4)),
        ("[reorg3d]\nstride=2\nreverse=1\n", Shape(4, 8, 16)),
        ("[crop]\ncrop_width=5\ncrop_height=3\n", Shape(16, 3, 5)),
    ],
)
def test_shape(layers, expected):
    assert shapes_of(layers, SOURCE) == [expected]


def test_upsample_repeats_and_scales():
    op = only_op("[upsample]\nstride=2\nscale=.5\n")
    assert isinstance(op, ops.Upsample)
    assert (op.stride, op.scale) == (2, 0.5)


def test_a_negative_stride_sums_blocks():
    op = only_op("[upsample]\nstride=-2\nscale=.25\n")
    assert isinstance(op, ops.BlockSum)
    assert (op.stride, op.scale) == (2, 0.25)


@pytest.mark.parametrize(
    ("layers", "grid", "reverse"),
    [
        ("[reorg]\nstride=2\n", SOURCE, False),  # the permutation of yolov2
        ("[reorg]\nstride=2\nreverse=1\n", SOURCE, True),
        ("[reorg3d]\nstride=2\n", Shape(64, 2, 4), False),
        ("[reorg3d]\nstride=2\nreverse=1\n", Shape(4, 8, 16), True),
    ],
)
def test_reorg_grid_and_direction(layers, grid, reverse):
    op = only_op(layers)
    assert (op.grid, op.reverse) == (grid, reverse)


@pytest.mark.parametrize(
    ("option", "scale", "shift"), [("", 2, -1), ("noadjust=1\n", 1, 0), ("shift=.3\n", 2, -1)]
)
def test_crop_takes_the_middle(option, scale, shift):
    op = only_op(f"[crop]\ncrop_width=5\ncrop_height=3\n{option}")
    assert (op.top, op.left, op.scale, op.shift) == (0, 1, scale, shift)


@pytest.mark.parametrize("section", ["empty", "silence", "blank", "dropout", "cost", "contrastive"])
def test_training_layers_pass_values_through(section):
    plan = plan_of(f"[maxpool]\nsize=3\n[{section}]\n")
    assert plan.layers[1] == plan.layers[0]


@pytest.mark.parametrize("section", ["empty", "dropout"])
def test_pass_through_as_first_layer_is_the_input(section):
    plan = plan_of(f"[{section}]\n")
    assert plan.layers == (plan.source,)
