"""Calls and streams of several sizes take turns; what is not used any more is freed."""

import gc
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakSet

import pytest

import engine
from engine.compat.ultralytics import YOLO, detectors
from engine.compat.ultralytics import model as model_file
from engine.errors import EngineError

SIZES = (32, 64, 96, 128, 160)


@pytest.fixture
def opened(monkeypatch):
    """Return the detectors that are alive."""
    found, load = WeakSet(), engine.loading.load

    def noted(*args, **options):
        detector = load(*args, **options)
        found.add(detector)
        return detector

    monkeypatch.setattr(model_file.loading, "load", noted)
    return found


@pytest.mark.parametrize(("outer", "inner"), [({}, {"imgsz": 64}), ({"imgsz": 64}, {})])
def test_a_closer_look_inside_a_stream(model, outer, inner):
    expected = [len(model("a.png", conf=0.01, **options)[0]) for options in (outer, inner)]
    found = [
        [len(result), len(model(result.orig_img, conf=0.01, **inner)[0])]
        for result in model.predict(["a.png"] * 9, stream=True, conf=0.01, **outer)
    ]
    assert found == [expected] * 9


def test_a_stream_outlives_any_number_of_sizes(model, opened):
    found = model.predict(["a.png"] * 9, stream=True, imgsz=192)
    next(found)
    for size in SIZES:
        model("a.png", imgsz=size)
    assert len(opened) == detectors.MOST + 1
    assert len(list(found)) == 8
    assert len(opened) == detectors.MOST


@pytest.mark.slow
def test_threads_with_a_size_each(model):
    expected = {size: model("a.png", conf=0.2, imgsz=size)[0].boxes.data for size in SIZES}
    assert min(map(len, expected.values())) > 5

    def same(size):
        (result,) = model("a.png", conf=0.2, imgsz=size)
        return (result.boxes.data == expected[size]).all()

    with ThreadPoolExecutor(len(SIZES)) as threads:
        assert all(threads.map(same, SIZES * 8))


def test_the_size_used_last_is_kept(model, opened):
    for size in (32, 64, 96, 32, 128):
        model("a.png", imgsz=size)
    assert {each.size[0] for each in opened} == {32, 96, 128}


def test_a_dropped_network_is_freed_without_the_cyclic_collector(folder, opened):
    gc.disable()
    try:
        model = YOLO("net.cfg").to("cpu")
        for size in SIZES:
            model("a.png", imgsz=size)
        del model
        assert not opened
    finally:
        gc.enable()


def test_close_frees_also_what_streams_use(model, opened):
    found = model.predict(["a.png"] * 9, stream=True, imgsz=192)
    next(found)
    for size in SIZES:
        model("a.png", imgsz=size)
    model.close()
    with pytest.raises(EngineError, match="closed"):
        list(found)
    assert len(model("a.png")) == 1


def test_another_device_frees_the_one_before(model, opened):
    model("a.png")
    model.to("cpu:1")
    assert [each.device for each in opened] == ["cpu:1"]
    assert model.device == "cpu:1"


def test_each_call_stands_for_itself(model, opened):
    usual = model._any(imgsz=None).size
    model("a.png", imgsz=64, device="cpu:1", batch=2, agnostic_nms=True)
    assert (model.device, model.info()[0]) == ("cpu", 4)
    model("a.png")
    (own,) = (each for each in opened if each.size == usual)
    assert (own.device, own.settings.batch, own.suppression.across_classes) == ("cpu", 1, False)
