"""tools/codes/calibrate.py maps a chosen score to 0.25 and keeps the boxes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import bundled
from engine.vision import image, resize

ROOT = Path(__file__).parents[1]


EVEN, TWO_IN_FIVE = 1 / 3, 1 / 2  # factors from the odds of 0.5 and 0.4 to those of 0.25


@pytest.mark.slow
def test_boxes_stay_and_the_chosen_score_becomes_a_quarter(tmp_path):
    before, after = _calibrated(tmp_path, "--threshold", "0.5")
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    _assert_odds(after, _odds(before) * EVEN)


@pytest.mark.slow
def test_heads_may_have_their_own_scores(tmp_path):
    before, after = _calibrated(tmp_path, "--threshold", "0.4", "0.5", "0.5", "0.5")
    factors = np.full(len(before), EVEN)
    factors[: 3 * 8 * 8] = TWO_IN_FIVE
    _assert_odds(after, _odds(before) * factors)


def test_number_of_scores_must_be_that_of_the_heads(tmp_path):
    command = ["tools/codes/calibrate.py", "any.weights", "--threshold", "0.4", "0.5"]
    command += ["--output", tmp_path / "moved.weights"]
    done = subprocess.run(
        [sys.executable, *command], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "expected 1 or 4 values, got 2" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("score", ["0", "1", "nan"])
def test_a_score_that_nothing_has_is_refused(tmp_path, score):
    command = ["tools/codes/calibrate.py", "any.weights", "--threshold", score]
    command += ["--output", tmp_path / "moved.weights"]
    done = subprocess.run(
        [sys.executable, *command], check=False, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert f"--threshold: expected a score above 0 and below 1, got {score}\n" in done.stderr


def _calibrated(tmp_path, *options):
    """Return all candidates of the first picture before and after calibration."""
    model = bundled.default_model()
    picture = image.read(ROOT / "docs/parcel.jpg")
    moved = tmp_path / "moved.weights"
    command = ["tools/codes/calibrate.py", model.weights, *options, "--output", moved]
    subprocess.run([sys.executable, *command], check=True, cwd=ROOT)
    return (_candidates(model, path, picture) for path in (model.weights, moved))


def _odds(rows):
    return rows[:, 4] / (1 - rows[:, 4])


def _assert_odds(rows, odds):
    np.testing.assert_allclose(rows[:, 4], odds / (1 + odds), rtol=1e-3, atol=1e-6)


def _candidates(model, weights, picture):
    with engine.load(model.cfg, weights, names=model.names, device="cpu") as detector:
        scaled, _ = resize.stretch(picture, detector.size)
        (rows,) = detector.candidates(scaled[None], threshold=0)
    return rows
