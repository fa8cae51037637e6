"""Networks made of others: the first layers of one, or one with its normalisation folded in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine.darknet import cfg
from engine.darknet.graph import Graph, build
from engine.darknet.layers.base import Weights
from engine.darknet.parts import fold_statistics
from engine.errors import InputError

_NORMALISING = ("batch_normalize", "cbn")


def cut(graph: Graph, count: int) -> Graph:
    """The network of the first `count` layers, for saving the weights of these alone."""
    if not 1 <= count <= len(graph.nodes):
        raise InputError(f"{graph.file}: expected 1 to {len(graph.nodes)} layers, got {count}")
    return replace(graph, nodes=graph.nodes[:count])


def fuse(path: str | Path, arrays: Sequence[Weights]) -> tuple[str, Graph, list[Weights]]:
    """The .cfg at `path` without batch_normalize, its network, and arrays of the same outputs.

    [batchnorm] stays: it is a layer of its own.
    """
    text = cfg.read_text(path)
    name, folder = Path(path).name, Path(path).parent
    dropped = {
        option.line
        for section in cfg.parse(text, name=name)
        for option in section.options
        if option.key in _NORMALISING
    }
    lines = enumerate(cfg.lines_of(text), start=1)
    fused = "\n".join(line for number, line in lines if number not in dropped)
    graph = build(cfg.parse(fused, name=name, folder=folder))
    folded = [
        fold_statistics(each, filters=node.layer.filter_axis)
        for node, each in zip(graph.nodes, arrays, strict=True)
    ]
    return fused, graph, folded
