"""Layouts: every combination with NMS, float16 and dynamic size, and other programs' readers."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from engine import bundled
from engine.errors import ConfigError, InputError
from engine.export.metadata import Description
from engine.export.suppression import Nms
from engine.vision.boxes import Suppression
from tests import needs
from tests.export.networks import GRID, REGION, TWO_HEADS, Network, corners
from tests.export.others import Reader
from tests.export.runtime import run_model
from tests.lanes import slow
from tests.small_models import CLASSIFIER

needs.package("onnx")
needs.package("onnxruntime")

SCENE = Path(__file__).parents[2] / "docs/scene.jpg"
FASTEST = needs.SHARED / "models/yolo-fastest-1.1-coco/yolo-fastest-1.1-coco"
PICTURES = sorted((needs.SHARED / "images").rglob("*.jpg"))
OPTIONS = ("half", "dynamic")
COMBINATIONS = [
    (layout, nms, dict(zip(OPTIONS, values, strict=True)))
    for layout in ("raw", "darknet", "yolov5", "yolov8")
    for nms in (False, True)
    for values in itertools.product((False, True), repeat=2)
]
PLAIN = Suppression(0.45)
SHAPES = {
    ("raw", False): [(2, 14, 16, 32), (2, 16, 8, 16)],
    ("darknet", False): [(2, 256 + 1024, 8)],
    ("yolov5", False): [(2, 256 + 1024, 8)],
    ("yolov8", False): [(2, 7, 256 + 1024)],
    ("darknet", True): [(2, 9, 4), (2, 9), (2, 9), (2,)],
    ("yolov5", True): [(2, 9, 6)],
    ("yolov8", True): [(2, 9, 6)],
}


@pytest.fixture(scope="module")
def two_heads():
    return Network(TWO_HEADS)


@pytest.mark.parametrize(("layout", "nms", "options"), COMBINATIONS)
def test_each_combination_works_or_is_refused(two_heads, layout, nms, options):
    settings = Nms(0.4, PLAIN, 9) if nms else None
    if (layout, nms) == ("raw", True):
        with pytest.raises(InputError, match="nms: expected the layout darknet, yolov5, yolov8"):
            two_heads.build(layout=layout, nms=settings, **options)
        return
    images = two_heads.images(2)
    model = two_heads.build(layout=layout, nms=settings, **options)
    found = run_model(model.content, images)
    assert [each.shape for each in found] == SHAPES[layout, nms]
    for port, array in zip(model.outputs, found, strict=True):
        assert array.dtype == port.kind
        pairs = zip(port.sides, array.shape, strict=True)
        assert all(told == side for told, side in pairs if isinstance(told, int))
    plain = run_model(two_heads.build(layout=layout, nms=settings).content, images)
    for ours, theirs in zip(found, plain, strict=True):
        if not (nms and options["half"]):  # rounding may swap boxes
            extent = np.abs(theirs).max(initial=1)
            np.testing.assert_allclose(
                ours, theirs, atol=(0.01 if options["half"] else 1e-5) * extent
            )


@pytest.mark.parametrize("text", [TWO_HEADS, REGION, GRID], ids=["yolo", "region", "detection"])
def test_layouts_hold_the_same_boxes(text):
    network = Network(text)
    images = network.images(2)
    darknet, five, eight = (
        run_model(network.build(layout=layout).content, images)[0]
        for layout in ("darknet", "yolov5", "yolov8")
    )
    sides = [network.graph.net.width, network.graph.net.height] * 2
    np.testing.assert_allclose(five[..., :4], darknet[..., :4] * sides, rtol=1e-5)
    np.testing.assert_allclose(five[..., 5:] * five[..., 4:5], darknet[..., 5:], rtol=1e-5)
    np.testing.assert_allclose(eight.transpose(0, 2, 1)[..., :4], five[..., :4], rtol=1e-6)
    np.testing.assert_allclose(eight.transpose(0, 2, 1)[..., 4:], darknet[..., 5:], rtol=1e-6)
    objectness = np.ones_like(five[..., 4]) if text == REGION else five[..., 4]
    np.testing.assert_array_equal(darknet[..., 4], objectness)


def test_gaussian_boxes_have_their_uncertainty_in_the_classes():
    text = TWO_HEADS.replace("[yolo]", "[Gaussian_yolo]").replace("filters=16", "filters=24")
    network = Network(text.replace("filters=14", "filters=22"))
    images = network.images()
    darknet, five = (
        run_model(network.build(layout=layout).content, images)[0]
        for layout in ("darknet", "yolov5")
    )
    np.testing.assert_allclose(five[..., 5:] * five[..., 4:5], darknet[..., 5:], rtol=1e-5)
    (boxes,) = network.boxes(images, 0.2, PLAIN)
    nms = Nms(0.2, PLAIN, 1000)
    *_, count = run_model(network.build(layout="darknet", nms=nms).content, images)
    assert count == len(boxes) > 0


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"half": True}], ids=str)
@pytest.mark.parametrize("layout", ["yolov5", "yolov8"])
def test_a_classifier_has_a_row_of_probabilities(layout, options):
    network = Network(CLASSIFIER)
    images = network.images(2)
    model = network.build(layout=layout, **options)
    (found,) = run_model(model.content, images)
    assert found.shape == (2, 6)
    np.testing.assert_allclose(found, network.outputs(images)[0][..., 0, 0], atol=1e-3)
    with pytest.raises(InputError, match="layout darknet: expected a network with a detection"):
        network.build(layout="darknet")
    with pytest.raises(
        InputError, match="nms: expected a network with a detection layer, got none"
    ):
        network.build(layout=layout, nms=Nms())


@pytest.mark.parametrize("layout", ["darknet", "yolov5", "yolov8"])
def test_a_network_without_boxes_has_no_such_layout(layout):
    network = Network(TWO_HEADS[: TWO_HEADS.index("[yolo]")])
    with pytest.raises(InputError, match=f"layout {layout}: expected a network with a detection"):
        network.build(layout=layout)
    with pytest.raises(
        InputError, match="nms: expected a network with a detection layer, got none"
    ):
        network.build(layout=layout, nms=Nms())


def test_unknown_layouts_are_refused():
    with pytest.raises(InputError, match=r"layout: expected raw, .*, got 'yolov9'\. Did you mean"):
        Network(TWO_HEADS).build(layout="yolov9")


def test_a_tree_of_classes_is_refused_by_its_layer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tree").write_text("a -1\nb -1\nc 0\n")
    network = Network(REGION.replace("softmax=1", "softmax=1\ntree=tree"))
    with pytest.raises(ConfigError, match=r"layer 3 \[region\]: ONNX: .* a tree of classes"):
        network.build(layout="yolov8")


# ---------------------------------------------------------------- other programs


def described(names):
    return Description("net.cfg", names, "detector", "stretch")


def compare(reader, network, names, images, *, threshold, tolerance):
    """Compare what a reader finds with the engine's boxes, except those at the threshold."""
    (found,) = reader(images, conf=threshold, iou=0.45)
    (boxes,) = network.boxes(images, threshold, PLAIN)
    sides = network.graph.net.width, network.graph.net.height
    left = list(found)
    for edges, score, number in zip(
        corners(boxes, sides), boxes.scores, boxes.class_ids, strict=True
    ):
        rivals = [each for each in left if each.label == names[number]]
        near = [
            each
            for each in rivals
            if abs(each.score - score) < tolerance
            and np.abs(each.box - edges).max() < 300 * tolerance
        ]
        assert near or score < threshold + tolerance
        if near:
            left.remove(near[0])
    assert not [each for each in left if each.score > threshold + tolerance]
    return len(boxes)


