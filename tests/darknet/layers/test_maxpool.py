from __future__ import annotations

import pytest

from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import plan_of, shapes_of


@pytest.mark.parametrize(
    ("options", "extent", "expected", "padding"),
    [
        ("size=2\nstride=2", 416, 208, (0, 1)),
        ("size=2\nstride=2", 13, 7, (0, 1)),  # odd extents round up
        ("size=2\nstride=1", 13, 13, (0, 1)),  # yolov3-tiny, layer 11
        ("size=3\nstride=1", 13, 13, (1, 1)),
        ("size=13\nstride=1", 13, 13, (6, 6)),
        ("size=3\nstride=2\npadding=0", 13, 6, (0, 0)),
        ("size=3\nstride=2\npadding=1", 13, 6, (0, 1)),
        ("stride=3", 13, 5, (1, 1)),  # as wide as the stride
        ("size=2\nstride=2\npadding=0", 1, 1, (0, 1)),  # the count truncates toward zero
        ("stride=2\nantialiasing=1", 13, 7, (0, 1)),
    ],
)
def test_shape_and_padding(options, extent, expected, padding):
    layers = f"[maxpool]\n{options}\n"
    source = Shape(8, extent, extent)
    assert shapes_of(layers, source) == [Shape(8, expected, expected)]
    window = plan_of(layers, source).ops[0].window
    assert window.padding == (padding[0], padding[0], padding[1], padding[1])


def test_strides_may_differ():
    layers = "[max]\nsize=2\nstride_x=2\nstride_y=1\n"
    assert shapes_of(layers, Shape(8, 13, 13)) == [Shape(8, 13, 7)]
    assert plan_of(layers).ops[0].window.stride == (1, 2)


def test_over_channels():
    plan = plan_of("[maxpool]\nmaxpool_depth=1\nout_channels=3\n")
    (pool,) = plan.ops
    assert isinstance(pool, ops.MaxPoolDepth)
    assert pool.out.shape == Shape(3, 6, 10)


def test_antialiasing_pools_at_every_cell_and_blurs_with_the_stride():
    pool, blur = plan_of("[maxpool]\nsize=2\nstride=2\nantialiasing=1\n").ops
    assert pool.window.stride == (1, 1)
    assert pool.out.shape == Shape(8, 6, 10)
    assert (blur.stride, blur.out.shape) == ((2, 2), Shape(8, 3, 5))


def test_zero_nonmax_is_ignored_silently(caplog):
    plan = plan_of("[maxpool]\nsize=3\nmaxpool_zero_nonmax=1\n")
    assert [type(op).__name__ for op in plan.ops] == ["MaxPool"]
    assert caplog.messages == []
