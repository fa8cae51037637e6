"""Devices in the forms that programs give to ultralytics, and half precision without a card."""

from types import SimpleNamespace

import numpy as np
import pytest

from engine.compat.ultralytics import YOLO
from engine.compat.ultralytics.device import device_of
from engine.errors import DeviceError, InputError
from tests import needs


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, None),
        ("", None),
        ("None", None),
        ("CPU", "cpu"),
        (" cpu ", "cpu"),
        ("cpu:2", "cpu:2"),
        ("cuda", "cuda:0"),
        ("cuda:1", "cuda:1"),
        (0, "cuda:0"),
        (np.int64(1), "cuda:1"),
        ("0", "cuda:0"),
        ([0], "cuda:0"),
        ((0,), "cuda:0"),
        (["cuda:1"], "cuda:1"),
        ([0, 1], "cuda:0,1"),
        ("0,1", "cuda:0,1"),
        ("0, 1", "cuda:0,1"),
        ("[0, 1]", "cuda:0,1"),
        (-1, "cuda:0"),
        ("-1", "cuda:0"),
        ([-1], "cuda:0"),
        ("mps", "mps"),
    ],
)
def test_names(given, name):
    assert device_of(given) == name


class TorchDevice(SimpleNamespace):
    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


def test_objects_of_torch():
    names = [device_of(TorchDevice(type="cuda", index=each)) for each in (None, 1)]
    assert names == ["cuda:0", "cuda:1"]
    for index in (None, 0):
        assert device_of(TorchDevice(type="cpu", index=index)) == "cpu"
    torch = needs.package("torch")
    assert device_of(torch.device("cuda:1")) == "cuda:1"
    assert device_of(torch.device("cpu")) == "cpu"


def test_a_prediction_takes_them(model):
    expected = model("a.png")[0].boxes.data.tolist()
    for device in ("CPU", "", None, "cpu:0", ["cpu"]):
        assert model("a.png", device=device)[0].boxes.data.tolist() == expected
        assert model.to(device).device == "cpu"


@pytest.mark.parametrize("device", ["mps", "gpu5", "xpu:0"])
def test_what_is_no_device_is_one_line(model, device):
    for call in (model.to, lambda device: model("a.png", device=device)):
        with pytest.raises(DeviceError, match=r"^device: expected one of cpu, cuda, .*\.?$"):
            call(device)


@pytest.mark.parametrize("device", [1.5, True, {}])
def test_what_names_no_device_is_one_line(model, device):
    with pytest.raises(InputError, match=r"^device: expected a name such as 'cpu'"):
        model("a.png", device=device)


@pytest.mark.parametrize("device", ["cpu", None])
def test_half_precision_without_a_card_runs_as_float32_with_a_line(folder, caplog, device):
    model = YOLO("net.cfg").to("cpu")
    low = {"conf": 0.01, "iou": 1.0, "device": device}
    expected = model("a.png", **low)[0].boxes.data.tolist()
    assert not caplog.messages
    for _ in range(2):
        assert model("a.png", half=True, **low)[0].boxes.data.tolist() == expected
    assert caplog.messages == ["half: cpu has no float16, so the network runs in float32"]
    model.close()
