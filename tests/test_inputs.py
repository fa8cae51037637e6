"""engine/inputs.py: arrays of one shape take a faster path with the same result."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import ImageError
from engine.inputs import Intake, Prepared
from engine.plan.shapes import Shape

INTAKE = Intake(Shape(3, 8, 10), "letterbox", scales=False)
SHAPE = (6, 5, 3)


def array(seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, SHAPE, np.uint8)


@pytest.mark.parametrize(
    "other",
    [
        array(9),
        array(9)[::-1],
        array(9).transpose(1, 0, 2),
        array(9)[:4],
        array(9) / 255,
        array(9).tobytes(),
        ImageError("nothing there"),
        np.zeros((6, 5), np.uint8),
    ],
    ids=["alike", "upside down", "lying", "less", "floats", "bytes", "error", "grey"],
)
def test_a_batch_equals_its_pictures_prepared_singly(other: Any) -> None:
    sources = [array(0), other, array(1)]
    batch = INTAKE.prepare(sources)
    singly = [INTAKE.prepare([each, b"", each]) for each in sources]  # b"" prevents the faster path
    expected = [each.pictures[0] for each in singly]
    assert [type(each) for each in batch.pictures] == [type(each) for each in expected]
    read = [each for each in batch.pictures if isinstance(each, Prepared)]
    wanted = [each for each in expected if isinstance(each, Prepared)]
    assert len(read) == len(batch.placed) >= 2
    assert all(each.row is None for each in batch.placed)
    for got, want, placed in zip(read, wanted, batch.placed, strict=True):
        assert got.placement == want.placement == placed.placement
        assert placed.pixels is got.picture.pixels
        assert placed.pixels.flags.c_contiguous
        np.testing.assert_array_equal(placed.pixels, want.picture.pixels)


def test_too_many_pixels_are_refused_in_equal_arrays() -> None:
    batch = INTAKE.prepare([array(0), array(1)], max_pixels=29)
    assert [type(each) for each in batch.pictures] == [ImageError] * 2


def test_an_error_that_is_kept_keeps_no_other_picture(tmp_path: Path) -> None:
    pixels = np.zeros((4, 5, 3), np.uint8)
    gone = weakref.ref(pixels)
    (tmp_path / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    error = INTAKE.prepare([pixels, str(tmp_path / "cut.png")]).pictures[1]
    del pixels
    assert isinstance(error, ImageError)
    assert error.__cause__ is not None
    assert gone() is None
