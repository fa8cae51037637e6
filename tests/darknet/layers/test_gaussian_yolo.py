"""The behaviour shared with [yolo] is tested in test_yolo.py."""

from __future__ import annotations

import pytest

from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import plan_of, refusal

LAYER = "[Gaussian_yolo]\nclasses=3\nnum=2\nanchors=10,14, 23,27\nscale_x_y=1.1\n"
SOURCE = Shape(24, 2, 4)  # 2 x (9 + 3)


@pytest.mark.parametrize("point", ["center", "left_top", "right_bottom"])
def test_head_has_sigmas_and_the_reference_point(point):
    (head,) = plan_of(f"{LAYER}yolo_point={point}\n", SOURCE).heads
    assert isinstance(head, ops.YoloHead)
    assert head.sigmas
    assert head.point == point
    assert head.anchors == ((10, 14), (23, 27))
    assert head.network == (4, 2)


def test_output_has_eight_numbers_per_box():
    (op,) = plan_of(LAYER, SOURCE).ops
    assert isinstance(op, ops.YoloOutput)
    assert (op.anchors, op.classes, op.box, op.scale_x_y, op.raw) == (2, 3, 8, 1.1, False)


def test_an_unknown_point_is_refused():
    message = refusal(f"{LAYER}yolo_point=lefttop\n", SOURCE)
    assert "yolo_point: unknown 'lefttop'. Did you mean 'left_top'?" in message
