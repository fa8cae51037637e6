from __future__ import annotations

import pytest

from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, plan_of, refusal, refusal_of_text

ANCHORS = "anchors=10,14, 23,27, 37,58, 81,82, 135,169, 344,319\n"
YOLO = f"[yolo]\nclasses=3\nnum=6\nmask=3,1\n{ANCHORS}"
SOURCE = Shape(16, 2, 4)  # 2 x (5 + 3)

# the sections with a mask, and how many numbers an anchor has in addition to its classes
SECTIONS = pytest.mark.parametrize(("section", "numbers"), [("yolo", 5), ("Gaussian_yolo", 9)])


def head_of(layers: str, source: Shape) -> ops.YoloHead:
    plan = plan_of(layers, source)
    (head,) = plan.heads
    assert isinstance(head, ops.YoloHead)
    assert head.src == plan.layers[-1]
    return head


def test_head():
    head = head_of(YOLO, SOURCE)
    assert head.anchors == ((81, 82), (23, 27))
    assert head.network == (4, 2)
    assert head.classes == 3
    assert (head.new_coords, head.sigmas, head.point) == (False, False, "center")


def test_output():
    (op,) = plan_of(YOLO + "scale_x_y=1.1\nnew_coords=1\n", SOURCE).ops
    assert isinstance(op, ops.YoloOutput)
    assert op.out.shape == SOURCE
    assert (op.anchors, op.classes, op.box, op.scale_x_y, op.raw) == (2, 3, 4, 1.1, True)


@SECTIONS
@pytest.mark.parametrize(
    ("options", "anchors"),
    [
        ("num=2\nanchors=1,2,3,4\n", ((1, 2), (3, 4))),  # without a mask: all
        ("num=2\nanchors=1,2,3,4,5,6\n", ((1, 2), (3, 4))),  # more than num
        ("num=2\nanchors=1,2\n", ((1, 2), (0.5, 0.5))),  # darknet's default for a missing anchor
        ("num=2\n", ((0.5, 0.5), (0.5, 0.5))),
        ("num=9\nmask=8,0\nanchors=1,2\n", ((0.5, 0.5), (1, 2))),
        ("num=1\nmask=2,0\nanchors=1,2,3,4,5,6\n", ((5, 6), (1, 2))),
        ("num=2\nmask=1,1\nanchors=1,2,3,4\n", ((3, 4), (3, 4))),
    ],
)
def test_a_mask_picks_anchors(section, numbers, options, anchors):
    source = Shape(2 * (numbers + 3), 2, 4)
    assert head_of(f"[{section}]\nclasses=3\n{options}", source).anchors == anchors


@SECTIONS
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("num=3\nmask=0,3", "mask: expected 0 to 2 with num=3 and 0 anchors, got 3"),
        ("num=3\nmask=-1,0", "mask: expected 0 to 2 with num=3 and 0 anchors, got -1"),
        ("num=3\nmask=0,x", "mask: expected a list, each an integer, got '0,x'"),
        ("num=2\nanchors=1,2,3", "anchors: expected pairs of width and height, got 3 numbers"),
        ("num=2\nanchors=1,2,0,4", "anchors: expected numbers above 0, got 0"),
        ("num=2\nanchors=1,-2,3,4", "anchors: expected numbers above 0, got -2"),
        ("num=2\nanchors=1,nan,3,4", "anchors: expected a list, each a number"),
        ("num=2\nanchors=1,inf,3,4", "anchors: expected a list, each a number"),
        ("num=0", "num: expected at least 1"),
        ("classes=0", "classes: expected at least 1"),
        ("classes=-1", "classes: expected at least 1"),
    ],
)
def test_invalid_options_are_refused(section, numbers, options, problem):
    source = Shape(2 * (numbers + 3), 2, 4)
    own = "" if "classes" in options else "classes=3\n"
    assert problem in refusal(f"[{section}]\n{own}{options}\n", source)


@SECTIONS
def test_wrong_filters_error_names_the_right_number(section, numbers):
    before = "[convolutional]\nfilters=255\nactivation=linear\n"
    message = refusal(f"{before}[{section}]\nmask=0,1,2\nnum=3\nclasses=2\n")
    right = 3 * (numbers + 2)
    assert message.startswith(f"net.cfg:11: [{section}] classes: ")
    assert f"needs filters={right} in the layer before, got 255" in message


@pytest.mark.parametrize("options", ["classes=1000000000\n", "num=1000000000\n"])
def test_huge_counts_allocate_no_memory(options):
    assert "got 16" in refusal(f"[yolo]\n{options}", SOURCE)


def test_yolo_needs_an_image_network():
    message = refusal_of_text("[net]\ninputs=8\n[yolo]\nclasses=3\n")
    assert "expected width and height in [net]" in message


@pytest.mark.parametrize(
    ("section", "option", "nms"),
    [
        ("yolo", "", ("default", 0.6)),
        ("yolo", "nms_kind=greedynms\nbeta_nms=0.8\n", ("greedynms", 0.8)),
        ("yolo", "nms_kind=diounms\n", ("diounms", 0.6)),
        ("yolo", "nms_kind=cornersnms\n", ("default", 0.6)),
        ("yolo", "nms_kind=whatever\n", ("default", 0.6)),
        ("Gaussian_yolo", "nms_kind=cornersnms\n", ("cornersnms", 0.6)),
        ("Gaussian_yolo", "nms_kind=whatever\n", ("default", 0.6)),
    ],
)
def test_suppression_options_as_in_darknet(section, option, nms):
    source = Shape(8 if section == "yolo" else 12, 2, 4)
    graph = graph_of(f"[{section}]\nclasses=3\n{option}", source)
    assert graph.nms == nms
    assert graph.classes == 3
    assert graph.task == "detector"


def test_detection_layer_may_be_in_the_middle_of_a_network():
    plan = plan_of(YOLO + "[route]\nlayers=-1\n" + YOLO, SOURCE)
    assert [head.src for head in plan.heads] == [plan.layers[0], plan.layers[2]]
