"""NMSBoxes() and NMSBoxesBatched() keep the boxes that OpenCV keeps, in its order."""

from time import perf_counter

import numpy as np
import pytest

from engine.compat import cv2_dnn
from engine.errors import InputError
from tests.compat.cv2_dnn.cases import NMS, nms_of
from tests.compat.cv2_dnn.figures import FIGURES


@pytest.mark.parametrize("name", NMS)
def test_it_keeps_what_opencv_keeps(name):
    assert nms_of(cv2_dnn, name).tolist() == FIGURES["nms"][name]


def test_an_overlap_that_is_the_threshold():
    """OpenCV 5 keeps these; rounding of the overlap decides."""
    whole = [[2, 40, 34, 3], [10, 36, 27, 28]]
    assert cv2_dnn.NMSBoxes(whole, [0.9, 0.8], 0.0, 0.1).tolist() == [0]
    tenths = [[0.3, 0.6, 0.9, 0.9], [0.1, 0.6, 0.2, 0.4], [0.6, 0.5, 0, 0.6], [1.0, 0.5, 0.9, 1.3]]
    assert cv2_dnn.NMSBoxes(tenths, [0.9, 0.8, 0.7, 0.6], 0.0, 0.1).tolist() == [0, 1, 2]


def test_nothing_above_the_threshold():
    """OpenCV returns an empty tuple, too."""
    assert cv2_dnn.NMSBoxes([[0, 0, 5, 5]], [0.3], 0.5, 0.4) == ()
    assert cv2_dnn.NMSBoxes([], [], 0.5, 0.4) == ()
    assert cv2_dnn.NMSBoxesBatched([[0, 0, 5, 5]], [0.3], [0], 0.5, 0.4) == ()


def test_boxes_without_area_count_as_the_same():
    kept = cv2_dnn.NMSBoxes([[0, 0, 0, 0], [9, 9, 0, 0]], [0.9, 0.8], 0.1, 0.5)
    assert kept.tolist() == [0]


def test_classes_do_not_suppress_each_other():
    boxes = [[0, 0, 10, 10]] * 3
    kept = cv2_dnn.NMSBoxesBatched(boxes, [0.5, 0.9, 0.7], [0, 1, 0], 0.1, 0.4)
    assert kept.tolist() == [1, 2]


def test_indices_are_read_with_and_without_a_second_index():
    kept = cv2_dnn.NMSBoxes([[0, 0, 5, 5], [50, 50, 5, 5]], [0.6, 0.9], 0.1, 0.4)
    assert [i for i in kept] == [i[0] for i in kept] == [1, 0]  # noqa: C416
    assert 0 in kept
    assert kept.dtype == np.int32


@pytest.mark.parametrize(
    ("boxes", "scores", "message"),
    [([[0, 0, 1]], [1], "left, top"), ([[0, 0, 1, 1]], [1, 2], "scores"), (["x"], [1], "left")],
)
def test_wrong_arguments(boxes, scores, message):
    with pytest.raises(InputError, match=message):
        cv2_dnn.NMSBoxes(boxes, scores, 0.1, 0.4)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((-0.1, 0.4), "score_threshold: expected 0 or more, got -0.1"),
        ((0.1, -1), "nms_threshold: expected 0 or more, got -1"),
        ((float("nan"), 0.4), "score_threshold: expected 0 or more, got nan"),
        ((0.1, 0.4, 0), "eta: expected more than 0, got 0"),
    ],
)
def test_limits_that_opencv_refuses(limits, message):
    with pytest.raises(InputError, match=message):
        cv2_dnn.NMSBoxes([[0, 0, 1, 1]], [1], *limits)
    if not message.startswith("score_threshold"):
        with pytest.raises(InputError, match=message):
            cv2_dnn.NMSBoxesBatched([[0, 0, 1, 1]], [1], [0], *limits)


def test_a_class_for_each_box():
    with pytest.raises(InputError, match="class_ids: expected 1"):
        cv2_dnn.NMSBoxesBatched([[0, 0, 1, 1]], [1], [], 0.1, 0.4)


@pytest.mark.slow
def test_many_boxes_take_little_time():
    """One by one, 20,000 boxes of which most survive took minutes; the time is quadratic."""
    random = np.random.default_rng(0)
    boxes = np.hstack([random.uniform(0, 3200, (8000, 2)), np.full((8000, 2), 9.0)])
    start = perf_counter()
    kept = cv2_dnn.NMSBoxes(boxes, random.random(8000), 0.0, 0.3)
    assert 4000 < len(kept) < 8000
    assert perf_counter() - start < 18


