"""Arguments that programs give by position are those of ultralytics."""

import inspect
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.compat.ultralytics import Results
from engine.errors import InputError
from tests.pictures import write_picture

LOW = {"conf": 0.01, "iou": 1.0}


def test_predict_takes_the_stream_second(model):
    (expected,) = model("a.png", **LOW)
    for call in (model, model.predict):
        assert isinstance(call("a.png", False, **LOW), list)
        streamed = call("a.png", True, **LOW)
        assert not isinstance(streamed, list)
        assert [len(each) for each in streamed] == [len(expected)]
    assert len(model.predict("a.png", False, None, **LOW)) == 1
    with pytest.raises(InputError, match="predictor: expected None"):
        model.predict("a.png", False, object)
    for call in (model, model.predict, model.track):
        with pytest.raises(InputError, match="source: expected a picture, got None"):
            call()


def test_track_takes_stream_and_persist(model):
    first = next(model.track("a.png", True, True, **LOW)).boxes.id
    second = model.track("a.png", False, True, **LOW)[0].boxes.id
    assert first.tolist() == second.tolist()


def test_plot_has_the_order_of_ultralytics(model):
    names = list(inspect.signature(Results.plot).parameters)[1:-1]
    expected = (
        "conf line_width font_size font pil img kpt_radius kpt_line labels boxes masks probs "
        "show save filename color_mode txt_color"
    )
    assert " ".join(names) == expected
    (result,) = model("a.png", **LOW)
    given = result.plot(False, 1, None, "Arial.ttf", True, None, 5, True, False)
    assert isinstance(given, Image.Image)
    expected = result.plot(conf=False, line_width=1, labels=False)
    np.testing.assert_array_equal(np.asarray(given)[:, :, ::-1], expected)
    with pytest.raises(InputError, match=r"font_size: plot\(\) supports only None, got 9"):
        result.plot(True, 1, 9)


def test_save_and_show_pass_positions_to_plot(model, monkeypatch):
    (result,) = model("a.png", **LOW)
    for pil in (False, True):
        assert result.save("b.png", False, 1, None, "Arial.ttf", pil) == "b.png"
        with Image.open("b.png") as saved:
            drawn = np.asarray(saved)[:, :, ::-1]
        np.testing.assert_array_equal(drawn, result.plot(conf=False, line_width=1))
    monkeypatch.setattr(Image.Image, "show", lambda image: image.save("shown.png"))
    result.show(False, 1)
    assert Path("shown.png").read_bytes() == Path("b.png").read_bytes()


def test_save_txt_takes_save_conf_second(model):
    (result,) = model("a.png", **LOW)
    result.save_txt("a.txt", True)
    assert {len(line.split()) for line in Path("a.txt").read_text().splitlines()} == {6}


@pytest.mark.slow
def test_crops_of_an_array(model):
    (result,) = model(np.full((48, 64, 3), 90, np.uint8), **LOW)
    written = [*result.save_crop("crops"), *result.save_crop("crops")]
    assert len(set(written)) == 2 * len(result.boxes) > 0
    (renamed,) = result[:1].save_crop("crops", "mine.jpg")
    assert renamed.stem == "mine"


@pytest.mark.parametrize(("given", "stem"), [((), "im"), (("found",), "found"), (("x.png",), "x")])
def test_crops_are_counted_on(model, folder, given, stem):
    write_picture(folder / "b.png", (100, 50))
    (result,) = model("b.png", **LOW, max_det=4)
    labels = [result.names[number] for number in result.boxes.cls.tolist()]
    for call in (1, 2):
        result.save_crop("crops", *given)
        for label in set(labels):
            total = call * labels.count(label)
            names = {each.name for each in Path("crops", label).iterdir()}
            expected = {f"{stem}-{number}.jpg" for number in range(2, total + 1)}
            assert names == {f"{stem}.jpg"} | expected
