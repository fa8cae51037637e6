"""network_predict_batch() and what scripts call with it; numbers are those of libdarknet.so."""

import ctypes

import numpy as np
import pytest
from PIL import Image

from engine.compat import darknet
from engine.errors import InputError
from tests.cli.darknet.parcel_set import MODEL, ROOT

AREAS = ((0, 0, 512, 512), (208, 208, 720, 720))  # of docs/parcel.jpg, in the size of the network
# of AlexeyAB/darknet, commit 59596d78: thresh 0.2, then do_nms_obj() with 0.45
BOXES = (
    [
        ("aztec", 0.981415, (108.684, 135.720, 152.977, 141.764)),
        ("barcode", 0.918329, (423.569, 344.871, 154.039, 197.093)),
        ("barcode", 0.875831, (305.337, 335.448, 87.721, 210.368)),
    ],
    [
        ("qr", 0.953814, (367.083, 201.260, 61.248, 60.385)),
        ("barcode", 0.911453, (215.164, 137.266, 151.023, 193.536)),
        ("barcode", 0.884936, (96.268, 128.430, 93.392, 208.638)),
        ("pdf417", 0.494968, (27.715, 409.281, 62.415, 151.910)),
    ],
)
COUNTS = [50, 58]  # before NMS


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    data = tmp_path_factory.mktemp("data") / "codes.data"
    data.write_text(f"names = {ROOT / 'cfg/codes.names'}\n")
    darknet.set_gpu(-1)
    network, names, _ = darknet.load_network(MODEL[1], str(data), MODEL[2], batch_size=2)
    yield network, names
    darknet.free_network_ptr(network)


@pytest.fixture(scope="module")
def pictures():
    with Image.open(ROOT / "docs/parcel.jpg") as parcel:
        return [np.asarray(parcel.convert("RGB").crop(area)) for area in AREAS]


def batch_of(pictures):
    """Return a pointer to floats, as scripts make it."""
    planes = np.concatenate([each.transpose(2, 0, 1) for each in pictures])
    values = np.ascontiguousarray(planes.ravel(), np.float32) / np.float32(255)
    return values.ctypes.data_as(darknet.POINTER(darknet.c_float))


def assert_same(found, expected):
    assert [label for label, *_ in found] == [label for label, *_ in expected]
    for (_, score, box), (_, right, right_box) in zip(found, expected, strict=True):
        assert score == pytest.approx(right, abs=2e-5)
        assert box == pytest.approx(right_box, abs=2e-2)


def test_a_batch_gives_the_boxes_of_darknet(loaded, pictures):
    network, names = loaded
    image = darknet.IMAGE(512, 512, 3, batch_of(pictures))
    found = darknet.network_predict_batch(network, image, 2, 512, 512, 0.2, 0.5, None, 0, 0)
    assert [each.num for each in found] == COUNTS
    for each, expected in zip(found, BOXES, strict=True):
        darknet.do_nms_obj(each.dets, each.num, len(names), 0.45)
        assert_same(darknet.remove_negatives(each.dets, names, each.num), expected)
        assert_same(darknet.remove_negatives_faster(each.dets, names, each.num), expected)
    darknet.free_batch_detections(found, 2)


def test_numbers_may_be_those_of_ctypes(loaded, pictures):
    network, names = loaded
    plain = darknet.make_image(512, 512, 3)
    darknet.copy_image_from_bytes(plain, pictures[0].tobytes())
    darknet.predict_image(network, plain)
    counts = [darknet.c_int(0), ctypes.c_int(0), ctypes.c_int(0), [0]]
    passed = [counts[0], darknet.pointer(counts[1]), darknet.byref(counts[2]), counts[3]]
    side, thresh = darknet.c_int(512), darknet.c_float(0.2)
    for each in passed:
        found = darknet.get_network_boxes(network, side, side, thresh, thresh, None, 0, each, 0)
    assert [counts[0].value, counts[1].value, counts[2].value, counts[3][0]] == COUNTS[:1] * 4
    darknet.do_nms_sort(found, counts[0], darknet.c_int(5), darknet.c_float(0.45))
    kept = darknet.remove_negatives(found, names, counts[0])
    assert_same(sorted(kept, key=lambda each: -each[1]), BOXES[0])
    assert kept[0][0] == "barcode"  # the last class first, as darknet's sorting leaves them


