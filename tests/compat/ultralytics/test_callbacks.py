"""Functions of a program are called at the events of a prediction."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from engine.compat.ultralytics import Results
from engine.errors import InputError

LOW = {"conf": 0.01, "iou": 1.0}
EVENTS = [
    "on_predict_start",
    "on_predict_postprocess_end",
    "on_predict_batch_end",
    "on_predict_end",
]


@pytest.mark.parametrize("call", ["predict", "track", "__call__"])
def test_events_of_two_pictures(model, call):
    seen = []
    for event in EVENTS:
        model.add_callback(event, lambda predictor, event=event: seen.append((event, predictor)))
    found = getattr(model, call)(["a.png", "more/b.png"], stream=True)
    assert not seen
    assert len(list(found)) == 2
    each = ["on_predict_postprocess_end", "on_predict_batch_end"]
    assert [event for event, _ in seen] == ["on_predict_start", *each, *each, "on_predict_end"]
    assert {predictor for _, predictor in seen} == {model.predictor}


def test_what_a_callback_reads(model):
    facts = []

    def read(predictor):
        (result,) = predictor.results
        paths, pictures, texts = predictor.batch
        facts.append((paths, texts, predictor.seen, predictor.args.conf))
        assert isinstance(result, Results)
        np.testing.assert_array_equal(pictures[0], result.orig_img)

    model.add_callback("on_predict_batch_end", read)
    first, second = model(["a.png", "more/b.png"], **LOW)
    assert facts == [
        (["a.png"], [first.verbose()], 1, 0.01),
        (["more/b.png"], [second.verbose()], 2, 0.01),
    ]
    assert model.predictor.results == [second]
    assert model.predictor.save_dir is None


def test_what_is_changed_before_files_are_written_is_in_them(model):
    def keep_one(predictor):
        predictor.results = [each[:1] for each in predictor.results]

    model.add_callback("on_predict_postprocess_end", keep_one)
    (result,) = model("a.png", save_txt=True, **LOW)
    assert len(result) == 1
    folder = model.predictor.save_dir
    assert folder == Path("runs/detect/predict")
    assert len((folder / "labels/a.txt").read_text().splitlines()) == 1


def test_the_loop_takes_what_a_callback_leaves(model):
    def pair(predictor):
        predictor.results = zip(predictor.results, predictor.batch[1], strict=True)

    model.add_callback("on_predict_batch_end", pair)
    for result, picture in model(["a.png", "more/b.png"]):
        np.testing.assert_array_equal(result.orig_img, picture)


def test_callbacks_are_cleared(model):
    calls = []
    for event in EVENTS:
        model.add_callback(event, lambda _, event=event: calls.append(event))
    assert len(model.callbacks["on_predict_end"]) == 1
    model.clear_callback("on_predict_start")
    model("a.png")
    assert calls == EVENTS[1:]
    model.reset_callbacks()
    model("a.png")
    assert calls == EVENTS[1:]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("on_predict_stop", "Did you mean 'on_predict_start'"),
        ("on_predict_batch_start", "Pictures are read ahead: use on_predict_postprocess_end"),
        ("on_train_end", "expected one of on_predict_start, "),
    ],
)
def test_unknown_events(model, event, message):
    for call in (lambda: model.add_callback(event, print), lambda: model.clear_callback(event)):
        with pytest.raises(InputError, match=f"^event: .*{message}"):
            call()


def test_a_callback_is_a_function(model):
    with pytest.raises(InputError, match=r"^callback: expected a function .* got None"):
        model.add_callback("on_predict_end", None)


def test_what_is_no_result_is_not_written(model):
    def take(predictor, left):
        predictor.results = left(predictor)

    for left in (lambda each: each.batch[1], lambda _: None):
        model.reset_callbacks()
        model.add_callback("on_predict_postprocess_end", partial(take, left=left))
        found = model("a.png", save=True, save_txt=True, **LOW)
        assert len(found) == (0 if left(model.predictor) is None else 1)
    assert not [*Path("runs").rglob("*.txt")]


@pytest.mark.slow
@pytest.mark.parametrize("reset", ["trackers", "predictor"])
def test_trackers_begin_anew(model, reset):
    def identities(persist=True):
        return model.track("a.png", persist=persist, **LOW)[0].boxes.id.tolist()

    expected = identities(persist=False)
    model.track(np.zeros((50, 100, 3), np.uint8), persist=True, **LOW)
    assert identities() != expected
    model("a.png")  # between them
    if reset == "predictor":
        model.predictor = None
    else:
        model.predictor.trackers[0].reset()
    assert identities() == expected
