"""Derive new weights: keep the first layers, fold batch normalisation, or average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from engine.darknet import cfg
from engine.darknet.blocks import fold_batch_norm
from engine.darknet.graph import Graph, build
from engine.darknet.layers.base import Weights
from engine.darknet.layers.region import Region
from engine.darknet.layers.softmax import Softmax
from engine.darknet.weights import load
from engine.errors import InputError, WeightsError
from engine.files.naming import shown

_BATCH_NORM_KEYS = ("batch_normalize", "cbn")


def cut(graph: Graph, count: int) -> Graph:
    """Return the network of the first `count` layers, so that only their weights are saved."""
    if not 1 <= count <= len(graph.nodes):
        raise InputError(f"{graph.file}: expected 1 to {len(graph.nodes)} layers, got {count}")
    return replace(graph, nodes=graph.nodes[:count])


def fuse(path: str | Path, arrays: Sequence[Weights]) -> tuple[str, Graph, list[Weights]]:
    """Fold the batch normalisation of the .cfg at `path` into its weights.

    Return the new .cfg text, its network and its arrays. A [batchnorm] section stays: it is a layer
    of its own.
    """
    text = cfg.read_text(path)
    name, folder = Path(path).name, Path(path).parent
    dropped_lines = {
        option.line
        for section in cfg.parse(text, name=name)
        for option in section.options
        if option.key in _BATCH_NORM_KEYS
    }
    lines = enumerate(cfg.lines_of(text), start=1)
    fused = "\n".join(line for number, line in lines if number not in dropped_lines)
    graph = build(cfg.parse(fused, name=name, folder=folder))
    folded = [
        fold_batch_norm(each, filters=node.layer.filter_axis)
        for node, each in zip(graph.nodes, arrays, strict=True)
    ]
    _require_finite(graph, folded, "with batch normalisation folded into them")
    return fused, graph, folded


def require_trees(graph: Graph, folder: Path) -> None:
    """Raise an InputError unless a copy of the .cfg in `folder` finds the same class trees there.

    The copy cannot name them by a path, because a .cfg that leaves its folder is refused.
    """
    for node in graph.nodes:
        layer = node.layer
        if not isinstance(layer, (Region, Softmax)) or layer.tree is None:
            continue
        tree = layer.context.find_tree(layer.tree, layer.at("tree"))
        there = folder / layer.tree
        if not there.is_file() or tree.read_bytes() != there.read_bytes():
            raise InputError(
                f"{layer.at('tree')}: {shown(tree)}: expected the same file in the folder of the "
                f"new .cfg, {shown(folder)}. Copy it there first"
            )


def average(graph: Graph, files: Sequence[str | Path]) -> list[Weights]:
    """Return the mean of the arrays of several .weights files for one network.

    Darknet sums in float32 in the order of the files, and takes all but the arrays of
    convolutional and connected layers from the first file; here every array is averaged.
    """
    first, *others = files
    sums = [{name: each.copy() for name, each in layer.items()} for layer in load(first, graph)]
    for file in others:
        for layer, more in zip(sums, load(file, graph), strict=True):
            for name, values in more.items():
                with np.errstate(over="ignore", invalid="ignore"):
                    layer[name] += values
    _require_finite(graph, sums, f"in the sum of {len(files)} files")
    share = np.float32(1 / len(files))
    return [{name: each * share for name, each in layer.items()} for layer in sums]


def _require_finite(graph: Graph, arrays: Sequence[Weights], when: str) -> None:
    """Raise a WeightsError if a number to be written exceeds float32's range."""
    for node, layer in zip(graph.nodes, arrays, strict=True):
        for name, values in layer.items():
            bad = values.size - np.count_nonzero(np.isfinite(values))
            if bad:
                raise WeightsError(
                    f"{graph.file}: layer {node.index} [{node.kind}] {name}: {bad} of "
                    f"{values.size} numbers are beyond the range of float32 {when}. "
                    "Did training diverge?"
                )
