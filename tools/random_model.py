"""Random weights for a .cfg, and a threshold that leaves a realistic number of boxes."""

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

_CELLS_PER_BOX = 10


def save(cfg: Path, folder: Path) -> Path:
    """Write random weights and return their path."""
    path = folder / f"{cfg.stem}.weights"
    network = graph.build(darknet_cfg.read(cfg))
    weights.save(path, network, random_weights.arrays(network))
    return path


def threshold(detector: engine.Detector, pictures: Iterable[Any], count: int) -> float:
    """Return a threshold that leaves about `count` boxes in a picture before NMS.

    At the default threshold, random weights find nearly every class in nearly every cell, so that
    NMS would dominate the time.
    """
    images = [stretch(read(picture), detector.size)[0][None] for picture in pictures]
    rows = [detector.candidates(each, threshold=0.0)[0] for each in images]
    return round(threshold_for(np.concatenate(rows), count * len(rows)), 4)


def threshold_for(rows: NDArray[np.float32], count: int) -> float:
    """Return a threshold for candidates that leaves about `count` boxes.

    At most ten times as many cells have an objectness above it, as in a trained network: if all
    cells have a similar objectness, the scores alone would let every cell pass.
    """
    scores, objectness = rows[:, 5:], rows[:, 4]
    objectness = objectness[objectness < 1]  # it is 1 everywhere for layers without objectness
    tops = [np.sort(scores, axis=None)[-count:], np.sort(objectness)[-_CELLS_PER_BOX * count :]]
    return float(max(each[0] for each in tops if each.size))
