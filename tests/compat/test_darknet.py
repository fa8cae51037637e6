"""engine.compat.darknet: scripts written for darknet.py run and give the same detections."""

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine.compat import darknet
from engine.darknet import cfg, graph
from engine.darknet import weights as darknet_weights
from engine.errors import InputError
from tests.cli.child import ENVIRONMENT
from tests.pictures import write_picture

SCRIPT = Path(__file__).with_name("darknet_script.py")


@pytest.fixture(autouse=True)
def _on_the_cpu():
    darknet.set_gpu(-1)


def sensible(random, name, shape):
    if name == "weight":
        return random.normal(0, 0.3, shape)
    return random.uniform(0.5, 1, shape)


@pytest.fixture
def model(tiny_detector, tmp_path):
    """Write a .cfg, .data and .weights file; the weights give boxes of plausible sizes."""
    data, weights = tmp_path / "obj.data", tmp_path / "obj.weights"
    data.write_text(f"classes = 3\nnames = {tiny_detector.names}\n")
    network = graph.build(cfg.read(tiny_detector.cfg))
    random = np.random.default_rng(1)
    arrays = [
        {name: sensible(random, name, values.shape) for name, values in layer.items()}
        for layer in darknet_weights.initial(network)
    ]
    darknet_weights.save(weights, network, arrays)
    return [str(tiny_detector.cfg), str(data), str(weights)]


@pytest.fixture
def picture(tmp_path):
    return write_picture(tmp_path / "dog.png", size=(64, 48))


@pytest.fixture
def loaded(model):
    network, names, colours = darknet.load_network(*model)
    yield network, names, colours
    darknet.free_network_ptr(network)


def test_gpu_0_is_the_cpu_on_a_machine_without_a_gpu(model):
    darknet.set_gpu(0)
    network, _, _ = darknet.load_network(*model)
    with engine.load(model[0], model[2], names=["thing"] * 3) as usual:
        assert network.detector.device == usual.device
    darknet.free_network_ptr(network)


def image_of(path):
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    image = darknet.make_image(pixels.shape[1], pixels.shape[0], 3)
    darknet.copy_image_from_bytes(image, pixels.tobytes())
    return image


def test_a_network_knows_its_size_names_and_colours(loaded):
    network, names, colours = loaded
    assert (darknet.network_width(network), darknet.network_height(network)) == (64, 48)
    assert names == ["cat", "dog", "cow"]
    assert set(colours) == set(names)
    assert darknet.class_colors(names) == colours


def test_the_functions_of_hank_ais_fork(loaded, picture, capsys):
    network, *_ = loaded
    darknet.set_output_stream(b"output.log")
    darknet.set_verbose(True)
    darknet.show_version_info()
    assert capsys.readouterr().out == f"engine {engine.__version__}\n"
    assert darknet.version_string() == darknet.version_short() == engine.__version__.encode()
    width, height = network.detector.size
    assert darknet.network_dimensions(network) == (width, height, 3)
    assert darknet.load_image(str(picture).encode(), 8, 6, 3).data.size == 3 * 8 * 6
    with pytest.raises(InputError, match="expected 3 channels, got 1"):
        darknet.load_image(str(picture), 0, 0, 1)
    with pytest.raises(AttributeError, match="Leave out the results"):
        _ = darknet.add_skipped_class


def test_detect_image_finds_what_the_engine_finds(loaded, model, picture):
    network, names, _ = loaded
    found = darknet.detect_image(network, names, image_of(picture), thresh=0.3)
    with engine.load(model[0], model[2], names, device="cpu", threshold=0.3) as detector:
        expected = detector(str(picture))
    assert found == sorted(found, key=lambda each: each[1])
    as_there = [(label, confidence) for label, confidence, _ in found]
    here = [(each.label, str(round(each.score * 100, 2))) for each in expected]
    assert sorted(as_there) == sorted(here)
    boxes = sorted(box for _, _, box in found)
    np.testing.assert_allclose(boxes, sorted(map(tuple, expected.xywh.tolist())), rtol=1e-4)


