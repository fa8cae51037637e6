"""load() opens the device while it reads files, and warms it up before large imports."""

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import backends
from engine import passes as engine_passes
from engine.backends import cuda, open_chosen
from engine.darknet import weights
from engine.errors import DeviceError, WeightsError
from engine.passes import FUSING
from tests.lanes import slow_except


@pytest.fixture
def opened(monkeypatch):
    """Record opened devices, the threads that opened them, and closed devices."""
    noted = {"devices": [], "threads": [], "closed": []}

    def open_noted(name, threads):
        device = open_chosen(name, threads)
        close = device.close
        device.close = lambda: (noted["closed"].append(device), close())
        noted["devices"].append(device)
        noted["threads"].append(threading.get_ident())
        return device

    monkeypatch.setattr(backends, "open_chosen", open_noted)
    return noted


def test_cpu_is_opened_on_the_calling_thread(tiny_detector, opened):
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu:1"):
        assert opened["threads"] == [threading.get_ident()]
    assert opened["closed"] == opened["devices"]


def test_other_devices_are_opened_on_a_thread_that_is_released(tiny_detector, opened):
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="auto"):
        assert opened["threads"] != [threading.get_ident()]
        assert not [each.name for each in threading.enumerate() if each.name.startswith("load")]
    assert opened["closed"] == opened["devices"]


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


def test_device_that_cannot_be_opened_is_reported(tiny_detector, monkeypatch):
    def refuse(name, threads):
        raise DeviceError("cuda:7: no such device")

    monkeypatch.setattr(backends, "open_chosen", refuse)
    with pytest.raises(DeviceError, match="cuda:7: no such device"):
        engine.load(tiny_detector.cfg, tiny_detector.weights, device="cuda:7")


@pytest.mark.parametrize("passes", [True, False])
def test_passes_run_while_the_device_opens(tiny_detector, opened, monkeypatch, passes):
    asked, has_begun = [], threading.Event()
    optimise = engine_passes.optimise

    def noted(plan, names):
        asked.append(tuple(names))
        has_begun.set()
        return optimise(plan, names)

    def open_late(name, threads):
        assert has_begun.wait(10)
        return open_chosen("cpu:1")

    monkeypatch.setattr(engine_passes, "optimise", noted)
    monkeypatch.setattr(backends, "open_chosen", open_late)
    with engine.load(
        tiny_detector.cfg, tiny_detector.weights, device="auto", passes=passes
    ) as detector:
        on_the_processor = detector._device.passes
        assert asked == ([FUSING, on_the_processor] if passes else [()])
        with engine.load(
            tiny_detector.cfg, tiny_detector.weights, device="cpu:1", passes=passes
        ) as other:
            assert detector._program.plan.ops == other._program.plan.ops


@pytest.mark.parametrize(
    ("device", "expected"),
    [("auto", ["0"]), ("cuda", [""]), ("cuda:1,0", ["1,0"]), ("cpu", []), ("cpu:2", []), ("x", [])],
)
def test_device_to_be_opened_is_warmed_up(monkeypatch, device, expected):
    warm_up = []

    @contextmanager
    def warm_up_noted(argument):
        warm_up.append(argument)
        yield

    monkeypatch.setattr(cuda, "warm_up", warm_up_noted)
    with backends.warm_up(device):
        assert warm_up == expected


AWAKE_BEFORE = """
import sys, threading
start = threading.Thread.start
def noted(self):
    threading.Thread.start = start
    print(sorted({"numpy", "PIL", "engine.detector"} & set(sys.modules)))
    start(self)
threading.Thread.start = noted
import engine
try:
    engine.load("missing.cfg", "missing.weights", device=sys.argv[1])
except engine.ConfigError:
    print([each.name for each in threading.enumerate() if each.name != "engine-idle"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", slow_except(["detect"], ["detect", "classify"]))
def test_a_command_warms_up_before_large_imports(command):
    program = AWAKE_BEFORE.replace(
        'engine.load("missing.cfg", "missing.weights", device=sys.argv[1])',
        "from engine.cli import main; main(sys.argv[1:])",
    )
    files = "missing.cfg", "missing.weights", "docs/parcel.jpg"
    done = subprocess.run(
        [sys.executable, "-c", program, command, *files],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[]"]
    assert "missing.cfg" in done.stderr


@pytest.mark.parametrize("device", slow_except(["auto"], ["auto", "cuda", "cpu"]))
def test_gpu_warm_up_starts_before_large_imports(device):
    done = subprocess.run(
        [sys.executable, "-c", AWAKE_BEFORE, device],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ([] if device == "cpu" else ["[]"]) + ["['MainThread']"]


@pytest.fixture
def trained(tmp_path, tiny_detector):
    """A copy of the tiny detector whose weights a test may change."""
    path = tmp_path / "net.weights"
    path.write_bytes(tiny_detector.weights.read_bytes())
    (tmp_path / "net.cfg").write_text(tiny_detector.cfg.read_text())
    return path


def read_again(detector, name, folder):
    if name == "export":
        pytest.importorskip("onnx")
        return detector.export(folder / "net.onnx")
    return detector.layer_outputs(np.zeros((1, 3, 48, 64), np.float32))


@pytest.mark.parametrize("name", ["export", "layer_outputs"])
def test_weights_that_training_saved_again_are_not_mixed_with_those_in_use(trained, name):
    with engine.load(trained.with_suffix(".cfg"), trained, device="cpu") as detector:
        content = trained.read_bytes()
        trained.unlink()
        trained.write_bytes(content[:20] + (np.frombuffer(content, "<f4", offset=20) * 2).tobytes())
        again = r"net.weights: has changed since it was loaded\. Load the network again$"
        with pytest.raises(WeightsError, match=again):
            read_again(detector, name, trained.parent)
        trained.unlink()
        gone = r"net.weights: cannot be read: No such file or directory\. Load the network again$"
        with pytest.raises(WeightsError, match=gone):
            read_again(detector, name, trained.parent)
    assert not trained.with_suffix(".onnx").exists()


@pytest.mark.parametrize("name", ["export", "layer_outputs"])
def test_weights_are_found_from_another_folder(trained, monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    with engine.load("net.cfg", "net.weights", device="cpu") as detector:
        monkeypatch.chdir("/")
        assert read_again(detector, name, tmp_path)


def test_weights_that_change_while_they_are_read_are_refused(trained, monkeypatch):
    read_layers = weights._read_layers

    def read_late(*given, **named):
        found = read_layers(*given, **named)
        os.utime(trained, ns=(0, 0))
        return found

    monkeypatch.setattr(weights, "_read_layers", read_late)
    with pytest.raises(WeightsError, match=r"net.weights: changed while it was read\. Load"):
        engine.load(trained.with_suffix(".cfg"), trained, device="cpu")
