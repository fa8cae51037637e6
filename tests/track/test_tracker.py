"""Identities of boxes in successive frames."""

import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from engine.errors import InputError
from engine.evaluate.mot import tally
from engine.track import NO_TRACK, Tracker
from engine.vision.frame import Frame
from engine.vision.result import Result
from tests.track.scenes import detections, follow, moving_objects

NOTHING = np.empty((0, 4)), np.empty(0)


def box(x, y=50.0, side=40.0):
    return [x, y, x + side, y + side]


def test_two_objects_that_meet_keep_their_identities():
    tracker = Tracker()
    for frame in range(60):
        there, back = box(10 + 5 * frame, 50), box(310 - 5 * frame, 75)
        ids = tracker.update([there, back], [0.9, 0.8])
        assert ids.tolist() == [1, 2]


@pytest.mark.parametrize("rate", [10, 30])
def test_an_identity_survives_a_second_of_occlusion(rate):
    """Three objects walk on; the second one is behind something for a second."""
    tracker = Tracker(rate=rate)
    random = np.random.default_rng(0)
    for frame in range(4 * rate):
        is_hidden = 2 * rate <= frame < 3 * rate
        lanes = [0, 2] if is_hidden else [0, 1, 2]
        moved = 60 * frame / rate
        boxes = [np.array(box(moved, 60.0 * lane)) + random.normal(0, 1, 4) for lane in lanes]
        ids = tracker.update(boxes, [0.9] * len(lanes))
        assert ids.tolist() == [lane + 1 for lane in lanes]


def test_a_track_ends_after_the_time_that_it_may_be_lost():
    tracker = Tracker(rate=10, lost_seconds=0.5)
    assert tracker.update([box(0)], [0.9]).tolist() == [1]
    for _ in range(6):
        tracker.update(*NOTHING)
    tracker.update([box(0)], [0.9])
    assert tracker.update([box(0)], [0.9]).tolist() == [2]


def test_low_scores_continue_a_track_and_start_none():
    tracker = Tracker()
    seen = []
    for frame in range(20):
        score = 0.2 if 5 <= frame < 15 else 0.9
        seen.append(tracker.update([box(4 * frame), box(300)], [score, 0.3]).tolist())
    assert seen == [[1, NO_TRACK]] * 20


def test_a_single_wrong_box_gets_no_identity():
    tracker = Tracker()
    tracker.update([box(0)], [0.9])
    assert tracker.update([box(0), box(300)], [0.9, 0.9]).tolist() == [1, NO_TRACK]
    assert tracker.update([box(0)], [0.9]).tolist() == [1]
    for expected in (NO_TRACK, 2, 2):
        assert tracker.update([box(0), box(200)], [0.9, 0.9]).tolist() == [1, expected]
    assert tracker.count == 2


def test_a_box_continues_a_track_of_its_class_unless_told_otherwise():
    for across, expected in ((False, [1, NO_TRACK, 2]), (True, [1, 1, 1])):
        tracker = Tracker(across_classes=across)
        found = [tracker.update([box(0)], [0.9], [kind])[0] for kind in (3, 5, 5)]
        assert found == expected


def test_skipped_frames_are_told_by_their_time():
    """Every fifth frame: what moves a box's width between two frames is followed nevertheless."""
    tracker = Tracker(rate=30)
    for frame in range(10):
        tracker.update([box(8 * frame)], [0.9], seconds=frame / 30)
    for frame in range(14, 100, 5):
        assert tracker.update([box(8 * frame)], [0.9], seconds=frame / 30).tolist() == [1]


def test_a_varying_frame_rate_is_followed():
    tracker = Tracker(rate=30)
    random = np.random.default_rng(2)
    seconds = 0.0
    for step in [1 / 30] * 10 + random.uniform(0.01, 0.15, 60).tolist():
        seconds += step
        assert tracker.update([box(150 * seconds)], [0.9], seconds=seconds).tolist() == [1]


@pytest.mark.parametrize("seconds", [0.2, 60.0])
def test_after_a_jump_or_a_long_pause_identities_are_new(seconds):
    tracker = Tracker()
    for frame in range(10):
        tracker.update([box(0)], [0.9], seconds=1 + frame / 30)
    for now in (seconds, seconds + 1 / 30):
        assert tracker.update([box(0)], [0.9], seconds=now).tolist() == [2]