def test_the_numbers_of_an_image_are_in_one_row():
    """As those of darknet.py, whose `data` is a pointer: planes of red, green and blue."""
    image = darknet.make_image(4, 3, 3)
    darknet.copy_image_from_bytes(image, bytes(range(36)))
    assert [round(image.data[place] * 255) for place in (0, 1, 4, 12, 35)] == [0, 3, 12, 1, 35]
    image.data[0] = 1
    assert image.data.sum() * 255 == pytest.approx(sum(range(36)) + 255)


@pytest.mark.parametrize("is_pointer", [False, True])
def test_red_and_blue_change_places(is_pointer):
    image = darknet.make_image(4, 3, 3)
    darknet.copy_image_from_bytes(image, bytes(range(36)))
    red, green, blue = values = image.data.reshape(3, 12).copy()
    held = image.data
    if is_pointer:
        image.data = held.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    darknet.rgbgr_image(image)
    np.testing.assert_array_equal(held.reshape(3, 12), [blue, green, red])
    darknet.rgbgr_image(image)
    np.testing.assert_array_equal(held.reshape(3, 12), values)
    with pytest.raises(InputError, match="image: expected 3 channels, got 1"):
        darknet.rgbgr_image(darknet.make_image(4, 3, 1))


def test_boxes_are_in_pixels_of_the_image_given(loaded, picture):
    network, names, _ = loaded
    image = image_of(picture)
    larger = darknet.load_image(str(picture), 128, 96)
    assert (larger.w, larger.h, larger.data.shape) == (128, 96, (3 * 96 * 128,))
    small = darknet.detect_image(network, names, image, thresh=0.1, nms=0)
    large = darknet.detect_image(network, names, larger, thresh=0.1, nms=0)
    assert len(small) > 0
    assert max(box[0] for *_, box in large) > 1.5 * max(box[0] for *_, box in small)


def test_lower_level_functions_give_what_detect_image_gives(loaded, picture):
    network, names, _ = loaded
    image = image_of(picture)
    count = ctypes.pointer(ctypes.c_int(0))
    darknet.predict_image(network, image)
    found = darknet.get_network_boxes(network, image.w, image.h, 0.3, 0.5, None, 0, count, 0)
    assert count[0] == len(found) > 0
    darknet.do_nms_sort(found, count[0], len(names), 0.45)
    decoded = darknet.decode_detection(darknet.remove_negatives(found, names, count[0]))
    darknet.free_detections(found, count[0])
    expected = darknet.detect_image(network, names, image, thresh=0.3)
    assert sorted(decoded) == sorted(expected)
    assert found[0].classes == 3
    assert found[0].bbox.w > 0


def test_suppression_is_by_iou_per_class_and_sorts_as_darknet():
    boxes = np.array([[50, 50, 40, 40], [52, 50, 40, 40], [150, 50, 40, 40]], np.float32)
    prob = np.array([[0.9, 0.2], [0.8, 0.6], [0.7, 0]], np.float32)
    found = darknet.Detections(boxes, prob, np.ones(3, np.float32))
    darknet.do_nms_sort(found, 3, 2, 0.45)
    np.testing.assert_array_equal(found.prob, np.float32([[0, 0.6], [0.9, 0], [0.7, 0]]))
    assert found.xywh[:, 0].tolist() == [52, 50, 150]


def test_relative_boxes(loaded, picture):
    network, _, _ = loaded
    darknet.predict_image(network, image_of(picture))
    pixels = darknet.get_network_boxes(network, 64, 48, 0.3, 0.5)
    relative = darknet.get_network_boxes(network, 64, 48, 0.3, 0.5, None, 1)
    np.testing.assert_allclose(relative.xywh * [64, 48, 64, 48], pixels.xywh, rtol=1e-5)


def test_the_older_functions(tiny_detector, model, picture):
    network = darknet.load_net(model[0].encode(), model[2].encode(), 0)
    meta = darknet.load_meta(model[1].encode())
    assert (meta.classes, meta.names) == (3, ["cat", "dog", "cow"])
    found = darknet.detect(network, meta, str(picture).encode(), thresh=0.3)
    scores = [score for _, score, _ in found]
    assert scores == sorted(scores, reverse=True)
    assert scores
    image = darknet.load_image(str(picture).encode(), 0, 0)
    assert darknet.detect_image(network, meta, image, thresh=0.3, debug=False) == found
    for given in (image, np.asarray(Image.open(picture).convert("RGB"))):
        assert darknet.detect(network, meta, given, thresh=0.3) == found
    decoded = darknet.detect_image(network, meta.names, image, thresh=0.3)
    assert sorted(decoded) == sorted(darknet.decode_detection(found))
    darknet.free_network_ptr(network)


