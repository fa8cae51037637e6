"""tools/codes/calibrate.py: a chosen score becomes 0.25, boxes stay where they are."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import engine
from engine import shipped
from engine.vision import image, resize

ROOT = Path(__file__).parents[1]


def test_boxes_stay_and_the_chosen_score_becomes_a_quarter(tmp_path):
    model = shipped.default_model()
    picture = image.read(ROOT / "docs/parcel.jpg")
    moved = tmp_path / "moved.weights"
    command = ["tools/codes/calibrate.py", model.weights, "--threshold", "0.5", "--output", moved]
    subprocess.run([sys.executable, *command], check=True, cwd=ROOT)
    before, after = (_candidates(model, path, picture) for path in (model.weights, moved))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    odds = before[:, 4] / (1 - before[:, 4]) / 3  # from even odds to one in three
    np.testing.assert_allclose(after[:, 4], odds / (1 + odds), rtol=1e-3, atol=1e-6)


def _candidates(model, weights, picture):
    with engine.load(model.cfg, weights, names=model.names, device="cpu") as detector:
        scaled, _ = resize.stretch(picture, detector.size)
        (rows,) = detector.candidates(scaled[None], threshold=0)
    return rows
