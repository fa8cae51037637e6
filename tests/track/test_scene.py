"""A scene follows results: identities, counts, trails and what is drawn."""

import json

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError, InputError
from engine.track import Line, Scene, Tracker, Zone
from engine.vision.colours import colour_of
from engine.vision.result import Result

SIZE = (320, 240)


def found(*centres, scores=None):
    sides = [30 / SIZE[0], 40 / SIZE[1]]
    xywhn = [[x / SIZE[0], y / SIZE[1], *sides] for x, y in centres]
    return Result(
        SIZE,
        np.array(xywhn, np.float32).reshape(-1, 4),
        np.array(scores or [0.9] * len(centres), np.float32),
        np.zeros(len(centres), np.int64),
        names=("cat",),
    )


@pytest.fixture
def walked():
    """Return the results of a cat that walks through a zone and over a line."""
    zone = Zone(((100, 0), (220, 0), (220, 240), (100, 240)), "yard")
    scene = Scene(Tracker(rate=10), lines=[Line((160, 0), (160, 240), "door")], zones=[zone])
    return [scene.follow(found((10 + 10 * frame, 120))) for frame in range(30)]


def test_every_output_of_a_result_tells_identities_and_counts(walked):
    result = walked[-1]
    entry = json.loads(result.to_json())
    assert entry["detections"][0]["track_id"] == 1
    assert entry["counts"]["lines"] == [{"name": "door", "in": {}, "out": {"cat": 1}}]
    assert entry["counts"]["zones"][0]["visitors"] == {"cat": 1}
    assert result.to_csv()[0][-1] == 1
    assert result.to_coco(7)[0]["track_id"] == 1
    assert [each.track_id for each in result[[0]]] == [1]
    assert "track_id" not in found((5, 5)).to_json()


def test_trails_lines_and_zones_are_drawn(walked):
    result = walked[20]
    blank = Image.new("RGB", SIZE)
    drawn = np.array(result.plot(blank))
    trail = drawn[120, 30:180]
    assert (np.abs(trail - np.array(colour_of(1), int)).max(axis=1) < 40).any()
    assert (drawn[200, 158:163] == 255).all(axis=1).any()  # the line
    assert (drawn[200, 98:103] == 255).all(axis=1).any()  # the edge of the zone
    assert max(len(each) for each in result.overlay.trails.values()) <= 21  # two seconds


def test_a_trail_is_drawn_only_for_what_is_seen():
    scene = Scene(Tracker(rate=10))
    for frame in range(5):
        result = scene.follow(found((10 + frame, 50), (200, 50 + frame)))
    assert set(result.overlay.trails) == {1, 2}
    result = scene.follow(found((16, 50)))
    assert set(result.overlay.trails) == {1}
    for _ in range(40):
        result = scene.follow(found())
    assert not scene._trails


def test_captions_do_not_cover_each_other():
    zones = [Zone(((10, 10), (300, 10), (300, 200)), name) for name in ("first", "second")]
    scene = Scene(zones=zones)
    drawn = np.array(scene.follow(found()).plot(Image.new("RGB", SIZE, (90, 90, 90))))
    rows = (drawn[:, 10:12] == 255).all(axis=(1, 2))
    assert rows.sum() > 24  # two labels, one below the other


def test_a_frame_that_cannot_be_read_takes_its_time():
    scene = Scene(Tracker(rate=10, lost_seconds=0.5))
    scene.follow(found((50, 50)))
    for _ in range(7):
        scene.skip()
    scene.follow(found((50, 50)))
    assert scene.follow(found((50, 50))).track_ids.tolist() == [2]


def test_points_may_be_arrays_and_lists():
    corners = [[0, 0], [1, 0], [1, 0.5]]
    assert Zone(np.array(corners)) == Zone(corners) == Zone(((0, 0), (1, 0), (1, 0.5)))
    line = Line(np.array([0, 0]), [1, 1])
    assert (line, hash(line)) == (Line((0, 0), (1, 1)), hash(Line((0, 0), (1, 1))))
    for wrong in ([1, 2, 3], "zone", [[0, 0], [1]], None):
        with pytest.raises(InputError, match=r"^yard: expected"):
            Zone(wrong, "yard")


def test_wrong_arguments_are_one_line():
    with pytest.raises(InputError, match=r"^lines: expected a list, got Line"):
        Scene(lines=Line((0, 0), (1, 1)))
    with pytest.raises(InputError, match=r"got the error x\.jpg: gone\. Call skip\(\)"):
        Scene().follow(ImageError("x.jpg: gone"))
    with pytest.raises(InputError, match=r"^lines: expected objects of engine\.track\.Line, got"):
        Scene(lines=[((0, 0), (1, 1))])
    with pytest.raises(InputError, match=r"^result: expected a Result, got {}"):
        Scene().follow({})
    with pytest.raises(InputError, match=r"^seconds: expected a finite number, got 'x'"):
        Tracker().update([], [], seconds="x")
    with pytest.raises(InputError, match=r"^classes: expected numbers of classes"):
        Tracker().update([[0, 0, 9, 9]], [0.9], ["car"])
