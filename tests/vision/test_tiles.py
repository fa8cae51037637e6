"""Tiles cover a picture, and what several of them show is one box."""

import time

import numpy as np
import pytest

from engine.errors import InputError
from engine.vision import tiles as tiles_module
from engine.vision.boxes import Boxes, Suppression
from engine.vision.tiles import MOST_TILES, areas_of, merge

NETWORK = (416, 416)
PICTURE = (2000, 1500)


# ---------------------------------------------------------------- geometry


@pytest.mark.parametrize("picture", [(4000, 3000), (833, 20), (20, 5000), (1280, 720), (900, 900)])
@pytest.mark.parametrize("tiles", ["auto", 640, 250, (4, 3), (1, 2), (7, 1)])
@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.5])
def test_tiles_cover_the_picture_and_overlap(picture, tiles, overlap):
    areas = areas_of(picture, NETWORK, tiles, overlap)
    if not areas:
        assert tiles == "auto" or max(picture) <= tiles
        return
    assert areas[0] == (0, 0, *picture)
    assert len(set(areas)) == len(areas)
    by_size = {}
    for left, top, right, bottom in areas[1:]:
        assert 0 <= left < right <= picture[0]
        assert 0 <= top < bottom <= picture[1]
        by_size.setdefault((right - left, bottom - top), []).append((left, top))
    for sides, corners in by_size.items():
        for axis in (0, 1):
            starts = sorted({corner[axis] for corner in corners})
            assert starts[0] == 0
            assert starts[-1] + sides[axis] == picture[axis]
            steps = np.diff(starts)
            assert all(steps <= sides[axis] * (1 - overlap) + 1)


@pytest.mark.parametrize("picture", [(4000, 3000), (1280, 720), (900, 700), (12000, 400)])
@pytest.mark.parametrize("network", [(416, 416), (608, 320)])
def test_automatic_tiles_scale_nothing_down_by_more_than_two(picture, network):
    areas = areas_of(picture, network, "auto", 0.2)
    smallest = min((right - left, bottom - top) for left, top, right, bottom in areas)
    assert all(side <= 2 * made_for for side, made_for in zip(smallest, network, strict=True))


def test_a_picture_that_fits_is_not_cut():
    assert areas_of((832, 832), NETWORK, "auto", 0.2) == ()
    assert areas_of((640, 480), NETWORK, 640, 0.2) == ()
    assert areas_of((640, 480), NETWORK, (1, 1), 0.2) == ()


def test_columns_and_rows_are_as_named():
    areas = areas_of((4000, 3000), NETWORK, (4, 3), 0.25)
    assert len(areas) == 1 + 12
    assert len({area[0] for area in areas[1:]}) == 4
    assert areas[1] == (0, 0, 1231, 1200)


def test_too_many_tiles_are_refused():
    with pytest.raises(InputError, match=f"expected at most {MOST_TILES} of a picture, got 500 x"):
        areas_of((4000, 3000), NETWORK, 10, 0.2)


# ---------------------------------------------------------------- merging


def boxes_of(rows):
    """Return Boxes of rows (x, y, width, height, score, class) relative to a tile."""
    rows = np.array(rows, np.float32).reshape(-1, 6)
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    return Boxes(rows[:, :4], rows[:, 4], rows[:, 5].astype(np.int64), rows[:, 4])


