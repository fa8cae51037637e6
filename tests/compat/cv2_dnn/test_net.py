"""Net gives the values of OpenCV's layers under OpenCV's names."""

import logging

import numpy as np
import pytest

from engine.backends import open_device
from engine.compat import cv2_dnn
from engine.compat.cv2_dnn import files
from engine.errors import ConfigError, InputError, WeightsError
from tests import needs
from tests.compat.cv2_dnn import networks
from tests.compat.cv2_dnn.cases import small_model
from tests.compat.cv2_dnn.figures import FIGURES
from tests.devices import open_or_skip

EXACT, OTHER_EPSILON = 1e-4, 2e-3
OPENCV_EPSILON = 1e-6


@pytest.fixture(params=networks.SMALL)
def name(request):
    return request.param


@pytest.fixture
def net(name, tmp_path):
    net = cv2_dnn.readNetFromDarknet(*map(str, small_model(tmp_path, name)))
    net.setInput(networks.small_blob(name))
    yield net
    net.close()


@pytest.fixture
def detector(tmp_path):
    net = cv2_dnn.readNetFromDarknet(*map(str, small_model(tmp_path, "detector")))
    yield net
    net.close()


def test_names_numbers_and_types_are_those_of_opencv(name, net):
    expected = FIGURES["small"][name]
    assert list(net.getLayerNames()) == list(expected["layers"])
    assert list(net.getUnconnectedOutLayersNames()) == expected["outputs"]
    assert net.getUnconnectedOutLayers().tolist() == expected["numbers"]
    types = [net.getLayer(each).type for each in net.getLayerNames()]
    assert types == [each["type"] for each in expected["layers"].values()]
    assert net.getLayersCount(types[0]) == types.count(types[0])
    assert set(net.getLayerTypes()) == {*types, "__NetInputLayer__"}
    assert net.getLayersCount("__NetInputLayer__") == 1


