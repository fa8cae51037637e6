"""Padded arrays of several results; tests/serve and tests/fleet read them over their protocols."""

import pytest

from engine.errors import ImageError
from engine.vision.image import read
from engine.vision.padded import padded_arrays


def test_an_error_does_not_say_picture_twice():
    with pytest.raises(ImageError) as caught:
        read(b"no picture")
    assert str(caught.value).startswith("picture: expected JPEG")
    (error,) = padded_arrays([caught.value], has_boxes=True)["error"].ravel()
    assert error.startswith(b"picture: expected JPEG")