def test_a_buffer_that_is_too_small_is_refused(loaded, pictures):
    network, _ = loaded
    image = darknet.IMAGE(512, 512, 3, batch_of(pictures[:1]))
    with pytest.raises(InputError, match=r"image: expected 1572864 numbers, got 786432"):
        darknet.network_predict_batch(network, image, 2, 512, 512, 0.01, 0.5)


def test_names_can_be_decoded(tmp_path):
    (tmp_path / "two.names").write_text("cat\ndog\n")
    (tmp_path / "two.data").write_text("names = two.names\n")
    meta = darknet.load_meta(str(tmp_path / "two.data").encode("ascii"))
    assert [meta.names[number].decode("ascii") for number in range(meta.classes)] == ["cat", "dog"]
    cat, dog = meta.names
    assert b"cat" == cat == "cat"
    assert (cat != b"cat") is False
    assert cat != b"dog"
    assert cat not in (dog, "dog", b"\xff", None)
    assert dog in [b"car", b"dog"]
    assert {"cat": 1}[cat] == 1


def test_predict_image_returns_the_outputs_of_a_classifier(tiny_classifier):
    network = darknet.load_net_custom(
        str(tiny_classifier.cfg).encode(), str(tiny_classifier.weights).encode(), 0, 1
    )
    sides = darknet.network_width(network), darknet.network_height(network)
    image = darknet.make_image(*sides, 3)
    outputs = darknet.predict_image(network, image)
    assert sum(outputs[number] for number in range(6)) == pytest.approx(1, abs=1e-5)
    assert outputs[:6] == [outputs[number] for number in range(6)]
    assert outputs[1:4] == outputs[:6][1:4]
    assert np.asarray(outputs).argmax() == max(range(len(outputs)), key=outputs.__getitem__)
    darknet.reset_rnn(network)
    darknet.free_network_ptr(network)


def test_structures_are_made_without_arguments():
    image = darknet.IMAGE()
    assert (image.w, image.h, image.c, image.data) == (0, 0, 0, None)
    with pytest.raises(InputError, match="image: expected 12 numbers, got none"):
        image.numbers(12)
    image.w, image.h, image.c = 2, 2, 3
    image.data = np.zeros(12, np.float32)
    darknet.copy_image_from_bytes(image, bytes(12))
    assert darknet.BOX() == (0, 0, 0, 0)
    assert (darknet.METADATA().classes, darknet.METADATA().names) == (0, [])
    assert (darknet.DETECTION().bbox, darknet.DETECTION().classes) == (darknet.BOX(), 0)
    assert (darknet.DETNUMPAIR().num, list(darknet.DETNUMPAIR().dets)) == (0, [])


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("lib", "predict_image"),
        ("hasGPU", "set_gpu"),
        ("network_predict", "forward"),
        ("netMain", "performDetect"),
        ("performBatchDetect", "network_predict_batch"),
        ("non_max_suppression_fast", "do_nms_sort"),
        ("predict", "predict_image"),
        ("init_cpu", "set_gpu"),
        ("make_network_boxes", "get_network_boxes"),
        ("free_ptrs", "frees"),
    ],
)
def test_missing_names_say_what_to_use(name, instead):
    with pytest.raises(AttributeError, match=rf"^{name}: .* has no such attribute\. .*{instead}"):
        getattr(darknet, name)
    assert not hasattr(darknet, "nothing")


def test_names_that_python_suggests_are_public():
    """Python picks what a misspelt name may mean from dir()."""
    assert dir(darknet) == darknet.__all__


def test_a_letterboxed_prediction(loaded, pictures):
    network, names = loaded
    wide = darknet.make_image(512, 256, 3)
    darknet.copy_image_from_bytes(wide, pictures[0][:256].tobytes())
    darknet.predict_image_letterbox(network, wide)
    found = darknet.get_network_boxes(network, 512, 256, 0.5, 0.5, None, 0, None, 1)
    darknet.do_nms_sort(found, len(found), len(names), 0.45)
    ((label, _, (_, y, _, height)),) = darknet.remove_negatives(found, names, len(found))
    assert label == "aztec"
    assert y - height / 2 == pytest.approx(62, abs=8)