@pytest.mark.parametrize(
    "steps", [[2, 2, 2, 2], [0, 2, 0, 2], [60, 60, 60], [2, 4, 2, 4, 2], [60, 2, 2, 2]]
)
def test_sparse_results_keep_identities(steps):
    """What is in every result keeps its identity, however far apart these are."""
    tracker = Tracker(rate=25, lost_seconds=1.5)
    for seconds in np.cumsum([0, *steps]).tolist():
        assert tracker.update([box(0)], [0.9], seconds=seconds).tolist() == [1]


def test_what_sparse_results_lack_for_longer_than_it_may_be_lost_ends():
    tracker = Tracker(rate=25, lost_seconds=1.5)
    for seconds in (0, 2, 4):
        assert tracker.update([box(0), box(300)], [0.9, 0.9], seconds=seconds).tolist() == [1, 2]
    assert tracker.update([box(0)], [0.9], seconds=6).tolist() == [1]
    for seconds, expected in ((8, NO_TRACK), (10, 3)):
        ids = tracker.update([box(0), box(300)], [0.9, 0.9], seconds=seconds)
        assert ids.tolist() == [1, expected]


def test_the_first_frame_after_a_pause_is_a_first_frame():
    tracker = Tracker(rate=25, lost_seconds=1.5)
    times = [0, 0.04, 0.08, 2.08, 4.08, 6.08, 6.12, 6.16, 60, 60.04]
    found = [tracker.update([box(0)], [0.9], seconds=each).tolist() for each in times]
    assert found == [*[[1]] * 3, *[[2]] * 5, *[[3]] * 2]


def test_a_repeated_time_changes_nothing():
    tracker = Tracker()
    for seconds in (0.0, 0.0, 0.1, 0.1):
        assert tracker.update([box(0)], [0.9], seconds=seconds).tolist() == [1]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_are_compared_in_their_own_precision(dtype):
    scores = np.array([0.7, 0.69], dtype)
    boxes = [[0, 0, 10, 10], [50, 50, 60, 60]]
    assert Tracker(high=0.7, hits=1).update(boxes, scores).tolist() == [1, -1]
    assert Tracker(high=0.2, new=0.7).update(boxes, scores).tolist() == [1, -1]
    low = Tracker(high=0.8, new=0.8, low=0.7, low_iou=0.1)
    low.update(boxes, [0.9, 0.9])
    assert low.update(boxes, scores).tolist() == [1, -1]


def test_reset_begins_another_scene():
    tracker = Tracker()
    tracker.update([box(0)], [0.9])
    tracker.reset()
    assert tracker.update([box(0)], [0.9]).tolist() == [2]


def test_boxes_that_are_empty_or_not_finite_get_no_identity():
    tracker = Tracker()
    nan, inf = float("nan"), float("inf")
    bad = [[nan, 0, 9, 9], [0, 0, inf, 9], [5, 5, 5, 9], [9, 9, 2, 2], [-1e30, 0, 1e30, 9]]
    for _ in range(3):
        ids = tracker.update([*bad[:4], box(0), box(50)], [0.9] * 5 + [nan])
        assert ids.tolist() == [NO_TRACK] * 4 + [1, NO_TRACK]
    tracker.update([bad[4]], [0.9])
    assert tracker.update(*NOTHING).tolist() == []
    assert tracker.update([box(0)], [0.9]).tolist() == [1]


