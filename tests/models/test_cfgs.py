"""cfg/: our .cfg files of the zoo have the published sizes, operations and layers."""

from dataclasses import replace
from pathlib import Path

import pytest

from engine.bundled import folder
from engine.darknet import cfg, graph
from engine.darknet.names import read_names
from engine.models.registry import models
from tests import needs
from tools import write_cfgs
from tools.networks.cfg_builder import NETWORKS

SHARED = Path(__file__).parents[3] / "shared"

# 10^9 operations, as darknet and the authors' pages count them
WORK = {
    "yolov1": 40.42,
    "yolov1-tiny": 3.22,
    "yolov2": 62.94,
    "yolov2-voc": 29.36,
    "yolov2-tiny": 5.41,
    "yolov2-tiny-voc": 6.97,
    "yolo9000": 49.06,
    "yolov3": 65.86,
    "yolov3-spp": 141.45,
    "yolov3-tiny": 5.56,
    "yolov3-tiny-prn": 3.46,
    "yolov3-openimages": 148.78,
    "yolov3-voc": 65.43,
    "Gaussian_yolov3_BDD": 99.04,
    "csresnext50-panet-spp": 71.29,
    "csresnext50-panet-spp-original-optimal": 100.53,
    "enet-coco": 3.73,
    "yolov4": 128.39,
    "yolov4-tiny": 6.91,
    "yolov4-tiny-3l": 17.74,
    "yolov4-csp": 76.95,
    "yolov4-csp-swish": 120.24,
    "yolov4-csp-x-swish": 221.88,
    "yolov4x-mish": 221.88,
    "yolov4-p5": 326.64,
    "yolov4-p6": 717.02,
    "yolov7-tiny": 5.79,
    "yolov7": 104.51,
    "yolov7x": 189.67,
    "alexnet": 2.27,
    "darknet": 0.96,
    "tiny": 0.98,
    "vgg-16": 30.94,
    "extraction": 8.52,
    "darknet19": 7.29,
    "darknet19_448": 22.33,
    "resnet18": 4.69,
    "resnet34": 9.52,
    "resnet50": 9.74,
    "resnet101": 19.70,
    "resnet152": 29.39,
    "resnext50": 10.11,
    "resnext101-32x4d": 18.92,
    "resnext152-32x4d": 28.20,
    "densenet201": 10.85,
    "darknet53": 18.57,
    "darknet53_448": 56.87,
    "efficientnet_b0": 0.91,
}

# official files of another name
ELSEWHERE = {
    "tiny": "models/tiny-darknet-imagenet/tiny-darknet-imagenet.cfg",
    "yolov1": "golden/open/macro/yolov1-yolo/net.cfg",
    "yolov1-tiny": "golden/open/macro/yolov1-tiny-yolo/net.cfg",
    "yolov3-voc": "golden/open/macro/yolov3-voc.yolov3-giou-40/net.cfg",
}
# official files of these two exist with [avgpool] before and after the last convolution
AVERAGE_ELSEWHERE = {"darknet": 13, "resnet50": 66}  # the number of layers before it
# heads with the masks of training, which the official files have wrong
OTHER_MASKS = {("yolov3-tiny", 23): (0, 1, 2)}


def build(path, size=None):
    return graph.build(cfg.read(path), size=size)


def ours(name):
    return folder("cfg") / f"{name}.cfg"


def official(name):
    candidates = [
        SHARED / "cfgs" / f"{name}.cfg",
        SHARED / ELSEWHERE.get(name, f"golden/open/macro/{name}/net.cfg"),
    ]
    found = [path for path in candidates if path.is_file()]
    if not found:
        pytest.skip(needs.no_shared("cfgs/*.cfg"))
    return found[0]


def test_zoo_and_cfg_folder_name_the_same_networks():
    texts = {path.stem for path in folder("cfg").glob("*.cfg") if path.stem in models()}
    assert texts == set(models()) == set(NETWORKS) == set(WORK)


@pytest.mark.parametrize("name", models())
def test_size_and_work_are_the_published_ones(name, caplog):
    model = models()[name]
    network = build(ours(name))
    assert network.weights_bytes == model.bytes
    assert (network.task, network.net.width, network.net.height) == (
        *(model.task, model.input),
        model.input,
    )
    assert network.operations / 1e9 == pytest.approx(WORK[name], abs=0.0051)
    assert not caplog.records, "a key that nobody reads"


@pytest.mark.parametrize("name", models())
def test_layers_are_those_of_the_official_text(name):
    theirs = build(official(name))
    mine = build(ours(name), size=(theirs.net.width, theirs.net.height))
    count = AVERAGE_ELSEWHERE.get(name)
    nodes = [node for node in theirs.nodes if node.kind != "cost"]
    for here, there in zip(mine.nodes[:count], nodes[:count], strict=True):
        assert (here.kind, here.sources, here.shape) == (there.kind, there.sources, there.shape)
        assert here.parameters == there.parameters
        layer = here.layer
        if (name, here.index) in OTHER_MASKS:
            layer = replace(layer, mask=OTHER_MASKS[name, here.index])
        assert comparable(layer) == comparable(there.layer), here.index
    assert mine.net.letter_box == theirs.net.letter_box
    assert mine.nms == theirs.nms


def comparable(layer):
    """Return a layer without options of several spellings; sources are layer numbers."""
    if layer.kind == "convolutional" and layer.size == 1:
        return replace(layer, pad=False, padding=0)
    if layer.kind == "maxpool" and layer.padding is None:
        return replace(layer, padding=layer.size - 1)
    if layer.kind == "route":
        return replace(layer, layers=())
    if layer.kind == "shortcut":
        return replace(layer, from_layers=())
    if layer.kind == "scale_channels":
        return replace(layer, from_layer=0)
    return layer


@pytest.mark.parametrize("name", models())
def test_cfg_files_are_what_their_generators_write(name, tmp_path, monkeypatch):
    monkeypatch.setattr(write_cfgs, "FOLDER", tmp_path)
    write_cfgs.main([name])
    assert (tmp_path / f"{name}.cfg").read_text() == ours(name).read_text()


@pytest.mark.parametrize(
    ("word", "message"), [("--help", "usage: "), ("yolov44", "Did you mean 'yolov4'?")]
)
def test_unknown_network_is_reported(word, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(write_cfgs, "FOLDER", tmp_path)
    with pytest.raises(SystemExit):
        write_cfgs.main([word])
    assert message in "".join(capsys.readouterr())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name, model in models().items() if model.names])
def test_names_match_their_network(name):
    model = models()[name]
    assert len(read_names(model.names, build(model.cfg).classes)) == build(model.cfg).classes


@pytest.mark.parametrize(
    ("file", "count", "some"),
    [
        ("coco.names", 80, {0: "person", 16: "dog", 79: "toothbrush"}),
        ("voc.names", 20, {0: "aeroplane", 11: "dog", 19: "tvmonitor"}),
        ("imagenet.names", 1000, {0: "kit fox", 1: "English setter"}),
    ],
)
def test_names_are_in_the_order_of_their_data_set(file, count, some):
    names = read_names(folder("cfg") / file, count)
    assert {index: names[index] for index in some} == some
