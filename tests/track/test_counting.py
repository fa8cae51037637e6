"""Objects that cross lines and are in zones are counted by class and direction."""

import numpy as np
import pytest

from engine.errors import InputError
from engine.track import Counts, Line, Zone
from engine.vision.result import Result

SIZE = (200, 100)


def frame(*objects, size=SIZE):
    """Return the result of a frame with objects (identity, class, centre x, centre y)."""
    table = np.array(objects, float).reshape(-1, 4)
    sides = np.array([20, 20]) / size
    xywhn = np.concatenate([table[:, 2:] / size, np.tile(sides, (len(table), 1))], axis=1)
    return Result(
        size,
        xywhn.astype(np.float32),
        np.full(len(table), 0.9, np.float32),
        table[:, 1].astype(int),
        names=("cat", "dog"),
        track_ids=table[:, 0].astype(int),
    )


def last(counts, frames):
    for each in frames:
        told = counts.update(each)
    return told


DOWN = [frame((1, 0, 50, y)) for y in range(10, 100, 10)]
UP = [frame((2, 1, 150, y)) for y in range(90, 0, -10)]


def test_a_line_counts_both_directions_by_class():
    counts = Counts([Line((0, 50), (200, 50))])
    assert last(counts, [*DOWN, *UP])["lines"] == [
        {"name": "line 1", "in": {"cat": 1}, "out": {"dog": 1}}
    ]
    turned = Counts([Line((200, 50), (0, 50), "door")])
    assert last(turned, DOWN)["lines"] == [{"name": "door", "in": {}, "out": {"cat": 1}}]


def test_what_passes_beside_the_line_does_not_cross_it():
    counts = Counts([Line((100, 50), (200, 50))])
    assert last(counts, DOWN)["lines"][0]["in"] == {}
    around = [(50, 20), (50, 80), (150, 80), (150, 60)]
    assert last(counts, [frame((3, 0, *at)) for at in around])["lines"][0]["in"] == {}


def test_what_walks_along_a_line_and_around_its_end_does_not_cross_it():
    line = Line((50, 50), (100, 50))
    around = [(40, 30), (45, 49.5), (80, 49.5), (105, 49.5), (110, 60)]
    assert last(Counts([line]), [frame((1, 0, *at)) for at in around])["lines"][0]["in"] == {}
    slowly = [(80, 30), (80, 49.5), (80, 50.5), (105, 50.5), (110, 60)]
    told = last(Counts([line]), [frame((1, 0, *at)) for at in slowly])
    assert told["lines"][0]["in"] == {"cat": 1}


def test_what_is_first_seen_on_a_line_has_not_crossed_it():
    line = Line((0, 50), (200, 50))
    down = [frame((1, 0, 50, y)) for y in (49.9, 50.5, 55, 60)]
    assert last(Counts([line]), down)["lines"][0]["in"] == {}
    back = [*down, *(frame((1, 0, 50, y)) for y in (50, 45))]
    assert last(Counts([line]), back)["lines"][0] == {"name": "line 1", "in": {}, "out": {"cat": 1}}


def test_what_is_first_seen_in_a_zone_is_counted_though_it_is_on_its_edge():
    zone = Zone(((40, 0), (120, 0), (120, 100), (40, 100)))
    told = Counts(zones=[zone]).update(frame((1, 0, 40.5, 50)))["zones"][0]
    assert (told["inside"], told["visitors"]) == ({"cat": 1}, {"cat": 1})


def test_a_box_that_shakes_on_a_line_is_counted_once():
    counts = Counts([Line((0, 50), (200, 50))])
    shaking = [frame((1, 0, 50, 50 + 0.9 * (-1) ** number)) for number in range(50)]
    frames = [frame((1, 0, 50, 40)), *shaking, frame((1, 0, 50, 60))]
    assert last(counts, frames)["lines"][0] == {"name": "line 1", "in": {"cat": 1}, "out": {}}


def test_a_fast_object_is_counted_though_it_was_never_near():
    counts = Counts([Line((100, 0), (100, 100))])
    told = last(counts, [frame((1, 0, 180, 50)), frame(), frame((1, 0, 10, 50))])
    assert told["lines"][0]["in"] == {"cat": 1}


def test_a_zone_counts_who_is_inside_who_came_and_who_left():
    counts = Counts(zones=[Zone(((40, 0), (120, 0), (120, 100), (40, 100)), "yard")])
    walking = [frame((1, 0, x, 50), (2, 1, 80, 50)) for x in range(15, 200, 10)]
    told = [counts.update(each)["zones"][0] for each in walking]
    assert [each["inside"].get("cat", 0) for each in told] == [0] * 3 + [1] * 8 + [0] * 8
    assert told[-1] == {
        "name": "yard",
        "inside": {"dog": 1},
        "entered": {"cat": 1},
        "left": {"cat": 1},
        "visitors": {"cat": 1, "dog": 1},
    }
    assert counts.update(frame())["zones"][0]["inside"] == {}


def test_a_zone_may_have_any_shape():
    """A U: the notch in its middle is outside."""
    corners = ((0, 0), (60, 0), (60, 60), (140, 60), (140, 0), (200, 0), (200, 100), (0, 100))
    counts = Counts(zones=[Zone(corners)])
    inside = {at: counts.update(frame((1, 0, *at)))["zones"][0]["inside"] != {} for at in PLACES}
    assert inside == PLACES


PLACES = {(30, 30): True, (100, 30): False, (100, 80): True, (170, 30): True, (100, 20): False}


def strip(left, right):
    """Return a zone from the top to the bottom of the picture."""
    return Zone(((left, 0), (right, 0), (right, 100), (left, 100)))


