"""The networks that darknet ships, and the reference cases, if they are next to the clone."""

from __future__ import annotations

import json

import pytest

from engine.darknet import network_limits
from engine.darknet.cfg import read
from engine.darknet.graph import build
from engine.darknet.weights import load
from tests.darknet.small_networks import shared_folder

# bytes of the published file (20-byte header), 10^9 operations, number of classes
PUBLISHED = [
    ("csresnext50-panet-spp", 228_123_400, 71.29, "detector", 80),
    ("darknet53", 166_582_580, 18.57, "classifier", 1000),
    ("enet-coco", 19_233_100, 3.73, "detector", 80),
    ("resnet50", 91_303_604, 10.00, "classifier", 1000),
    ("yolov2-tiny", 44_948_600, 5.41, "detector", 80),
    ("yolov3-tiny", 35_434_956, 5.56, "detector", 80),
    ("yolov3", 248_007_048, 65.86, "detector", 80),
    ("yolov4-tiny", 24_251_276, 6.91, "detector", 80),
    ("yolov4", 257_717_640, 128.39, "detector", 80),
    ("yolov7-tiny", 24_967_560, 5.79, "detector", 80),
    ("yolov7", 147_898_248, 104.51, "detector", 80),
]


@pytest.mark.parametrize(("name", "size", "operations", "task", "classes"), PUBLISHED)
def test_published_sizes_and_operations(name, size, operations, task, classes, caplog):
    graph = build(read(shared_folder("cfgs") / f"{name}.cfg"))
    assert graph.weights_bytes == size
    assert round(graph.operations / 1e9, 2) == operations
    assert (graph.task, graph.classes) == (task, classes)
    assert caplog.messages == []


def reference_cases() -> list[str]:
    try:
        folder = shared_folder("golden/open")
    except pytest.skip.Exception:
        return []
    return sorted(str(each.parent.relative_to(folder)) for each in folder.glob("*/*/case.json"))


@pytest.mark.parametrize("name", reference_cases())
def test_a_reference_case_has_darknets_shapes_and_size(name, caplog):
    folder = shared_folder("golden/open") / name
    case = json.loads((folder / "case.json").read_text())
    graph = build(read(folder / "net.cfg"), time_steps=case["time_steps"])
    expected = case["weights"]
    is_wide = expected["major"] * 10 + expected["minor"] >= 2
    assert graph.weights_bytes - (0 if is_wide else 4) == expected["bytes"]
    assert caplog.messages == []
    assert len(graph.nodes) == len(case["layers"])
    for node, layer in zip(graph.nodes, case["layers"], strict=True):
        assert node.shape.size == layer["outputs"], layer
        if layer["out_w"]:
            sides = (layer["out_c"], layer["out_h"], layer["out_w"])
            assert node.shape.sides == sides, layer
    if expected.get("file"):
        load(folder / expected["file"], graph)


@pytest.mark.parametrize(
    "name",
    [
        *("mobilenetv2-yolo-fastest-voc-v1", "tiny-darknet-imagenet", "yolo-fastest-1.1-coco"),
        *("yoloface-500k-v1", "yoloface-50k"),
    ],
)
def test_trained_weights_match_their_network(name):
    folder = shared_folder("models") / name
    graph = build(read(folder / f"{name}.cfg"))
    assert len(load(folder / f"{name}.weights", graph)) == len(graph.nodes)


def test_the_largest_network_is_far_from_the_ceilings():
    graph = build(read(shared_folder("golden/open") / "macro" / "cspx-p7-mish" / "net.cfg"))
    assert graph.parameter_count * 10 < network_limits.PARAMETERS
    assert sum(len(node.sources) for node in graph.nodes) * 10 < network_limits.REFERENCES
