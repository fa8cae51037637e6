"""HEIC, AVIF and JPEG 2000, which are read where the extra is installed."""

from contextlib import closing
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, features

from engine import extras
from engine.errors import ImageError
from engine.vision import extensions
from engine.vision.decode_pool import DecodePool
from engine.vision.image import read
from tests import needs

COLOURS = np.kron(
    np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8), np.ones((8, 8, 1))
)


def encoded(kind):
    if kind == "HEIF":
        needs.package("pillow_heif").register_heif_opener()
    elif not features.check({"AVIF": "avif", "JPEG2000": "jpg_2000"}[kind]):
        pytest.skip(f"Pillow was built without {kind}")
    file = BytesIO()
    options = {} if kind == "JPEG2000" else {"quality": 95}
    Image.fromarray(COLOURS.astype(np.uint8)).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["HEIF", "AVIF", "JPEG2000"])
def test_they_are_read_with_the_extra_only(kind, monkeypatch, tmp_path):
    path = tmp_path / "picture.bin"
    path.write_bytes(encoded(kind))
    monkeypatch.setattr(extensions, "has_extra", lambda: False)
    with pytest.raises(ImageError) as caught:
        read(path)
    assert str(caught.value).endswith(f"Run: {extras.command('formats')}")
    monkeypatch.setattr(extensions, "has_extra", lambda: True)
    difference = np.abs(read(path).pixels.astype(int) - COLOURS).mean()
    assert difference < (0.5 if kind == "JPEG2000" else 12)


@pytest.mark.parametrize("kind", ["AVIF", "JPEG2000"])
def test_a_damaged_one_or_a_large_one_is_one_line(kind, monkeypatch):
    monkeypatch.setattr(extensions, "has_extra", lambda: True)
    content = encoded(kind)
    with pytest.raises(ImageError, match="cannot be decoded"):
        read(content[: len(content) // 3])
    with pytest.raises(ImageError, match="expected at most 100 pixels, got 40 x 32"):
        read(content, max_pixels=100)


@pytest.mark.parametrize("kind", ["AVIF", "JPEG2000"])
def test_untrusted_ones_are_refused(kind):
    with (
        closing(DecodePool(1)) as pool,
        pytest.raises(
            ImageError, match=r"expected JPEG, .*, got an? (AVIF|JPEG 2000), which .* Convert it"
        ),
    ):
        read(encoded(kind), decoder=pool.read)
