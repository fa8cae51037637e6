"""Attributes and methods of a YOLO that programs use before they predict."""

import pytest

from engine.compat.ultralytics import YOLO
from engine.errors import InputError

LOW = {"conf": 0.01, "iou": 1.0}


def test_overrides_are_defaults(model):
    (everything,) = model("a.png", **LOW)
    assert model.overrides == {"model": "net.cfg", "device": "cpu"}
    model.overrides.update(LOW, max_det=2)
    assert len(model("a.png")[0]) == len(model.track("a.png")[0]) == 2
    assert len(model("a.png", max_det=300)[0]) == len(everything)
    model.overrides["classes"] = [1]
    assert set(model("a.png", max_det=300)[0].boxes.cls.tolist()) == {1}
    model.overrides["max_dett"] = 3
    with pytest.raises(InputError, match=r"max_dett: is not an option .* Did you mean 'max_det'"):
        model("a.png")


def test_options_that_are_none_have_their_defaults(model):
    expected = model("a.png")[0].boxes.data.tolist()
    assert model("a.png", conf=None, batch=None)[0].boxes.data.tolist() == expected


def test_the_task_is_an_override(folder):
    assert YOLO("net.cfg", task="detect").overrides == {"model": "net.cfg", "task": "detect"}


def test_devices(folder):
    model = YOLO("net.cfg")
    assert model.cpu() is model.eval() is model.fuse() is model
    assert (model.device, model.device.type, model.device.index) == ("cpu", "cpu", None)
    model.overrides["device"] = "cpu:1"
    assert model.device == "cpu:1"
    moved = []
    model.to = lambda device: moved.append(device) or model
    assert model.cuda() is model.cuda(1) is model
    assert moved == ["cuda", 1]


def test_info_is_logged(model, caplog):
    caplog.set_level("INFO", "engine")
    facts = model.info(verbose=True)
    assert caplog.messages[-1].startswith(f"net.cfg: {facts[0]} layers, {facts[1]} parameters, 0 ")
    assert model.info(False, False, 64)[:3] == facts[:3]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("half", "half=True"), ("embed", "layer_outputs"), ("parameters", r"info\(\)")],
)
def test_what_is_not_here_says_what_to_use(model, name, hint):
    with pytest.raises(AttributeError, match=f"^{name}: .*{hint}"):
        getattr(model, name)
