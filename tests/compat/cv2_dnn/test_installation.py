"""install() puts the functions into an installed cv2, here also into one that imitates it."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from engine.compat import cv2_dnn
from engine.errors import ConfigError, InputError, WeightsError
from tests import needs
from tests.compat.cv2_dnn import networks
from tests.compat.cv2_dnn.cases import small_model

OPENCV_EPSILON = 1e-6


class TheirNet:
    @staticmethod
    def fromOther():  # noqa: N802
        return TheirNet()


class Theirs:
    def __init__(self, model, config=""):
        self.model = model


@pytest.fixture
def cv2(monkeypatch):
    """Return a module with the names of OpenCV 5 that matter here."""
    module, dnn = ModuleType("cv2"), ModuleType("cv2.dnn")
    module.error = type("error", (Exception,), {})
    dnn.readNet = lambda *args, **named: ("theirs", *args, *named.items())
    dnn.NMSBoxes = dnn.blobFromImage = print
    dnn.DetectionModel = dnn.ClassificationModel = Theirs
    dnn.DNN_TARGET_CPU = 77
    dnn.Net = TheirNet
    module.dnn, module.dnn_DetectionModel = dnn, Theirs
    monkeypatch.setitem(sys.modules, "cv2", module)
    monkeypatch.setitem(sys.modules, "cv2.dnn", dnn)
    return module


def test_it_reads_darknet_and_leaves_the_rest(cv2, tmp_path):
    assert cv2_dnn.install() is cv2
    cfg, weights = map(str, small_model(tmp_path, "detector"))
    for net in (
        cv2.dnn.readNetFromDarknet(cfg, weights),
        cv2.dnn.readNet(weights, cfg),
        cv2.dnn.readNet(cfg, weights, "darknet"),
        cv2.dnn.readNet("darknet", *(Path(each).read_bytes() for each in (weights, cfg))),
    ):
        assert isinstance(net, cv2_dnn.Net)
    backup = str(Path(weights).rename(tmp_path / "net.backup"))
    for given in ((cfg, backup), (backup, cfg)):
        assert isinstance(cv2.dnn.readNet(*given), cv2_dnn.Net)
        assert isinstance(cv2.dnn.DetectionModel(*given), cv2_dnn.DetectionModel)
    assert cv2.dnn.readNet("net.onnx") == ("theirs", "net.onnx", "", "")
    assert cv2.dnn.readNet("net.pb", "net.pbtxt") == ("theirs", "net.pb", "net.pbtxt", "")
    assert cv2.dnn.readNet("net.onnx", engine=1)[-1] == ("engine", 1)  # an argument of OpenCV 5
    assert cv2.dnn.blobFromImage is print
    assert cv2.dnn.NMSBoxes.__wrapped__ is cv2_dnn.NMSBoxes
    assert cv2.dnn.DNN_TARGET_CPU == 77
    assert cv2.dnn.DNN_TARGET_CUDA == cv2_dnn.DNN_TARGET_CUDA


def test_models_of_both(cv2, tmp_path):
    cv2_dnn.install()
    cfg, weights = map(str, small_model(tmp_path, "detector"))
    for make in (cv2.dnn.DetectionModel, cv2.dnn_DetectionModel):
        assert isinstance(make(weights, cfg), cv2_dnn.DetectionModel)
        assert isinstance(make(model=cv2.dnn.readNet(cfg, weights)), cv2_dnn.DetectionModel)
        assert isinstance(make("net.onnx"), Theirs)
        assert isinstance(make(object()), Theirs)
    model = cv2.dnn_ClassificationModel(weights, cfg)
    assert isinstance(model, cv2_dnn.ClassificationModel)
    model = cv2.dnn_DetectionModel(weights, cfg).setInputParams(1 / 255)
    assert len(model.detect(networks.noise(64, 96), 0.1)[0]) > 0


def test_opencvs_epsilon_reaches_networks_and_models(cv2, tmp_path):
    (name,) = [each for each in networks.SMALL if "normalised" in each][:1]
    cfg, weights = map(str, small_model(tmp_path, name))
    expected = cv2_dnn.readNetFromDarknet(cfg, weights, epsilon=1e-6)
    cv2_dnn.install(epsilon=1e-6)
    nets = [cv2.dnn.readNetFromDarknet(cfg, weights), cv2.dnn.readNet(weights, cfg)]
    nets.append(cv2.dnn.ClassificationModel(weights, cfg).net)
    for net in (expected, *nets):
        net.setInput(networks.small_blob(name))
    for net in nets:
        np.testing.assert_array_equal(net.forward(), expected.forward())
    with pytest.raises(InputError, match="epsilon: expected a positive number, got 0"):
        cv2_dnn.readNet(cfg, weights, epsilon=0)


def test_a_second_install_changes_the_epsilon_of_networks_read_later(cv2, tmp_path):
    files = list(map(str, small_model(tmp_path, "normalised detector")))

    def output(net):
        net.setInput(networks.small_blob("normalised detector"))
        return net.forward().tolist()

    darknets, opencvs = (
        output(cv2_dnn.readNet(*files, epsilon=each)) for each in (1e-5, OPENCV_EPSILON)
    )
    assert darknets != opencvs
    cv2_dnn.install()
    before = cv2.dnn.readNet(*files)
    for read in (cv2.dnn.readNet, cv2.dnn.readNetFromDarknet):
        assert output(read(*files, epsilon=OPENCV_EPSILON)) == opencvs
    cv2_dnn.install(epsilon=OPENCV_EPSILON)
    cv2_dnn.install()  # of a library, say
    assert output(before) == darknets
    assert output(cv2.dnn.readNetFromDarknet(*files)) == opencvs
    assert output(cv2.dnn.DetectionModel(*files).net) == opencvs
    assert output(cv2.dnn.readNet(*files, epsilon=1e-5)) == darknets


@pytest.mark.parametrize("epsilon", [-1, "x", True, float("nan"), float("inf"), [1e-6]])
def test_an_epsilon_that_is_no_positive_number_is_refused(cv2, epsilon):
    expected = re.escape(f"epsilon: expected a positive number, got {epsilon!r}")
    with pytest.raises(InputError, match=expected):
        cv2_dnn.install(epsilon=epsilon)


def test_an_epsilon_beyond_floats_is_refused(cv2):
    with pytest.raises(InputError, match="epsilon: expected a positive number, got 1000"):
        cv2_dnn.install(epsilon=10**400)


def test_an_error_names_its_function_once(cv2):
    cv2_dnn.install()
    for read, name in (
        (cv2.dnn.readNetFromDarknet, "readNetFromDarknet"),
        (cv2.dnn.readNet, "readNet"),
    ):
        with pytest.raises(cv2.error, match=rf"^{name}\(\) got an unexpected keyword .*'eps'"):
            read("my.cfg", "my.weights", eps=1)


def test_errors_are_those_of_opencv(cv2, tmp_path):
    cv2_dnn.install()
    cfg, weights = map(str, small_model(tmp_path, "detector"))
    net = cv2.dnn.readNet(cfg, weights)
    for fail, kind, code, function in (
        (
            lambda: cv2.dnn.readNetFromDarknet("missing.cfg"),
            ConfigError,
            -212,
            "readNetFromDarknet",
        ),
        (lambda: cv2.dnn.readNet(cfg, "missing.weights"), WeightsError, -212, "readNet"),
        (lambda: cv2.dnn.DetectionModel(cfg, "missing.weights"), WeightsError, -212, "__init__"),
        (lambda: cv2.dnn.DetectionModel(net).detect(None), InputError, -5, "detect"),
        (lambda: net.forwardAndRetrieve(["yolo"]), InputError, -5, "forwardAndRetrieve"),
        (lambda: cv2.dnn.NMSBoxes([[1, 2, 3, 4]], [], 0.1, 0.1), InputError, -5, "NMSBoxes"),
        (lambda: net.forward(5), TypeError, -5, "forward"),
        (lambda: net.getLayer(None), TypeError, -5, "getLayer"),
        (lambda: net.setInput([[1, 2], [3]]), ValueError, -5, "setInput"),
        (lambda: net.setInputShape("data", (1, "wide")), ValueError, -5, "setInputShape"),
        (lambda: cv2.dnn.readNetFromDarknet(5), InputError, -5, "readNetFromDarknet"),
        (lambda: cv2.dnn.readNetFromDarknet(), TypeError, -5, "readNetFromDarknet"),
    ):
        with pytest.raises(cv2.error) as caught:
            fail()
        error = caught.value
        assert isinstance(error, kind)
        assert (error.code, error.func, error.line) == (code, function, 0)
        assert error.err == error.msg == str(error)


def test_networks_of_both_are_instances_of_opencvs_classes(cv2, tmp_path):
    cv2_dnn.install()
    cfg, weights = map(str, small_model(tmp_path, "detector"))
    for net in (cv2.dnn.readNet(weights, cfg), cv2.dnn.Net(), cv2.dnn.Net.fromOther()):
        assert isinstance(net, cv2.dnn.Net)
        assert isinstance(net, cv2.dnn_Net)
    assert not isinstance(cv2.dnn.DetectionModel(net), cv2.dnn.Net)
    for model in (cv2.dnn.DetectionModel(weights, cfg), cv2.dnn.DetectionModel("net.onnx")):
        assert isinstance(model, cv2.dnn.DetectionModel)
        assert isinstance(model, cv2.dnn_DetectionModel)


def test_installing_twice_changes_nothing(cv2):
    cv2_dnn.install()
    before = vars(cv2.dnn).copy()
    cv2_dnn.install()
    assert vars(cv2.dnn) == before


def test_without_opencv(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(InputError, match="pip install opencv-python"):
        cv2_dnn.install()


def test_in_the_installed_opencv(tmp_path):
    cv2 = needs.package("cv2")
    assert cv2_dnn.install() is cv2
    net = cv2.dnn.readNetFromDarknet(*map(str, small_model(tmp_path, "detector")))
    net.setInput(cv2.dnn.blobFromImage(networks.noise(64, 96), 1 / 255, swapRB=True))
    assert net.forward().shape == (32 * 48, 7)
    assert isinstance(net, cv2.dnn.Net)
    assert isinstance(cv2.dnn.Net(), cv2.dnn.Net)
    onnx = tmp_path / "broken.onnx"
    onnx.write_bytes(b"no network")
    with pytest.raises(cv2.error):
        cv2.dnn.readNet(str(onnx))