@pytest.mark.parametrize("width", [0.5, 1, 1.9, 10])
def test_a_zone_may_be_thinner_than_the_margin_of_a_box(width):
    """The margin is 1: it is as large outside, however thin the zone is."""
    counts = Counts(zones=[strip(100 - width / 2, 100 + width / 2)])
    told = last(counts, [frame((1, 0, x, 50)) for x in (80, 100, 100)])["zones"][0]
    assert told["inside"] == told["entered"] == told["visitors"] == {"cat": 1}
    beside = 100 + width / 2
    assert counts.update(frame((1, 0, beside + 0.9, 50)))["zones"][0]["left"] == {}
    assert counts.update(frame((1, 0, beside + 1.1, 50)))["zones"][0]["left"] == {"cat": 1}
    just_inside = frame((1, 0, beside - min(1, width / 4) / 2, 50))
    assert counts.update(just_inside)["zones"][0]["inside"] == {}


def test_a_box_that_shakes_on_the_edge_of_a_thin_zone_enters_once():
    counts = Counts(zones=[strip(99, 101)])
    shaking = [frame((1, 0, 99 + 0.9 * (-1) ** number, 50)) for number in range(50)]
    told = last(counts, [frame((1, 0, 80, 50)), *shaking])["zones"][0]
    assert (told["entered"], told["left"]) == ({"cat": 1}, {})


def test_a_thin_part_of_a_zone_counts_like_a_thin_zone():
    """A square of 60 pixels with an arm of 1 pixel, and what is as deep in the square."""
    corners = ((0, 0), (60, 0), (60, 49.5), (200, 49.5), (200, 50.5), (60, 50.5), (60, 60), (0, 60))
    for place, inside in (((150, 50), {"cat": 1}), ((30, 0.5), {}), ((30, 1.1), {"cat": 1})):
        counts = Counts(zones=[Zone(corners)])
        told = last(counts, [frame((1, 0, 150, 90)), frame((1, 0, *place))])["zones"][0]
        assert told["inside"] == inside


def test_a_visitor_is_counted_once():
    counts = Counts(zones=[Zone(((0, 0), (100, 0), (100, 100)))])
    there_and_back = [frame((1, 0, x, 20)) for x in (180, 60, 180, 60)]
    told = last(counts, there_and_back)["zones"][0]
    assert (told["entered"], told["visitors"]) == ({"cat": 2}, {"cat": 1})


def test_a_visitor_that_changes_its_class_adds_no_other_class():
    counts = Counts(zones=[Zone(((0, 0), (100, 0), (100, 100)))])
    seen = [frame((1, class_id, 60, 20)) for class_id in (0, 1)]
    told = last(counts, seen)["zones"][0]
    assert (told["inside"], told["visitors"]) == ({"dog": 1}, {"cat": 1})


def test_narrow_and_twisted_zones_have_an_area():
    for corners in (
        ((0, 0), (1, 0), (1, 0.001)),
        ((0, 0), (3840, 0), (3840, 1)),
        ((0, 0), (1, 1), (1, 0), (0, 1)),
    ):
        assert Zone(corners).corners == corners


def test_points_up_to_one_are_shares_of_the_picture():
    counts = Counts([Line((0, 0.5), (1, 0.5))], [Zone(((0, 0), (0.5, 0), (0.5, 1), (0, 1)))])
    told = last(counts, DOWN)
    assert told["lines"][0]["in"] == {"cat": 1}
    assert told["zones"][0]["inside"] == {"cat": 1}
    marks = list(counts.marks(SIZE))
    assert [list(each.points)[-1] for each in marks] == [(200, 50), (0, 100)]
    assert [each.caption for each in marks] == ["line 1: in 1 cat, out 0", "zone 1: inside 1 cat"]


def test_the_lower_edge_may_be_the_position():
    at = [frame((1, 0, 50, 45))]
    zone = Zone(((0, 50), (200, 50), (200, 100), (0, 100)))
    assert last(Counts(zones=[zone]), at)["zones"][0]["inside"] == {}
    assert last(Counts(zones=[zone], anchor="bottom"), at)["zones"][0]["inside"] == {"cat": 1}


def test_tracks_that_have_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr("engine.track.counting._FORGET_FRAMES", 10)
    line = Line((0, 50), (200, 50))
    counts = Counts([line])
    for identity in range(100):
        counts.update(frame((identity, 0, 50, 20)))
    (remembered,) = counts._all
    assert len(remembered._seen) <= 20


DOOR = Line((1, 1), (5, 5), "door")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Line((1, 1), (1, 1)), "line: expected two different points"),
        (lambda: Zone(((1, 1), (5, 5), (1, 1)), "yard"), "yard: expected 3 or more points, got 2"),
        (lambda: Zone(((0, 0), (1, 1), (0.5, 0.5)), "z"), "z: expected points around an area, got"),
        (lambda: Zone(((0, 0), (0.1, 0.3), (0.2, 0.6), (0.3, 0.9))), "zone: expected points arou"),
        (lambda: Line((1, 1), (float("nan"), 1)), "line: expected finite numbers"),
        (
            lambda: Counts([DOOR, DOOR]),
            "lines and zones: expected different names, got 'door' twice",
        ),
        (lambda: Counts([DOOR], [Zone(((1, 1), (5, 5), (1, 5)), "door")]), "got 'door' twice"),
        (lambda: Counts([Line((1, 1), (5, 5), "line 2"), Line((1, 1), (5, 6))]), "'line 2' twice"),
        (lambda: Counts(anchor="botom"), "anchor: expected centre or bottom, got 'botom'."),
        (lambda: Counts().update(Result(SIZE, *np.zeros((3, 0)))), "result: has no identities"),
    ],
)
def test_wrong_shapes_are_refused(make, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        make()
