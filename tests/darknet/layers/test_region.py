from __future__ import annotations

from pathlib import Path

import pytest

from engine.darknet.cfg import parse
from engine.darknet.graph import Graph, build
from engine.darknet.lower import lower
from engine.errors import ConfigError
from engine.plan import ops
from engine.plan.shapes import Shape
from tests.darknet.small_networks import graph_of, plan_of, random_weights, refusal

REGION = "[region]\nclasses=3\nnum=2\nanchors=1.08,1.19, 3.42,4.41\n"
SOURCE = Shape(16, 2, 4)  # 2 x (5 + 3)
NET = "[net]\nwidth=4\nheight=2\nchannels=16\n"


def with_tree(folder: Path, text: str, name: str = "a.tree") -> Graph:
    (folder / "a.tree").write_text(text)
    return build(parse(f"{NET}{REGION}tree={name}\n", name="net.cfg", folder=folder))


def test_head():
    (head,) = plan_of(REGION + "classfix=-1\n", SOURCE).heads
    assert isinstance(head, ops.RegionHead)
    assert head.anchors == ((1.08, 1.19), (3.42, 4.41))
    assert head.grid == (4, 2)
    assert (head.classes, head.coords, head.classfix, head.tree_parents) == (3, 4, -1, ())


@pytest.mark.parametrize(
    ("options", "runs", "background"),
    [("", (), False), ("softmax=1\n", (3,), False), ("background=1\n", (), True)],
)
def test_output(options, runs, background):
    (op,) = plan_of(REGION + options, SOURCE).ops
    assert isinstance(op, ops.RegionOutput)
    assert (op.anchors, op.classes, op.coords) == (2, 3, 4)
    assert (op.runs, op.background) == (runs, background)


def test_tree_next_to_the_cfg_gives_a_softmax_per_sibling_group(tmp_path):
    graph = with_tree(tmp_path, "animal -1\nthing -1\ncat 0\n")
    plan = lower(graph, random_weights(graph))
    (op,), (head,) = plan.ops, plan.heads
    assert isinstance(op, ops.RegionOutput)
    assert isinstance(head, ops.RegionHead)
    assert op.runs == (2, 1)
    assert head.tree_parents == (-1, -1, 0)


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("a -1\nb 0\n", "a.tree", r"net\.cfg:9: \[region\] tree: expected 3 entries, .*, got 2"),
        ("a -1\nb 2\nc 1\n", "a.tree", r"a\.tree:2: parent: expected -1"),
        ("", "a.tree", "expected at least one class, got none"),
        ("", "b.tree", r"net\.cfg:9: \[region\] tree: .*b\.tree: cannot be read"),
    ],
)
def test_a_bad_tree_is_refused(tmp_path, text, name, problem):
    with pytest.raises(ConfigError, match=problem):
        with_tree(tmp_path, text, name)


def test_a_map_of_classes_is_for_training():
    assert graph_of(REGION + "map=missing.map\n", SOURCE).classes == 3


@pytest.mark.parametrize(
    ("options", "anchors"),
    [("", ((0.5, 0.5),) * 2), ("anchors=1,2\n", ((1, 2), (0.5, 0.5)))],
)
def test_missing_anchors_are_one_half(options, anchors):
    (head,) = plan_of(f"[region]\nclasses=3\nnum=2\n{options}", SOURCE).heads
    assert isinstance(head, ops.RegionHead)
    assert head.anchors == anchors


def test_extra_coordinates_lie_between_box_and_objectness():
    (head,) = plan_of("[region]\nclasses=3\nnum=2\ncoords=6\n", Shape(20, 2, 4)).heads
    assert isinstance(head, ops.RegionHead)
    assert head.coords == 6


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("classes=4\nnum=2", "classes: 2 x (5 + 4 classes) needs filters=18"),
        ("classes=1000000000", "needs filters=1000000005 in the layer before, got 16"),
        ("classes=3\nnum=2\ncoords=3", "coords: expected at least 4"),
        ("classes=3\nnum=2\nanchors=1,0", "anchors: expected numbers above 0"),
        ("classes=0", "classes: expected at least 1"),
    ],
)
def test_invalid_options_are_refused(options, problem):
    assert problem in refusal(f"[region]\n{options}\n", SOURCE)


def test_suppression_is_the_default():
    assert graph_of(REGION, SOURCE).nms[0] == "default"
