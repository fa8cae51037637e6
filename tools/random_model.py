"""Random weights for a .cfg, and the threshold at which such a network finds as much as others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import engine
from engine.darknet import cfg as darknet_cfg
from engine.darknet import graph, random_weights, weights
from engine.vision.image import read
from engine.vision.resize import stretch


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
    rows = [stretch(read(picture), detector.size)[0][None] for picture in pictures]
    tables = [detector.candidates(row, threshold=0.0)[0][:, 5:] for row in rows]
    scores = np.sort(np.concatenate([table.ravel() for table in tables]))
    return round(float(scores[-found * len(rows)]), 4)
