"""Functions that other processes import and call with a detector."""

import numpy as np

import engine

NOISE = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)


def look(files):
    """Load a detector in this process and return its boxes."""
    with engine.load(*files, device="cpu", threads=2, threshold=0.01) as detector:
        return detector(NOISE).boxes.tobytes()