def seen(objects, areas, *, visible=0.002, jitter=0.0, seed=0, whole=False):
    """Return what a detector finds: in each tile the visible part of each object.

    Objects are (left, top, right, bottom) and perhaps a class. It does not find parts below a share
    `visible`, misses every edge by up to `jitter` of the part, and sees nothing in the whole
    picture unless `whole`.
    """
    random = np.random.default_rng(seed)
    boxes = np.array([each[:4] for each in objects], float)
    found = []
    for number, (left, top, right, bottom) in enumerate(areas):
        rows = []
        parts = np.hstack(
            [np.maximum(boxes[:, :2], (left, top)), np.minimum(boxes[:, 2:], (right, bottom))]
        )
        sides = parts[:, 2:] - parts[:, :2]
        large = sides.prod(axis=1) >= visible * (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        is_seen = (sides > 0).all(axis=1) & large & (number > 0 or whole)
        for index in np.flatnonzero(is_seen):
            part = parts[index] + np.tile(sides[index], 2) * random.uniform(-jitter, jitter, 4)
            part = (part - (left, top, left, top)) / np.tile((right - left, bottom - top), 2)
            score = random.uniform(0.3, 0.9)
            kind = objects[index][4] if len(objects[index]) > 4 else 0
            rows.append((*(part[:2] + part[2:]) / 2, *(part[2:] - part[:2]), score, kind))
        found.append(boxes_of(rows))
    return found


def merged(found, areas, **options):
    """Return edges in pixels and classes, from left to right."""
    boxes = merge(found, areas, Suppression(), **options)
    assert (np.diff(boxes.scores) <= 0).all()
    scale = np.tile(areas[0][2:], 2)
    edges = np.hstack(
        [boxes.xywh[:, :2] - boxes.xywh[:, 2:] / 2, boxes.xywh[:, :2] + boxes.xywh[:, 2:] / 2]
    )
    rows = np.column_stack([edges * scale, boxes.class_ids])
    return rows[np.lexsort(rows.T[::-1])]


def expect(objects, found, areas, tolerance=0.01):
    """Assert that each object has one box, whose edges are off by at most a share of its sides."""
    rows = merged(found, areas)
    wanted = np.array([(*each[:4], each[4] if len(each) > 4 else 0) for each in objects], float)
    wanted = wanted[np.lexsort(wanted.T[::-1])]
    assert len(rows) == len(wanted)
    sides = np.tile(wanted[:, 2:4] - wanted[:, :2], 2)
    assert (np.abs(rows[:, :4] - wanted[:, :4]) <= tolerance * sides + 0.1).all()
    np.testing.assert_array_equal(rows[:, 4], wanted[:, 4])


GRIDS = [(4, 3), (2, 2), 400, "auto"]


@pytest.mark.parametrize("tiles", GRIDS)
@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("jitter", [0.0, 0.015])
def test_objects_of_every_size_have_one_box(tiles, overlap, jitter):
    areas = areas_of(PICTURE, NETWORK, tiles, overlap)
    random = np.random.default_rng(5)
    for seed in range(2):
        objects = []
        for row in range(3):  # objects in cells, so that they do not overlap
            for column in range(4):
                sides = np.exp(random.uniform(np.log(24), np.log(440), 2))
                corner = np.array([column, row]) * 500 + random.uniform(0, 490 - sides)
                objects.append((*corner, *(corner + sides), random.integers(2)))
        expect(objects, seen(objects, areas, jitter=jitter, seed=seed), areas, 3 * jitter + 0.01)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("overlap", [0.0, 0.2])
@pytest.mark.parametrize(
    "box",
    [
        (900, 650, 1100, 850),  # in four tiles
        (100, 700, 1900, 740),  # long and thin, across all columns
        (480, 10, 520, 1490),  # and across all rows
        (10, 10, 1990, 1490),  # larger than each tile
        (950, 100, 1010, 160),
    ],
)
def test_a_box_in_several_tiles_is_one(box, overlap, whole):
    areas = areas_of(PICTURE, NETWORK, (4, 3), overlap)
    found = seen([box], areas, visible=0.01, whole=whole)
    assert sum(len(each) > 0 for each in found[1:]) > 1 or overlap
    expect([box], found, areas)


@pytest.mark.parametrize("overlap", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("sides", [(60, 60), (200, 40), (40, 200), (12, 12), (350, 300)])
def test_touching_neighbours_of_one_class_stay_apart(overlap, sides):
    areas = areas_of(PICTURE, NETWORK, (4, 3), overlap)
    width, height = sides
    for left in range(380, 640, 37):  # across an edge between two columns
        objects = [(left + n * width, 300, left + (n + 1) * width, 300 + height) for n in range(3)]
        edges = {edge for area in areas[1:] for edge in (area[0], area[2])}
        if any(abs(each[0] - edge) < 0.1 * width + 12 for each in objects for edge in edges):
            continue  # two neighbours that meet at the edge of a tile cannot be told from one
        expect(objects, seen(objects, areas, visible=0.02), areas)


def test_a_small_object_in_front_of_a_large_one_is_kept():
    areas = areas_of(PICTURE, NETWORK, (4, 3), 0.2)
    objects = [(100, 100, 900, 1300), (300, 700, 420, 860)]
    expect(objects, seen(objects, areas, visible=0.1), areas)
    large = seen(objects[:1], areas, whole=True)[:1]  # only the whole picture shows it
    small = seen(objects[1:], areas)[1:]
    expect(objects, [*large, *small], areas)


def test_two_of_a_crowd_are_kept_in_every_order_of_scores():
    areas = [(0, 0, 1000, 500), (0, 0, 600, 500), (400, 0, 1000, 500)]
    crowd = [(420, 100, 520, 400), (465, 110, 570, 390)]  # they overlap by half of their widths
    for seed in range(20):
        expect(crowd, seen(crowd, areas, jitter=0.02, seed=seed, whole=True), areas, 0.06)


def test_classes_are_merged_apart_unless_nms_is_agnostic():
    areas = areas_of(PICTURE, NETWORK, (2, 2), 0.2)
    objects = [(950, 700, 1050, 800, 0), (950, 700, 1050, 800, 1)]
    found = seen(objects, areas)
    assert len(merged(found, areas)) == 2
    assert len(merge(found, areas, Suppression(across_classes=True))) == 1


def test_scores_are_the_best_and_the_best_are_kept():
    areas = areas_of(PICTURE, NETWORK, (2, 2), 0.2)
    objects = [(900 + 60 * n, 700, 950 + 60 * n, 800) for n in range(3)]
    found = seen(objects, areas)
    best = max(each.scores.max() for each in found if len(each))
    boxes = merge(found, areas, Suppression(), max_detections=2)
    assert len(boxes) == 2
    assert boxes.scores[0] == best


def test_no_boxes_are_merged_to_none():
    areas = areas_of(PICTURE, NETWORK, (2, 2), 0.2)
    none = [boxes_of([])] * len(areas)
    assert len(merge(none, areas, Suppression())) == 0
    assert merge(none, areas, Suppression()).xywh.shape == (0, 4)


def test_a_thousand_boxes_over_each_other_are_merged():
    areas = areas_of(PICTURE, NETWORK, (4, 3), 0.2)
    random = np.random.default_rng(0)
    rows = random.uniform(0.05, 0.95, (len(areas), 100, 6))
    rows[..., 5] = 0
    found = [boxes_of(each) for each in rows]
    boxes = merge(found, areas, Suppression(threshold=1.0))
    assert 0 < len(boxes) <= 100 * len(areas)


def crowd(count):
    """Return tiles, and what they find of `count` squares that stand in rows of 150."""
    number = np.arange(count)
    corners = np.column_stack([number % 150, number // 150]) * 44.0
    objects = np.hstack([corners, corners + 40])
    areas = areas_of((150 * 44, -(-count // 150) * 44), NETWORK, 640, 0.2)
    return areas, seen(objects, areas, jitter=0.01)


@pytest.mark.slow
def test_every_object_of_a_crowd_is_kept():
    areas, found = crowd(12_000)
    assert sum(map(len, found)) > 20_000
    warnings = []
    began = time.process_time()
    assert len(merge(found, areas, Suppression(), warn=warnings.append)) == 12_000
    assert time.process_time() - began < 3  # a fifth of a second on an idle machine
    assert not warnings


def test_too_many_boxes_lose_the_worst_with_a_warning(monkeypatch):
    areas, found = crowd(300)
    total = sum(map(len, found))
    monkeypatch.setattr(tiles_module, "MOST_BOXES", 100)
    warnings = []
    boxes = merge(found, areas, Suppression(), warn=warnings.append)
    assert warnings == [f"only the best 100 of {total} boxes are merged. Raise the threshold"]
    scores = np.sort(np.concatenate([each.scores for each in found]))
    assert 0 < len(boxes) <= 100
    assert boxes.scores[-1] >= scores[-100]


def test_boxes_all_over_each_other_are_merged_up_to_a_number_of_pairs(monkeypatch):
    monkeypatch.setattr(tiles_module, "MAX_SCORES", 50)
    monkeypatch.setattr(tiles_module, "_MOST_PAIRS", 10_000)
    areas = areas_of(PICTURE, NETWORK, (2, 2), 0.2)
    row = np.array([0.5, 0.5, 0.9, 0.9, 0.5, 0])
    found = [boxes_of(np.tile(row, (100, 1))) for _ in areas]
    warnings = []
    merge(found, areas, Suppression(), warn=warnings.append)
    assert warnings == ["only the best 87 of 500 boxes are merged. Raise the threshold"]
    areas, found = crowd(300)
    merge(found, areas, Suppression(), warn=warnings.append)
    assert len(warnings) == 1
