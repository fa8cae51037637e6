"""What is hidden in a picture cannot be recovered from it."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine.errors import InputError
from engine.track import Tracker
from engine.vision import draw
from engine.vision.code import Code
from engine.vision.detection import Box
from engine.vision.hide import hidden_classes, hide
from engine.vision.result import Result

PARCEL = Path(__file__).parents[2] / "docs/parcel.jpg"
NAMES = ("cat", "dog", "cow")
WAYS = ("blur", "pixelate")


def noise(width=200, height=160, seed=0):
    random = np.random.default_rng(seed)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8))


def hidden(image, box, way):
    copy = image.copy()
    hide(copy, [Box(*box)], way)
    return copy


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "box", [(50, 40, 90, 120), (20, 30, 180, 50), (-50, -9, 30, 20), (60, 60, 64, 64)]
)
def test_the_box_and_a_margin_change_and_nothing_else(way, box):
    image = noise()
    changed = (np.asarray(hidden(image, box, way)) != np.asarray(image)).any(axis=2)
    left, top, right, bottom = (round(max(edge, 0)) for edge in box)
    assert changed[top:bottom, left:right].mean() > 0.98
    margin = [max(0.1 * side, 2) for side in (box[2] - box[0], box[3] - box[1])]
    outside = np.ones_like(changed)
    outside[
        max(int(box[1] - margin[1]), 0) : int(np.ceil(box[3] + margin[1])),
        max(int(box[0] - margin[0]), 0) : int(np.ceil(box[2] + margin[0])),
    ] = False
    assert not changed[outside].any()


@pytest.mark.parametrize(("way", "cells"), [("blur", 4), ("pixelate", 8)])
@pytest.mark.parametrize("sides", [(8, 8), (64, 64), (160, 80), (80, 640)])
def test_nothing_but_a_few_averages_has_an_influence(way, cells, sides):
    cells = min(cells, max(sides) // 8)
    counts = [max(1, side * cells // max(sides)) for side in sides]
    detailed = noise(*sides)
    plain = detailed.resize(counts, Image.Resampling.BOX).resize(sides, Image.Resampling.NEAREST)
    first, second = (np.asarray(hidden(each, (0, 0, *sides), way)) for each in (detailed, plain))
    np.testing.assert_array_equal(first, second)
    assert not (np.asarray(detailed) == np.asarray(plain)).all()


@pytest.mark.parametrize("way", WAYS)
def test_a_box_outside_of_the_picture_or_without_numbers_changes_nothing(way):
    image = noise()
    for box in ((300, 0, 400, 50), (-90, -90, -20, -20), (float("nan"), 0, 5, 5), (0, 0, 1e39, 9)):
        out = np.asarray(hidden(image, box, way))
        is_inside = np.isfinite(box).all() and box[0] < 200 and box[2] > 0
        assert (out == np.asarray(image)).all() != is_inside


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_hidden_codes_are_not_found_again(way):
    with engine.load(device="cpu") as detector:
        found = detector(PARCEL)
        options = {"show_labels": False, "show_scores": False, "line_width": 1}
        assert len(found) == 7
        assert len(detector(found.plot(**options))) >= 6  # outlines alone hide hardly anything
        assert len(detector(found.plot(**{way: "all"}, **options))) == 0
        others = detector(found.plot(**{way: ["barcode"]}, **options))
    assert "barcode" not in others.labels
    assert len(others) >= 4


def test_only_the_chosen_classes_are_hidden_also_in_crops_and_files(tmp_path):
    image = noise()
    path = tmp_path / "noise.png"
    image.save(path)
    boxes = [(0.25, 0.5, 0.2, 0.4), (0.75, 0.5, 0.2, 0.4)]
    found = Result(
        image.size,
        np.array(boxes, np.float32),
        np.array([0.9, 0.8], np.float32),
        np.array([0, 1]),
        NAMES,
        str(path),
    )
    plain, part = np.asarray(found.plot()), np.asarray(found.plot(blur=["dog"]))
    assert (plain[:, :90] == part[:, :90]).all()
    assert not (plain[:, 110:] == part[:, 110:]).all()
    np.testing.assert_array_equal(part, np.asarray(found.plot(blur=[1])))
    saved = found.save(tmp_path / "out.png", blur="dog")
    np.testing.assert_array_equal(np.asarray(Image.open(saved)), part)
    (_, cat), (_, dog) = sorted(found.hide(pixelate="dog").crops(), key=lambda pair: pair[0].label)
    (_, whole_cat), (_, whole_dog) = sorted(found.crops(), key=lambda pair: pair[0].label)
    np.testing.assert_array_equal(np.asarray(cat), np.asarray(whole_cat))
    assert np.asarray(dog).std() < 0.5 * np.asarray(whole_dog).std()
    found.hide(pixelate="all").save_crop(tmp_path / "crops")
    assert len(list((tmp_path / "crops").glob("*/*.jpg"))) == 2


def test_a_hidden_picture_is_not_replaced_by_the_whole_one(tmp_path):
    box = np.array([[0.5, 0.5, 0.4, 0.4]], np.float32)
    found = Result((200, 160), box, np.array([0.9], np.float32), np.array([0]), NAMES)
    hidden = found.hide(noise(), blur="cat")
    for show in (hidden.plot, hidden.crops, hidden.hide, lambda it: hidden.save("a.png", it)):
        with pytest.raises(InputError, match="and another would show them"):
            show(noise())
    assert len(found.hide(noise(), blur="dog").crops(noise())) == 1  # nothing was hidden


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it)), lambda it: it[:]],
)
def test_a_copy_of_a_hidden_result_shows_no_more(tmp_path, copied):
    noise().save(tmp_path / "a.png")
    box = np.array([[0.5, 0.5, 0.4, 0.4]], np.float32)
    path = str(tmp_path / "a.png")
    found = Result((200, 160), box, np.array([0.9], np.float32), np.array([0]), NAMES, path)
    hidden = found.hide(blur="all")
    again = copied(hidden)
    np.testing.assert_array_equal(np.asarray(again.plot()), np.asarray(hidden.plot()))
    with pytest.raises(InputError, match="another would show them"):
        again.plot(noise())


def test_what_is_not_followed_is_hidden(tmp_path):
    """A tracker gives no identity to a new object in its first frames, nor to a doubtful one."""
    boxes = np.array([[0.3, 0.5, 0.2, 0.4], [0.7, 0.5, 0.2, 0.4]], np.float32)
    scores, class_ids = np.array([0.9, 0.15], np.float32), np.array([0, 1])
    found = Result((200, 160), boxes, scores, class_ids, NAMES)
    followed = Tracker(high=0.5, hits=1).follow(found)
    assert len(followed) == 1
    hidden = np.asarray(followed.hide(noise(), blur="all").picture.pixels)
    expected = np.asarray(found.hide(noise(), blur="all").picture.pixels)
    np.testing.assert_array_equal(hidden, expected)
    np.testing.assert_array_equal(
        np.asarray(followed.hide(noise(), blur="dog").picture.pixels),
        np.asarray(found.hide(noise(), blur="dog").picture.pixels),
    )


@pytest.mark.parametrize(
    "chosen",
    [
        lambda it: it.filter(classes=["cat"]),
        lambda it: it.filter(exclude=["dog"]),
        lambda it: it.filter(min_score=0.5),
        lambda it: it[:1],
        lambda it: it[it.scores > 0.5],
        lambda it: Tracker(high=0.5, hits=1).follow(it.filter(classes=["cat"])),
    ],
)
@pytest.mark.parametrize("classes", ["dog", "all"])
def test_what_is_left_out_is_hidden(chosen, classes):
    boxes = np.array([[0.3, 0.5, 0.2, 0.4], [0.7, 0.5, 0.2, 0.4]], np.float32)
    scores, class_ids = np.array([0.9, 0.15], np.float32), np.array([0, 1])
    found = Result((200, 160), boxes, scores, class_ids, NAMES)
    hidden = chosen(found).hide(noise(), blur=classes)
    expected = found.hide(noise(), blur=classes).picture.pixels
    assert len(hidden) == 1
    np.testing.assert_array_equal(hidden.picture.pixels, expected)
    np.testing.assert_array_equal(hidden.others.picture.pixels, expected)
    with pytest.raises(InputError, match="and another would show them"):
        hidden.others.plot(noise())


def test_what_the_detector_leaves_out_cannot_be_hidden():
    path = Path(__file__).parents[2] / "docs/parcel.jpg"
    with engine.load(device="cpu") as detector:
        for found in (detector(path, classes=["qr"]), *detector.stream([path], classes=["qr"])):
            with pytest.raises(InputError, match="blur barcode: is excluded by classes"):
                found.hide(blur=["barcode"])
            with pytest.raises(InputError, match="pixelate all: classes omits classes"):
                found.plot(pixelate="all")
            assert found.hide(blur=["qr"]).hidden
        with pytest.raises(InputError, match="blur: not with max_detections, which may have"):
            detector(path, max_detections=1).hide(blur="all")


def test_classes_are_chosen_by_name_number_or_all():
    assert set(hidden_classes("blur", ["cat", 2], NAMES)) == {0, 2}
    assert set(hidden_classes("blur", "dog", NAMES)) == {1}
    assert 77 in hidden_classes("blur", "all", NAMES)
    assert 0 in hidden_classes("blur", ["all"], NAMES)
    assert 0 in hidden_classes("blur", "all", ("one", "all"))  # even if a class has this name
    assert not hidden_classes("blur", None, NAMES)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ("dgo", "blur: no class is called 'dgo'. Did you mean 'dog'?"),
        (["al"], "blur: no class is called 'al'. Did you mean 'all'?"),
        ([3], "blur: expected a number below 3, got 3"),
        ([-1], "blur: expected a number below 3, got -1"),
        (7, "blur: expected a list of names or numbers, got 7"),
    ],
)
def test_unknown_classes_are_refused(classes, message):
    with pytest.raises(InputError) as caught:
        hidden_classes("blur", classes, NAMES)
    assert str(caught.value) == message


def test_to_hide_nothing_is_a_mistake():
    with pytest.raises(
        InputError, match=r"hide: expected classes for blur= or pixelate=, got none"
    ):
        engine.load(device="cpu")(PARCEL).hide("qr")


def test_what_a_hidden_code_says_is_not_drawn(monkeypatch):
    code = Code("secret", "QR Code", ((20, 20), (60, 20), (60, 60), (20, 60)), b"secret")
    box = np.array([[0.2, 0.25, 0.2, 0.25]], np.float32)
    found = Result((200, 160), box, np.array([0.9], np.float32), np.array([0]), NAMES, codes=[code])
    captions = []

    def annotate(image, boxes, class_ids, texts, **more):
        captions.append(texts[0])
        return image

    monkeypatch.setattr(draw, "annotate", annotate)
    found.plot(noise())
    found.plot(noise(), blur="dog")
    found.plot(noise(), blur="cat")
    found.hide(noise(), pixelate="all").plot()
    assert ["secret" in each for each in captions] == [True, True, False, False]
    assert found.hide(noise(), blur="cat")[0].text == "secret"  # JSON still has it