def test_of_very_many_boxes_the_best_are_followed():
    random = np.random.default_rng(3)
    corners = random.uniform(0, 5000, (3000, 2))
    boxes = np.concatenate([corners, corners + random.uniform(10, 200, (3000, 2))], axis=1)
    scores = random.uniform(0.5, 1, 3000)
    tracker = Tracker()
    for _ in range(2):
        ids = tracker.update(boxes, scores)
        assert set(np.argsort(-scores)[:1000]) == set(np.flatnonzero(ids != NO_TRACK))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 2, 3]], [0.5]), "boxes: expected (n, 4), got (1, 3)"),
        (([[1, 2, 3, 4]], []), "scores: expected one for each of 1 boxes, got (0,)"),
        (([[1, 2, 3, 4]], [1], [1, 2]), "classes: expected one for each of 1 boxes, got (2,)"),
        (([["a", 2, 3, 4]], [1]), "boxes: expected numbers"),
    ],
)
def test_arrays_of_wrong_shapes_are_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        Tracker().update(*arguments)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "settings",
    [{"high": 2}, {"low": -1}, {"rate": 0}, {"lost_seconds": -1}, {"hits": 0}, {"rate": "a"}],
)
def test_settings_out_of_range_are_refused(settings):
    (name,) = settings
    with pytest.raises(InputError, match=f"^{name}: expected"):
        Tracker(**settings)


def test_low_scores_are_not_above_high_ones():
    with pytest.raises(InputError, match=r"^low: expected at most high, 0\.1, got 0\.5$"):
        Tracker(high=0.1, low=0.5)
    Tracker(high=0.5, low=0.5)
    box = [[0.0, 0.0, 9.0, 9.0]]
    assert Tracker(high=0.05, hits=1).update(box, [0.06]) == [1]  # without `low`


def test_a_time_must_be_finite():
    with pytest.raises(InputError, match="seconds: expected a finite number, got nan"):
        Tracker().update(*NOTHING, seconds=float("nan"))


def test_following_a_result_keeps_the_boxes_that_have_an_identity():
    tracker = Tracker(high=0.5)
    xywhn = np.array([[0.2, 0.5, 0.1, 0.1], [0.7, 0.5, 0.1, 0.1]], np.float32)
    found = Result((100, 80), xywhn, np.array([0.9, 0.3], np.float32), np.array([1, 0]))
    followed = tracker.follow(found)
    assert followed.track_ids.tolist() == [1]
    assert [(each.track_id, each.class_id) for each in followed] == [(1, 1)]
    assert len(tracker.follow(found[:0])) == 0


def test_the_time_of_a_frame_of_a_video_counts():
    xywhn, scores = np.array([[0.2, 0.5, 0.1, 0.1]], np.float32), np.array([0.9], np.float32)
    found = Result((100, 80), xywhn, scores, np.array([1]))

    def of_frame(video, seconds):
        frame = Frame(video, 0, seconds, Fraction(10))
        return tracker.follow(replace(found, frame=frame)).track_ids.tolist()

    tracker = Tracker(high=0.5, rate=10, lost_seconds=1.0, hits=1)
    assert [of_frame("a.mp4", each) for each in (0.0, 0.5)] == [[1], [1]]
    assert of_frame("a.mp4", 5.0) == [2]  # after a pause
    assert of_frame("b.mp4", 0.0) == [3]  # the time goes back
    assert tracker.follow(replace(found, frame=None), seconds=0.1).track_ids.tolist() == [3]


# MOTA and IDF1 of trackers 2.6.1 (Roboflow), ByteTrackTracker with its defaults, on these boxes.
LIBRARY = {(20, 0.02, 0.5): (0.77645, 0.83752), (20, 0.06, 2.0): (0.80615, 0.86041)}


@pytest.mark.parametrize("case", LIBRARY)
def test_a_well_kept_library_is_not_better(case):
    objects, noise, wrong = case
    truth = moving_objects(5, objects=objects, frames=150)
    frames = detections(truth, 6, noise=noise, wrong=wrong)
    found = tally(truth, follow(Tracker(high=0.6, new=0.7), frames))
    mota, idf1 = LIBRARY[case]
    assert found.mota > mota - 0.005
    assert found.idf1 > idf1 - 0.005


def test_a_frame_with_a_hundred_boxes_takes_little_time():
    """The limit is several times what was measured: 0.7 ms."""
    truth = moving_objects(7, objects=150, frames=60, size=(3000, 2000))
    frames = [each for each in detections(truth, 8) if len(each[0]) > 90]
    tracker = Tracker()
    spent = []
    for boxes, scores in frames:
        start = time.process_time()
        tracker.update(boxes, scores)
        spent.append(time.process_time() - start)
    assert len(frames) > 10
    assert np.median(spent) < 0.005
