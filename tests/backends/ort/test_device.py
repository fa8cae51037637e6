"""OrtDevice: providers, threads, and what is refused."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import engine
from engine import cli
from engine.backends import open_device
from engine.backends.ort.device import PROVIDERS
from engine.errors import ConfigError, DeviceError, EngineError, InputError
from tests import needs
from tests.backends.test_cpu_device import images, small_plan


@pytest.fixture(autouse=True)
def runtime():
    needs.package("onnx")
    return needs.package("onnxruntime")


def test_names_and_threads():
    assert [open_device(name).name for name in ("ort", "ort:2", "ort:cpu")] == [
        "ort",
        "ort:2",
        "ort",
    ]
    assert open_device("ort:2").threads == 2
    assert "CPUExecutionProvider, 2 threads" in open_device("ort:2").describe()


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("ort:openvno", InputError, "Did you mean 'openvino'"),
        ("ort:0", InputError, "got 'ort:0'"),
        ("ort:coreml", DeviceError, "expected an ONNX Runtime with CoreMLExecutionProvider, got"),
    ],
)
def test_unknown_or_missing_providers(monkeypatch, runtime, name, kind, message):
    monkeypatch.setattr(runtime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(kind, match=message):
        open_device(name)


def test_a_provider_that_is_installed_comes_first(monkeypatch, runtime):
    wanted = []

    def session(content, options, providers):
        wanted.append(providers)
        return SimpleNamespace()

    monkeypatch.setattr(runtime, "get_available_providers", lambda: list(PROVIDERS.values()))
    monkeypatch.setattr(runtime, "InferenceSession", session)
    for name in ("openvino", "directml", "tensorrt", "coreml"):
        assert open_device(f"ort:{name}").name == f"ort:{name}"
        open_device(f"ort:{name}").compile(small_plan())
        assert wanted.pop() == [PROVIDERS[name], "CPUExecutionProvider"]


def test_without_onnx_runtime(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        DeviceError, match=r"onnxruntime is not installed. Run: pip install '.*\[ort\]'"
    ):
        open_device("ort")


def test_other_precisions_are_refused():
    with pytest.raises(InputError, match="ort: precision: expected float32, got 'float16'"):
        open_device("ort").compile(small_plan(), precision="float16")
    with pytest.raises(InputError, match="batch"):
        open_device("ort").compile(small_plan(), batch=0)


def test_a_network_that_onnx_cannot_express_is_refused_by_its_layer(tiny_recurrent):
    with pytest.raises(ConfigError, match=r"layer 0 \[rnn\]: ONNX: "):
        engine.load(tiny_recurrent.cfg, tiny_recurrent.weights, device="ort")


def test_closing_the_device_closes_its_programs():
    device = open_device("ort")
    program = device.compile(small_plan())
    device.close()
    with pytest.raises(EngineError, match="closed"):
        program.forward(images(1))
    with pytest.raises(DeviceError, match="closed"):
        device.compile(small_plan())


def test_a_model_that_the_runtime_refuses_is_one_line(monkeypatch, runtime):
    def refuse(*_, **__):
        raise RuntimeError("INVALID_GRAPH:\n bad node")

    monkeypatch.setattr(runtime, "InferenceSession", refuse)
    with pytest.raises(DeviceError, match="ort: cannot load the network: INVALID_GRAPH: bad node"):
        open_device("ort").compile(small_plan())


def test_a_detector_gives_the_boxes_of_the_cpu(tiny_detector):
    picture = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    results = {}
    for name in ("cpu", "ort"):
        with engine.load(
            tiny_detector.cfg, tiny_detector.weights, device=name, threads=1, batch=2
        ) as detector:
            results[name] = [*detector([picture] * 3), detector(picture)]
            assert detector.device.startswith(name)
    for ours, theirs in zip(results["ort"], results["cpu"], strict=True):
        assert len(ours) == len(theirs) > 0
        np.testing.assert_allclose(ours.xyxy, theirs.xyxy, rtol=1e-4, atol=0.01)
        np.testing.assert_allclose(ours.scores, theirs.scores, atol=1e-5)


def test_from_the_command_line(tiny_detector, tmp_path, capsys):
    from tests.pictures import write_picture

    picture = str(write_picture(tmp_path / "a.png"))
    options = [*tiny_detector.options[:4], "--device", "ort", "--threads", "1"]
    assert cli.main(["detect", picture, *options]) == 0
    assert "a.png" in capsys.readouterr().out