def test_classify(tiny_classifier, tmp_path, picture):
    network = darknet.load_net(str(tiny_classifier.cfg), str(tiny_classifier.weights), 0)
    best = darknet.classify(network, darknet.METADATA(6, list("uvwxyz")), image_of(picture))
    assert [score for _, score in best] == sorted((score for _, score in best), reverse=True)
    assert sum(score for _, score in best) == pytest.approx(1, abs=1e-5)
    darknet.free_network_ptr(network)


def test_bytes_must_fill_the_image():
    image = darknet.make_image(4, 2, 3)
    with pytest.raises(InputError, match="expected 24 for 4 x 2 x 3, got 23"):
        darknet.copy_image_from_bytes(image, bytes(23))


def test_bytes_fill_what_a_pointer_points_to():
    image = darknet.make_image(4, 3, 3)
    held = image.data
    image.data = held.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    darknet.copy_image_from_bytes(image, bytes(range(36)))
    assert held.sum() * 255 == pytest.approx(sum(range(36)))


def test_an_image_without_pixels_is_one_line(tiny_detector):
    network = darknet.load_net(str(tiny_detector.cfg), str(tiny_detector.weights), 0)
    with pytest.raises(InputError, match="image: expected 1 x 1 pixel or more, got 0 x 0"):
        darknet.detect_image(network, ["a", "b", "c"], darknet.make_image(0, 0, 3))
    darknet.free_network_ptr(network)


def test_corners_are_rounded():
    assert darknet.bbox2points((10.4, 20.4, 5, 7)) == (8, 17, 13, 24)


@pytest.mark.parametrize("writeable", [True, False])
def test_boxes_are_drawn_on_the_array(writeable):
    image = np.zeros((60, 80, 3), np.uint8)
    image.flags.writeable = writeable
    drawn = darknet.draw_boxes([("dog", "98.5", (40, 30, 20, 20))], image, {"dog": (255, 0, 9)})
    assert (drawn is image) == writeable
    assert drawn[30, 30].tolist() == [255, 0, 9]
    assert drawn[30, 40].tolist() == [0, 0, 0]


def test_detections_are_printed_as_there(capsys):
    darknet.print_detections([("dog", "98.5", (40.2, 30, 20, 20))], coordinates=True)
    darknet.print_detections([("dog", "98.5", (40.2, 30, 20, 20))])
    first, second = capsys.readouterr().out.split("\nObjects:\n")[1:]
    assert first.startswith("dog: 98.5%    (left_x: 40   top_y:  30   width:   20   height:  20)")
    assert second == "dog: 98.5%\n"


def test_controls_in_names_are_not_printed(capsys):
    darknet.print_detections([("\x1b[31mred\x07", "98.5", (40, 30, 20, 20))])
    assert r"\x1b[31mred\x07: 98.5%" in capsys.readouterr().out


def test_a_letterboxed_image_maps_back(loaded, picture):
    network, _, _ = loaded
    image = darknet.load_image(str(picture), 0, 0)
    boxed = darknet.letterbox_image(image, 64, 48)
    darknet.predict_image(network, boxed)
    assert len(darknet.get_network_boxes(network, 64, 48, 0.3, 0.5, None, 0, None, 1)) > 0
    darknet.free_image(boxed)


@pytest.mark.slow
def test_a_script_written_for_darknet_py_runs_with_one_changed_import(model, picture, tmp_path):
    source = SCRIPT.read_text(encoding="utf-8")
    changed = source.replace("import darknet\n", "from engine.compat import darknet\n")
    assert changed != source
    script = tmp_path / "images.py"
    script.write_text(changed, encoding="utf-8")
    out = tmp_path / "drawn.png"
    command = [sys.executable, script, *model, str(picture), str(out)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Objects:" in done.stdout
    assert "left_x" in done.stdout
    with Image.open(out) as drawn, Image.open(picture) as before:
        assert drawn.size == (64, 48)
        assert drawn.tobytes() != before.tobytes()
