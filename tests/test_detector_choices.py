"""Options of load() and stream() for boxes, threads and pictures."""

from pathlib import Path

import numpy as np
import pytest

import engine
from engine.errors import ImageError, InputError
from engine.vision.postprocess import postprocess
from engine.vision.resize import Placement
from tests.pictures import write_picture


@pytest.fixture
def load(tiny_detector):
    opened = []

    def load(**options):
        names = str(tiny_detector.names)
        opened.append(engine.load(tiny_detector.cfg, tiny_detector.weights, names, **options))
        return opened[-1]

    yield load
    for detector in opened:
        detector.close()


@pytest.fixture
def picture(tmp_path):
    return str(write_picture(tmp_path / "a.png"))


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"classes": ["cat", 2]}, {"cat", "cow"}),
        ({"exclude": ["cat"]}, {"dog", "cow"}),
        ({"classes": "dog", "exclude": ["dog"]}, set()),
        ({"exclude": None}, {"cat", "dog", "cow"}),
        ({"exclude": np.array([0, 1])}, {"cow"}),
    ],
)
def test_only_chosen_classes_are_found(load, picture, options, allowed):
    everything = load(device="cpu", threshold=0.01)(picture)
    chosen = load(device="cpu", threshold=0.01, **options)(picture)
    assert set(chosen.labels) == allowed
    kept = [(each.label, each.score, each.box) for each in everything if each.label in allowed]
    assert [(each.label, each.score, each.box) for each in chosen] == kept


def test_excluded_classes_suppress_nothing(load, picture):
    options = {"device": "cpu", "threshold": 0.01, "agnostic_nms": True}
    every = load(**options)(picture).filter(classes=["cow"])
    alone = load(**options, classes=["cow"])(picture)
    assert len(alone) > len(every)


def test_the_best_boxes_are_kept(load, picture):
    everything = load(device="cpu", threshold=0.01)(picture)
    best = load(device="cpu", threshold=0.01, max_detections=3)(picture)
    assert best.scores.tolist() == everything.scores[:3].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["cta"]}, "no class is called 'cta'"),
        ({"exclude": [-1]}, "expected a number below 3, got -1"),
        ({"classes": 3}, "classes: expected a list of names or numbers, got 3"),
        ({"exclude": 0}, "classes: expected a list of names or numbers, got 0"),
        ({"classes": b"cat"}, "classes: expected a list of names or numbers, got b'cat'"),
        ({"classes": [None]}, "classes: expected names or numbers, got None"),
        ({"classes": [1.5]}, "classes: expected names or numbers, got 1.5"),
        ({"classes": [True, False]}, "classes: expected names or numbers, got True"),
        ({"max_detections": 0}, "max_detections: expected an integer of 1 or more, got 0"),
    ],
)
def test_invalid_choices_are_refused(load, options, message):
    with pytest.raises(InputError, match=message):
        load(device="cpu", **options)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_stream_on_several_threads_keeps_order_and_pictures(load, tmp_path, workers):
    paths = [str(write_picture(tmp_path / f"{n}.png", seed=n)) for n in range(9)]
    detector = load(device="cpu", batch=2)
    streamed = list(detector.stream(paths, workers=workers, keep_pictures=True))
    assert [result.path for result in streamed] == paths
    assert all(result.picture is not None for result in streamed)
    for result, path in zip(streamed, paths, strict=True):
        np.testing.assert_array_equal(result.boxes, detector(path).boxes)


def test_error_among_the_sources_takes_the_place_of_a_picture(load, picture):
    error = ImageError("gone")
    outcomes = list(load(device="cpu").stream([picture, error, picture], on_error="yield"))
    assert outcomes[1] is error
    assert len(outcomes) == 3


@pytest.mark.parametrize("name", ["dog.jpg", Path("dog.jpg")])
def test_stream_refuses_a_single_name(load, name):
    with pytest.raises(InputError, match="got one name"):
        load(device="cpu").stream(name)


def test_stream_refuses_none(load):
    with pytest.raises(InputError, match="sources: expected several pictures, got None"):
        load(device="cpu").stream(None)


def test_candidates_can_be_passed_to_find(load):
    detector = load(device="cpu", batch=2)
    x = np.random.default_rng(0).random((2, 3, 48, 64), np.float32)
    none, usual = detector.candidates(x, threshold=1.0), detector.candidates(x)
    assert [rows.shape for rows in none] == [(0, 8)] * 2
    pictures = [np.ascontiguousarray(row.transpose(1, 2, 0)) for row in x]
    placement = Placement((64, 48), (64, 48))
    for rows, picture in zip(usual, pictures, strict=True):
        found = postprocess(rows, placement, detector.suppression)
        np.testing.assert_array_equal(found.class_ids, detector(picture).class_ids)
