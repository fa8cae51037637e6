"""load() opens the device while it reads files, and warms it up before large imports."""

import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import engine
from engine import backends
from engine import passes as engine_passes
from engine.backends import cuda, open_chosen
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