READERS = [
    (layout, nms, dict(zip(OPTIONS, values, strict=True)))
    for layout in ("yolov5", "yolov8")
    for nms in (False, True)
    for values in ((False, False), (True, True))
]


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "nms", "options"), READERS)
def test_a_reader_for_ultralytics_finds_the_codes(codes, layout, nms, options):
    network, names, images = codes
    nms = Nms(0.3, PLAIN) if nms else None
    model = network.build(layout=layout, nms=nms, description=described(names), **options)
    reader = Reader(model.content)
    assert reader.names == dict(enumerate(names))
    assert reader.imgsz == list(images.shape[2:])
    assert (reader.stride, reader.batch, reader.channels) == (64, 1, 3)
    tolerance = 0.01 if options["half"] else 1e-4
    found = compare(reader, network, names, images, threshold=0.3, tolerance=tolerance)
    assert found >= 7


@pytest.fixture(scope="module")
def codes():
    model = bundled.default_model()
    network = Network(files=model[:2])
    names = model.names.read_text().split()
    return network, names, network.input_of(SCENE.with_name("parcel.jpg"))


@pytest.fixture(scope="module")
def fastest():
    network = Network(files=(f"{FASTEST}.cfg", f"{FASTEST}.weights"))
    names = Path(f"{FASTEST}.names").read_text().splitlines()
    return network, names, [network.input_of(each) for each in PICTURES[:2]]


@pytest.mark.slow
@needs.shared("models", "images")
@pytest.mark.parametrize(
    ("layout", "nms"), [("yolov5", False), slow(("yolov8", False)), ("yolov8", True)]
)
def test_a_reader_finds_the_things_in_photos(fastest, layout, nms):
    network, names, photos = fastest
    nms = Nms(0.25, PLAIN) if nms else None
    reader = Reader(network.build(layout=layout, nms=nms, description=described(names)).content)
    counts = [
        compare(reader, network, names, images, threshold=0.25, tolerance=1e-4) for images in photos
    ]
    assert sum(counts) > 5
