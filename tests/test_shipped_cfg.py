"""cfg/: our own text of known networks gives the published sizes and shapes."""

from pathlib import Path

import pytest

from engine.darknet import cfg, graph
from engine.darknet.names import read_names
from engine.shipped import folder

OFFICIAL = Path(__file__).parents[2] / "shared" / "cfgs"

# bytes of the published .weights, billions of operations
PUBLISHED = {"yolov3-tiny": (35_434_956, 5.56), "yolov4-tiny": (24_251_276, 6.91)}


def build(path):
    return graph.build(cfg.read(path))


@pytest.mark.parametrize("path", sorted(folder("cfg").glob("*.cfg")), ids=lambda path: path.stem)
def test_size_and_work_are_the_published_ones(path, caplog):
    size, work = PUBLISHED[path.stem]
    network = build(path)
    assert network.weights_bytes == size
    assert network.operations / 1e9 == pytest.approx(work, abs=0.01)
    assert not caplog.records, "a key that nobody reads"


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.skipif(not OFFICIAL.is_dir(), reason="needs ../shared/cfgs")
def test_layers_are_those_of_the_official_text(name):
    ours, official = build(folder("cfg") / f"{name}.cfg"), build(OFFICIAL / f"{name}.cfg")
    for mine, theirs in zip(ours.nodes, official.nodes, strict=True):
        assert (mine.kind, mine.sources, mine.shape) == (theirs.kind, theirs.sources, theirs.shape)
        assert mine.parameters == theirs.parameters
    assert ours.nms == official.nms


def test_the_coco_names_fit():
    names = read_names(folder("cfg") / "coco.names", 80)
    assert (names[0], names[16], names[79]) == ("person", "dog", "toothbrush")
