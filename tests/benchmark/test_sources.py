"""The stage that bounds a stream is found, and what is said about it helps."""

import time
from types import SimpleNamespace

import pytest

from engine.benchmark import sources
from engine.benchmark.sources import SourceTimes, advice
from engine.sources import video

LANES = {"read": 4, "decode": 4, "scale": 4, "copy": 1, "forward": 1, "suppress": 1}


def times(source="files", *, batch=8, is_on_card=False, **milliseconds):
    return SourceTimes(source, batch, 4, milliseconds, LANES, 100.0, is_on_card)


@pytest.mark.parametrize(
    ("milliseconds", "bound"),
    [
        ({"read": 0.1, "decode": 3.0, "copy": 0.1, "forward": 0.2, "suppress": 0.1}, "decode"),
        ({"read": 0.1, "decode": 3.0, "copy": 0.1, "forward": 0.8, "suppress": 0.1}, "forward"),
        ({"read": 0.1, "decode": 3.0, "scale": 2.0, "forward": 1.0, "suppress": 0.1}, "decode"),
        ({"read": 0.1, "decode": 1.0, "scale": 2.0, "forward": 0.9, "suppress": 0.1}, "forward"),
        ({"read": 0.1, "decode": 1.0, "scale": 4.0, "forward": 0.9, "suppress": 0.1}, "scale"),
        ({"copy": 0.3, "forward": 0.2, "suppress": 0.1}, "copy"),
    ],
)
def test_what_workers_do_counts_together_and_is_shared(milliseconds, bound):
    assert times(**milliseconds).bound == bound


@pytest.mark.parametrize(
    ("found", "options", "expected"),
    [
        (times(decode=9.0, forward=0.1), {"processors": 16}, "--workers 16"),
        (times(decode=9.0, forward=0.1), {"processors": 4}, "more processors"),
        (times(decode=9.0, is_on_card=True), {"processors": 16}, "smaller pictures"),
        (times("video", decode=9.0, forward=0.1), {"processors": 16}, "several videos"),
        (times("arrays", copy=9.0, forward=0.1), {"is_gpu": True}, "Detector.pin()"),
        (times(forward=9.0), {"is_gpu": True}, "--precision float16 or a smaller --size"),
        (times(forward=9.0, batch=1), {"is_gpu": True}, "a larger --batch or --precision"),
        (times(forward=9.0), {}, "a smaller --size or network"),
        (times(suppress=9.0, forward=0.1), {}, "a higher threshold"),
    ],
)
def test_advice_fits_the_stage(found, options, expected):
    usual = {"processors": 4, "precision": "float32", "is_gpu": False}
    assert expected in advice(found, **{**usual, **options})


def test_the_extra_for_jpegs_is_named_where_it_helps(monkeypatch):
    monkeypatch.setattr("engine.vision.turbo_jpeg._decoder", lambda: None)
    found = times(decode=9.0, forward=0.1)
    said = advice(found, processors=4, precision="float32", is_gpu=False)
    assert said.startswith("pip install")
    assert "[jpeg]'" in said


def test_what_the_first_frame_costs_is_no_time_of_decoding(monkeypatch):
    """The first one imports the decoder, and opens that of a card."""
    passes = []

    def frames(name, **_):
        time.sleep(0 if passes else 0.5)
        passes.append(name)
        yield from [SimpleNamespace(picture=lambda name: name)] * 20

    monkeypatch.setattr(video, "frames", frames)
    taken, is_on_card = sources._video_times("street.mp4", None)
    assert (taken["decode"] < 10, is_on_card) == (True, False)