@pytest.mark.parametrize("epsilon", [files.DARKNET_EPSILON, OPENCV_EPSILON])
def test_every_layer_has_the_values_of_opencv(name, epsilon, tmp_path):
    net = cv2_dnn.readNetFromDarknet(*map(str, small_model(tmp_path, name)), epsilon=epsilon)
    net.setInput(networks.small_blob(name))
    is_other = "normalised" in name and epsilon != OPENCV_EPSILON
    tolerance = OTHER_EPSILON if is_other else EXACT
    for layer, expected in FIGURES["small"][name]["layers"].items():
        out = net.forward(layer)
        assert list(out.shape) == expected["shape"], layer
        picked = out.ravel()[:: max(1, out.size // 40)]
        np.testing.assert_allclose(picked, expected["values"], atol=tolerance, err_msg=layer)


@pytest.mark.slow
@needs.shared("models")
@pytest.mark.parametrize("name", ["tiny-darknet-imagenet", "yoloface-50k", "yoloface-500k-v1"])
def test_trained_networks_have_the_outputs_of_opencv(name):
    folder = networks.SHARED / "models" / name
    with np.load(folder / "reference.npz") as recorded:
        reference = {key: recorded[key] for key in recorded.files}
    files_of_net = (str(folder / f"{name}{suffix}") for suffix in (".cfg", ".weights"))
    net = cv2_dnn.readNetFromDarknet(*files_of_net, epsilon=OPENCV_EPSILON)
    net.setInput(reference["input"][None])
    before_heads = [key for key in reference if key.startswith("pre_head")]
    for key in before_heads:  # such as pre_head0_layer32
        found = net.forward(f"conv_{key.rpartition('layer')[2]}")
        np.testing.assert_allclose(found.ravel(), reference[key].ravel(), atol=EXACT)
    if not before_heads:
        np.testing.assert_allclose(net.forward().ravel(), reference["output"], atol=1e-6)


def test_without_weights_it_has_layers_but_no_output(tmp_path):
    cfg, _ = map(str, small_model(tmp_path, "detector"))
    for net in (cv2_dnn.readNetFromDarknet(cfg), cv2_dnn.readNet(cfg)):
        assert net.getLayerNames()
        net.setInput(networks.small_blob("detector"))
        with pytest.raises(InputError, match=r"cfg was read without weights\. Name its \.weights"):
            net.forward()


def test_no_name_means_the_last_layer(net):
    np.testing.assert_array_equal(net.forward(), net.forward(net.getLayerNames()[-1]))


def test_lists_and_nested_lists(detector):
    detector.setInput(networks.small_blob("detector"))
    first, second = names = detector.getUnconnectedOutLayersNames()
    alone = detector.forward(first), detector.forward(second)
    flat = detector.forward(list(names))
    nested = detector.forward([[first, second], [first]])
    assert [len(group) for group in nested] == [2, 1]
    for got in (flat, nested[0], [group[0] for group in detector.forwardAndRetrieve(names)]):
        for array, expected in zip(got, alone, strict=True):
            np.testing.assert_allclose(array, expected, atol=1e-6)
    assert detector.forward([]) == ()


def test_any_size_and_number_of_pictures(detector):
    random = np.random.default_rng(0)
    for count, height, width in ((1, 64, 96), (2, 32, 64), (3, 32, 64), (1, 128, 128), (1, 64, 96)):
        blob = random.random((count, 3, height, width), np.float32)
        detector.setInput(blob)
        rows = detector.forward("yolo_9")
        cells = (height // 4) * (width // 4) * 2
        assert rows.shape == ((cells, 7) if count == 1 else (count, cells, 7))
    for row in range(2):
        two = random.random((2, 3, 64, 64), np.float32)
        detector.setInput(two)
        both = detector.forward("yolo_9")
        detector.setInput(two[row : row + 1])
        np.testing.assert_allclose(both[row], detector.forward("yolo_9"), atol=1e-5)


def test_set_input_scales_bytes(detector):
    image = networks.noise(64, 96)
    blob = cv2_dnn.blobFromImage(image, 1 / 255, mean=(1, 2, 3), swapRB=True)
    detector.setInput(blob)
    expected = detector.forward()
    blob = cv2_dnn.blobFromImage(image, swapRB=True, ddepth=cv2_dnn.CV_8U)
    detector.setInput(blob, "data", scalefactor=1 / 255, mean=(1, 2, 3))
    np.testing.assert_allclose(detector.forward(), expected, atol=1e-6)
    assert blob.dtype == np.uint8


def test_the_input_is_copied(detector):
    blob = networks.small_blob("detector")
    detector.setInput(blob)
    expected = detector.forward()
    blob[:] = 0
    np.testing.assert_array_equal(detector.forward(), expected)


@pytest.mark.parametrize("swapped", [False, True])
def test_read_net_takes_both_orders(tmp_path, swapped):
    files = list(map(str, small_model(tmp_path, "classifier")))
    net = cv2_dnn.readNet(*(files[::-1] if swapped else files))
    assert net.getLayerNames()[-1] == "softmax_4"
    assert not net.empty()


def test_names_with_other_suffixes_are_in_the_order_of_opencv(tmp_path):
    """readNet() has the weights first and readNetFromDarknet() the .cfg."""
    cfg, weights = small_model(tmp_path, "classifier")
    text, backup = str(cfg.rename(tmp_path / "net.txt")), str(weights.rename(tmp_path / "net.bin"))
    for net in (
        cv2_dnn.readNet(backup, text, "darknet"),
        cv2_dnn.readNetFromDarknet(text, backup),
    ):
        assert net.getLayerNames()[-1] == "softmax_4"
    cfg = str((tmp_path / "net.txt").rename(tmp_path / "net.cfg"))
    for given in ((cfg, backup), (backup, cfg)):
        assert cv2_dnn.readNet(*given, "darknet").getLayerNames()[-1] == "softmax_4"
    for alone in (backup, (tmp_path / "net.bin").read_bytes()):
        with pytest.raises(InputError, match=r"expected the \.cfg of .{,200}, too$"):
            cv2_dnn.readNet(alone, framework="darknet")


def test_buffers(tmp_path):
    cfg, weights = small_model(tmp_path, "classifier")
    content = cfg.read_bytes(), weights.read_bytes()
    blob = networks.small_blob("classifier")
    outputs = []
    for net in (
        cv2_dnn.readNetFromDarknet(str(cfg), str(weights)),
        cv2_dnn.readNetFromDarknet(*content),
        cv2_dnn.readNetFromDarknet(bytearray(content[0]), np.frombuffer(content[1], np.uint8)),
        cv2_dnn.readNet("darknet", content[1], content[0]),
    ):
        net.setInput(blob)
        outputs.append(net.forward())
    for each in outputs[1:]:
        np.testing.assert_array_equal(each, outputs[0])


def test_a_cfg_alone_tells_its_layers(tmp_path):
    cfg, _ = small_model(tmp_path, "region")
    assert cv2_dnn.readNetFromDarknet(str(cfg)).getUnconnectedOutLayersNames() == ("detection_out",)


def test_profile(detector):
    assert detector.getPerfProfile()[0] == 0
    detector.setInput(networks.small_blob("detector"))
    detector.forward(detector.getUnconnectedOutLayersNames())
    ticks, layers = detector.getPerfProfile()
    assert ticks > 0
    assert layers.shape == (len(detector.getLayerNames()),)
    assert layers.sum() == pytest.approx(ticks)
    detector.setInput(np.zeros((1, 3, 96, 128), np.float32))
    detector.forward()
    detector.setInput(networks.small_blob("detector"))  # forward() has not run it
    ticks, layers = detector.getPerfProfile()
    assert layers.sum() == pytest.approx(ticks)


def test_layer_ids(detector):
    names = detector.getLayerNames()
    assert [detector.getLayerId(each) for each in names] == list(range(1, len(names) + 1))
    assert detector.getLayerId("data") == 0
    assert detector.getLayerId("nothing") == -1
    assert detector.getLayer(1).name == names[0]
    assert detector.getLayer(0).outputNameToIndex("im_info") == -1
    assert detector.getLayer(0) == detector.getLayer("_input") == ("_input", "")
    with pytest.raises(InputError, match="layer: expected"):
        detector.getLayer(99)


def test_the_input_can_have_another_name(detector):
    blob = networks.small_blob("detector")
    detector.setInput(blob, "data")
    expected = detector.forward()
    detector.setInputsNames(["image"])
    detector.setInput(blob, "image")
    np.testing.assert_array_equal(detector.forward(), expected)
    detector.setInput(blob)
    with pytest.raises(InputError, match="setInput: name: expected '' or 'image', got 'data'"):
        detector.setInput(blob, "data")
    with pytest.raises(InputError, match="setInputsNames: expected one name, got 2"):
        detector.setInputsNames(["a", "b"])


def test_the_blob_decides_over_set_input_shape(detector):
    detector.setInputShape("data", (1, 3, 32, 32))
    detector.setInput(networks.small_blob("detector"))
    assert detector.forward().shape == (32 * 48, 7)
    with pytest.raises(InputError, match="setInputShape: name: expected '' or 'data', got 'x'"):
        detector.setInputShape("x", (1, 3, 32, 32))
    with pytest.raises(InputError, match=r"shape: expected \(pictures, 3, height, width\)"):
        detector.setInputShape("data", (1, 1, 32, 32))


def test_a_method_that_is_missing(detector):
    with pytest.raises(
        AttributeError, match=r"^dump: Net of engine\.compat\.cv2_dnn has no such attribute$"
    ):
        detector.dump()
    assert not hasattr(detector, "getMemoryConsumption")
    with pytest.raises(
        AttributeError, match=r"^blobs: Layer of engine\.compat\.cv2_dnn has no such attribute$"
    ):
        _ = detector.getLayer(1).blobs


def test_an_empty_net():
    net = cv2_dnn.Net()
    assert net.empty()
    assert net.getLayerNames() == ()
    assert len(net.getUnconnectedOutLayers()) == 0
    with pytest.raises(InputError, match="empty"):
        net.setInput(networks.small_blob("detector"))


def test_a_gpu_that_is_missing_is_reported(detector, caplog, monkeypatch):
    def missing(name):
        if name.startswith("cuda"):
            raise cv2_dnn.net.DeviceError("cuda:0: no driver")
        return opened(name)

    opened = cv2_dnn.net.open_chosen
    monkeypatch.setattr(cv2_dnn.net, "open_chosen", missing)
    detector.setInput(networks.small_blob("detector"))
    expected = detector.forward()
    detector.setPreferableBackend(cv2_dnn.DNN_BACKEND_CUDA)
    detector.setPreferableTarget(cv2_dnn.DNN_TARGET_CUDA_FP16)
    with caplog.at_level(logging.WARNING, "engine"):
        np.testing.assert_array_equal(detector.forward(), expected)
    assert "the CPU is used instead: cuda:0: no driver" in caplog.text


@pytest.mark.cuda
def test_targets_choose_device_and_precision(detector):
    open_or_skip(lambda: open_device("cuda:0")).close()
    blob = networks.small_blob("detector")
    detector.setInput(blob)
    expected = detector.forward("permute_9")
    for target, tolerance in (
        (cv2_dnn.DNN_TARGET_CUDA, 1e-4),
        (cv2_dnn.DNN_TARGET_CUDA_FP16, 5e-2),
    ):
        detector.setPreferableTarget(target)
        np.testing.assert_allclose(detector.forward("permute_9"), expected, atol=tolerance)
        assert detector._device.name.startswith("cuda")


def test_wrong_inputs(detector):
    with pytest.raises(InputError, match="Call setInput"):
        detector.forward()
    with pytest.raises(InputError, match="expected 3 channels, got 1"):
        detector.setInput(np.zeros((1, 1, 64, 96), np.float32))
    with pytest.raises(InputError, match="blobFromImage"):
        detector.setInput(np.zeros((64, 96, 3), np.uint8))
    with pytest.raises(InputError, match="name"):
        detector.setInput(networks.small_blob("detector"), "image")
    detector.setInput(networks.small_blob("detector"))
    with pytest.raises(InputError, match=r"'yolo_g'\. Did you mean 'yolo_9'"):
        detector.forward("yolo_g")
    detector.setInput(np.zeros((1, 3, 50, 50), np.float32))
    with pytest.raises((InputError, ConfigError)):
        detector.forward()


def test_wrong_files(tmp_path):
    cfg, weights = map(str, small_model(tmp_path, "classifier"))
    with pytest.raises(InputError, match=r"expected a \.cfg and a \.weights"):
        cv2_dnn.readNet("model.onnx")
    with pytest.raises(InputError, match=r"expected the \.cfg"):
        cv2_dnn.readNet(weights)
    with pytest.raises(ConfigError, match="cannot be read"):
        cv2_dnn.readNetFromDarknet("missing.cfg", weights)
    with pytest.raises(WeightsError, match="cannot be read"):
        cv2_dnn.readNetFromDarknet(cfg, "missing.weights")
    with pytest.raises(WeightsError, match="bytes more"):
        cv2_dnn.readNetFromDarknet(cfg, (tmp_path / "net.weights").read_bytes() + b"abcd")
    with pytest.raises(InputError, match="framework"):
        cv2_dnn.readNet("caffe", b"x", b"y")
    with pytest.raises(InputError, match="uint8"):
        cv2_dnn.readNetFromDarknet(np.zeros(3), np.zeros(3))
