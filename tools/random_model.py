"""Random weights for a .cfg, and the threshold at which such a network finds as much as others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import engine
from engine.darknet import cfg as darknet_cfg
from engine.darknet import graph, random_weights, weights
from engine.vision.image import read
from engine.vision.resize import stretch

_CELLS = 10  # for each box


def save(cfg: Path, folder: Path) -> Path:
    """The file of weights."""
    path = folder / f"{cfg.stem}.weights"
    network = graph.build(darknet_cfg.read(cfg))
    weights.save(path, network, random_weights.arrays(network))
    return path


def threshold(detector: engine.Detector, pictures: Iterable[Any], found: int) -> float:
    """One that leaves about so many boxes in a picture before suppression.

    At the default one nearly every cell finds nearly every class, and nothing but that is timed.
    """
    given = [stretch(read(picture), detector.size)[0][None] for picture in pictures]
    rows = [detector.candidates(each, threshold=0.0)[0] for each in given]
    return round(least(np.concatenate(rows), found * len(rows)), 4)


def least(rows: NDArray[np.float32], found: int) -> float:
    """Of candidates: a threshold with about so many boxes, and few more cells that may have one.

    Trained networks are sure of few cells. Where those of this one are alike in that, but its
    classes are not, all of them are above what leaves so many boxes.
    """
    scores, certain = rows[:, 5:], rows[:, 4]
    unsure = certain[certain < 1]  # some layers are sure of all, and ask their classes alone
    ends = [np.sort(scores, axis=None)[-found:], np.sort(unsure)[-_CELLS * found :]]
    return float(max(each[0] for each in ends if each.size))
