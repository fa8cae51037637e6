"""load() opens a device while it reads the files."""

import threading

import pytest

import engine
from engine import detector as detector_file
from engine.backends import open_chosen
from engine.errors import DeviceError, WeightsError


@pytest.fixture
def opened(monkeypatch):
    """Devices that were opened, the threads that did, and those that were closed."""
    noted = {"devices": [], "threads": [], "closed": []}

    def open_noted(name, threads):
        device = open_chosen(name, threads)
        close = device.close
        device.close = lambda: (noted["closed"].append(device), close())
        noted["devices"].append(device)
        noted["threads"].append(threading.get_ident())
        return device

    monkeypatch.setattr(detector_file, "open_chosen", open_noted)
    return noted


def test_a_processor_is_opened_without_a_thread(tiny_detector, opened):
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu:1"):
        assert opened["threads"] == [threading.get_ident()]
    assert opened["closed"] == opened["devices"]


def test_another_device_is_opened_on_a_thread_that_ends(tiny_detector, opened):
    before = threading.active_count()
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="auto"):
        assert opened["threads"] != [threading.get_ident()]
        assert not [each.name for each in threading.enumerate() if "engine-open" in each.name]
    assert opened["closed"] == opened["devices"]
    assert threading.active_count() <= before


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_a_device_is_closed_when_the_weights_cannot_be_read(
    tiny_detector, opened, tmp_path, device
):
    short = tmp_path / "short.weights"
    short.write_bytes(tiny_detector.weights.read_bytes()[:100])
    with pytest.raises(WeightsError):
        engine.load(tiny_detector.cfg, short, device=device)
    assert len(opened["devices"]) == 1
    assert opened["closed"] == opened["devices"]


def test_a_device_that_cannot_be_opened_is_told(tiny_detector, monkeypatch):
    def refuse(name, threads):
        raise DeviceError("cuda:7: no such device")

    monkeypatch.setattr(detector_file, "open_chosen", refuse)
    with pytest.raises(DeviceError, match="cuda:7: no such device"):
        engine.load(tiny_detector.cfg, tiny_detector.weights, device="cuda:7")
