"""The metadata of exported files."""

import ast
import json

import pytest

from engine.export.metadata import Description
from engine.export.suppression import Nms
from engine.version import __version__
from engine.vision.boxes import Suppression
from tests import needs
from tests.export.networks import GRID, REGION, TWO_HEADS, Network

onnx = needs.package("onnx")

NAMES = ["cat", 'the "dog"', "Kuh's größte"]


def facts_of(text=TWO_HEADS, **options):
    model = onnx.load_from_string(Network(text).build(**options).content)
    return {each.key: each.value for each in model.metadata_props}


def test_names_of_the_classes_are_literals():
    description = Description("my.cfg", NAMES, "detector", "letterbox")
    found = facts_of(description=description)
    assert ast.literal_eval(found["names"]) == dict(enumerate(NAMES))
    assert json.loads(found["engine.names"]) == NAMES
    assert found["task"] == "detect"
    assert found["engine.resize"] == "letterbox"
    assert found["description"].startswith("my.cfg")


def test_the_input_is_described():
    found = facts_of()
    assert ast.literal_eval(found["imgsz"]) == [32, 64]
    assert (found["stride"], found["channels"], found["batch"]) == ("4", "3", "1")
    assert (found["engine.colours"], found["engine.axes"]) == ("RGB", "NCHW")
    assert float(found["engine.scale"]) == 1 / 255
    assert found["Image.BitmapPixelFormat"] == "Rgb8"
    assert found["Image.NominalPixelRange"] == "Normalized_0_1"
    grey = facts_of(TWO_HEADS.replace("channels=3", "channels=1"))
    assert (grey["engine.colours"], grey["Image.BitmapPixelFormat"]) == ("grey", "Gray8")


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        (
            TWO_HEADS,
            [
                {"layer": 3, "kind": "yolo", "stride": 4, "classes": 3},
                {"layer": 7, "kind": "yolo", "stride": 2, "classes": 2},
            ],
        ),
        (REGION, [{"layer": 3, "kind": "region", "stride": 4, "classes": 3}]),
        (GRID, [{"layer": 2, "kind": "grid", "stride": 8, "classes": 3, "anchors": []}]),
    ],
    ids=["yolo", "region", "detection"],
)
def test_heads_with_anchors_in_pixels(text, heads):
    anchors = [[6, 9], [12, 7]] if text == TWO_HEADS else [[4, 8], [12, 4]]
    assert json.loads(facts_of(text)["engine.heads"]) == [
        {"anchors": anchors, **each} for each in heads
    ]


def test_options_are_told():
    nms = Nms(0.3, Suppression(0.5, "greedynms", 0.7), 20)
    found = facts_of(layout="yolov8", nms=nms, half=True, dynamic=True, batch=4)
    wanted = {"batch": 4, "half": True, "dynamic": True, "nms": True}
    assert ast.literal_eval(found["args"]) == wanted
    assert (found["engine.layout"], found["engine.precision"]) == ("yolov8", "float16")
    told = {"kind": "greedynms", "threshold": 0.3, "iou": 0.5, "max_detections": 20, "beta": 0.7}
    assert json.loads(found["engine.nms"]) == told
    plain = facts_of()
    assert (plain["engine.layout"], plain["engine.precision"]) == ("raw", "float32")
    assert "engine.nms" not in plain
    assert "names" not in plain


def test_the_producer_has_a_version():
    model = onnx.load_from_string(Network(TWO_HEADS).build().content)
    assert (model.producer_name, model.producer_version) == ("engine", __version__)


def test_a_file_is_the_same_each_time():
    assert Network(TWO_HEADS).build().content == Network(TWO_HEADS).build().content
