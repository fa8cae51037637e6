"""NMS inside the graph gives the boxes of the engine's own NMS."""

import numpy as np
import pytest

from engine.errors import InputError
from engine.export import suppression as suppression_module
from engine.export.suppression import Nms
from engine.vision.boxes import Suppression
from tests import needs
from tests.export.networks import GRID, REGION, TWO_HEADS, Network
from tests.export.runtime import run_model

needs.package("onnx")
needs.package("onnxruntime")

PLAIN = Suppression(0.45)
GREEDY = Suppression(0.45, "greedynms")


def suppressed(network, nms, images, **options):
    model = network.build(layout="darknet", nms=nms, **options)
    return run_model(model.content, images)


def compare(network, nms, images, **options):
    """Compare the outputs with the engine's boxes; return how many there are of each picture."""
    boxes, scores, classes, count = suppressed(network, nms, images, **options)
    most = nms.max_detections
    wanted = network.boxes(images, nms.threshold, nms.suppression, max_detections=most)
    assert count.tolist() == list(map(len, wanted))
    assert (boxes.shape, scores.shape) == ((len(images), most, 4), (len(images), most))
    for number, each in enumerate(wanted):
        few = len(each)
        np.testing.assert_allclose(scores[number, :few], each.scores, rtol=1e-5, atol=1e-5)
        found = np.column_stack([boxes[number], scores[number], classes[number]])[:few]
        expected = np.column_stack([each.xywh, each.scores, each.class_ids])
        # equal scores may be swapped
        is_same = np.isclose(found[:, None], expected, rtol=1e-4, atol=1e-5).all(axis=2)
        assert is_same.any(axis=0).all()
        assert is_same.any(axis=1).all()
        assert not boxes[number, few:].any()
        assert not scores[number, few:].any()
        assert (classes[number, few:] == -1).all()
    return count.tolist()


@pytest.mark.parametrize("kind", ["default", "cornersnms", "greedynms", "diounms"])
@pytest.mark.parametrize("overlap", [0.2, 0.45])
def test_each_kind_keeps_the_engines_boxes(kind, overlap):
    network = Network(TWO_HEADS)
    images = network.images(3)
    nms = Nms(0.4, Suppression(overlap, kind, 0.4), 1000)
    counts = compare(network, nms, images)
    every = list(map(len, network.boxes(images, 0.4, Suppression(None))))
    assert all(0 < few < many for few, many in zip(counts, every, strict=True))


def test_the_kinds_differ():
    network = Network(TWO_HEADS)
    found = {
        kind: suppressed(network, Nms(0.4, Suppression(0.3, kind), 1000), network.images())[3][0]
        for kind in ("default", "greedynms")
    }
    assert found["greedynms"] > found["default"]


@pytest.mark.parametrize("text", [REGION, GRID], ids=["region", "detection"])
def test_other_heads(text):
    network = Network(text)
    assert all(compare(network, Nms(0.05, PLAIN, 500), network.images(2)))


@pytest.mark.parametrize("suppression", [PLAIN, GREEDY], ids=lambda each: each.kind)
def test_only_the_best_boxes_are_kept(suppression):
    network = Network(TWO_HEADS)
    assert compare(network, Nms(0.4, suppression, 5), network.images(2)) == [5, 5]


@pytest.mark.parametrize("suppression", [PLAIN, GREEDY], ids=lambda each: each.kind)
def test_no_box_at_all(suppression):
    network = Network(TWO_HEADS)
    assert compare(network, Nms(1.0, suppression, 7), network.images(2)) == [0, 0]


@pytest.mark.parametrize("suppression", [PLAIN, GREEDY], ids=lambda each: each.kind)
def test_one_picture_may_be_empty_and_another_not(suppression):
    network = Network(TWO_HEADS)
    images = np.concatenate([network.images(), 3 * network.images()])
    best = float(network.boxes(images[:1], 0.1, PLAIN)[0].scores[0])
    threshold = best + 1e-4  # above both programs' rounding of the best score
    counts = compare(network, Nms(threshold, suppression, 1000), images)
    assert counts[0] == 0 < counts[1]


@pytest.mark.parametrize("suppression", [PLAIN, GREEDY], ids=lambda each: each.kind)
@pytest.mark.parametrize("opset", [13, 18, 21])
def test_a_batch_of_fixed_size_in_each_opset(suppression, opset):
    network = Network(TWO_HEADS)
    nms = Nms(0.4, suppression, 20)
    assert all(compare(network, nms, network.images(2), batch=2, opset=opset))


def test_a_loop_compares_only_the_best_candidates(monkeypatch):
    monkeypatch.setattr(suppression_module, "MAX_CANDIDATES", 6)
    network = Network(TWO_HEADS)
    images = network.images()
    # No pair of boxes overlaps by more than 1, so every candidate that is compared is kept.
    *_, count = suppressed(network, Nms(0.2, Suppression(1.0, "greedynms"), 50), images)
    assert count.tolist() == [6]


def test_objectness_must_exceed_the_threshold_too():
    text = TWO_HEADS.replace("num=2", "num=2\nnew_coords=1")  # classes may be larger than 1
    network = Network(text)
    images = 20 * network.images()
    assert compare(network, Nms(0.4, PLAIN, 1000), images)[0] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 50}, "threshold: expected a number from 0 to 1, got 50. Did you mean 0.5?"),
        ({"suppression": Suppression(2)}, "iou: expected a number from 0 to 1, got 2"),
        ({"max_detections": 0}, "max_detections: expected an integer of 1 or more, got 0"),
        ({"max_detections": 10**6}, "max_detections: expected at most 10000, got 1000000"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(InputError) as refusal:
        Nms(**settings)
    assert message in str(refusal.value)


def test_boxes_beyond_all_numbers_are_left_out():
    network = Network(TWO_HEADS)
    images = 1e4 * network.images()
    rows = run_model(network.build(layout="darknet").content, images)[0]
    assert np.isinf(rows[rows[:, :, 4] > 0.4]).any()
    assert compare(network, Nms(0.4, PLAIN, 1000), images) == [0]