NAN, INF = float("nan"), float("inf")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("boxes", "kept", "kept_of_classes"),
    [
        ([[0, 0, 10, 10], [NAN, 0, 10, 10], [50, 50, 5, 5]], [0, 2], [0, 1, 2]),
        ([[0, 0, 10, 10], [0, 0, NAN, 10], [50, 50, 5, 5]], [0, 2], [0, 2]),
        ([[0, 0, INF, 10], [0, 0, 10, 10], [50, 50, 5, 5]], [0, 1, 2], [0]),
        ([[0, 0, 1e300, 1e300], [0, 0, 1e300, 1e300], [0, 0, 1, 1]], [0, 2], [0, 1, 2]),
        ([[0, 0, 0, 0], [NAN, 0, 0, 0], [5, 5, NAN, 0]], [0], [0]),
        ([[NAN] * 4] * 3, [0], [0]),
    ],
)
def test_boxes_that_are_no_numbers_are_dropped_as_in_opencv(boxes, kept, kept_of_classes):
    scores = [0.9, 0.8, 0.7]
    for eta in (1.0, 0.9):
        assert cv2_dnn.NMSBoxes(boxes, scores, 0.1, 0.4, eta).tolist() == kept
    found = cv2_dnn.NMSBoxesBatched(boxes, scores, [0, 1, 0], 0.1, 0.4)
    assert found.tolist() == kept_of_classes


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("boxes", "classes", "threshold", "kept"),
    [
        ([[5, 50, 1, 10], [1, -INF, 1e38, INF]], [0, 2], 0.4, [0]),
        ([[50, -INF, INF, INF], [-INF, 5, 5, 1]], [0, 1], 0.0, [0, 1]),
        ([[50, INF, INF, INF], [-3, 5, INF, 1], [-INF, 0, INF, 5]], [2, 2, 0], 0.9, [0, 1, 2]),
        ([[1e38, NAN, INF, 1e300], [1, 0, 50, 10]], [2, 0], 0.9, [0, 1]),
        (
            [[5, 10, 0, 1], [10, -3, 5, 50], [50, 50, 10, 50], [0, NAN, 0, 5]],
            [1, 2, 1, 0],
            0,
            [0, 1],
        ),
        ([[1, 50, 1, 50], [NAN, 0, 10, 10]], [0, 1], 0.9, [0, 1]),
    ],
)
def test_infinite_boxes_of_classes_are_moved_as_in_opencv(boxes, classes, threshold, kept):
    """OpenCV 4.10 and 5.0 keep these."""
    scores = [0.9, 0.8, 0.7, 0.6][: len(boxes)]
    found = cv2_dnn.NMSBoxesBatched(boxes, scores, classes, 0.1, threshold)
    assert found.tolist() == kept


def test_a_negative_threshold_of_scores():
    boxes, scores = [[0, 0, 10, 10], [100, 0, 10, 10]], [0.9, -0.5]
    assert cv2_dnn.NMSBoxesBatched(boxes, scores, [0, 0], -1, 0.4).tolist() == [0, 1]
    assert cv2_dnn.NMSBoxesBatched(boxes, scores, [0, 0], -0.1, 0.4).tolist() == [0]
    with pytest.raises(InputError, match="score_threshold: expected 0 or more, got -1"):
        cv2_dnn.NMSBoxes(boxes, scores, -1, 0.4)
    with pytest.raises(InputError, match="nms_threshold: expected 0 or more, got -1"):
        cv2_dnn.NMSBoxesBatched(boxes, scores, [0, 0], 0.1, -1)


def test_none_is_no_boxes():
    """OpenCV takes None for an empty array, too."""
    for boxes, scores in ((None, None), ([], None), (None, [])):
        assert cv2_dnn.NMSBoxes(boxes, scores, 0.5, 0.4) == ()
        assert cv2_dnn.NMSBoxesBatched(boxes, scores, None, 0.5, 0.4) == ()
    with pytest.raises(InputError, match="scores: expected 1, one for each box, got 0"):
        cv2_dnn.NMSBoxes([[1, 2, 3, 4]], None, 0.5, 0.4)
    with pytest.raises(InputError, match="scores: expected 0, one for each box, got 1"):
        cv2_dnn.NMSBoxes(None, [0.5], 0.5, 0.4)
    with pytest.raises(InputError, match="class_ids: expected 1, one for each box, got 0"):
        cv2_dnn.NMSBoxesBatched([[1, 2, 3, 4]], [0.5], None, 0.5, 0.4)
