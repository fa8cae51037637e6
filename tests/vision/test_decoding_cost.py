"""Small files that made the decoder loop for seconds or take gigabytes are refused or cheap."""

import io
import time

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError
from engine.vision import decode, image
from engine.vision.decoding_cost import affordable
from tools.load.hostile_pictures import COSTLY


@pytest.mark.parametrize("kind", COSTLY)
def test_costly_file_is_refused_at_once(kind):
    content = COSTLY[kind]()
    start = time.process_time()
    with pytest.raises(ImageError) as error:
        image.read(content)
    assert time.process_time() - start < 2
    assert "expected" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("kind", "bands"), [(b"P5", 1), (b"P6", 3)])
@pytest.mark.parametrize("maximum", [1, 254, 1023, 40_000, 65_535])
def test_scaled_samples_are_those_of_pillow(kind, bands, maximum):
    samples = np.random.default_rng(0).integers(0, maximum + 1, (6, 7, bands))
    samples = samples.astype(">u2" if maximum > 255 else np.uint8)
    content = kind + b"\n# by hand\n7 6\n%d\n" % maximum + samples.tobytes()
    got = decode.decode(content, "picture", max_pixels=100).image
    expected = Image.open(io.BytesIO(content))
    assert np.array_equal(np.asarray(got), np.asarray(expected))


def test_large_picture_with_an_odd_maximum_takes_no_python_loop():
    content = b"P6 3000 2000 254\n" + bytes(3000 * 2000 * 3)
    start = time.process_time()
    assert image.read(content).size == (3000, 2000)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGBA", "CMYK", "I", "I;16", "F"])
@pytest.mark.parametrize("size", [(2000, 1100), (1, 1_200_000), (1_200_000, 1)])
def test_large_pictures_are_converted_as_small_ones(mode, size, monkeypatch):
    values = np.random.default_rng(0).integers(0, 255, size[::-1], dtype=np.uint8)
    grey = Image.fromarray(values)
    given = grey.convert("P").convert("PA") if mode == "PA" else grey.convert(mode)
    if mode == "F":
        given = Image.fromarray(values.astype(np.float32) / 255)
    if mode == "P":
        given.info["transparency"] = 3
    got = image.read(given, channels=4).pixels
    monkeypatch.setattr("engine.vision.pixels._BAND_PIXELS", 1 << 30)
    assert np.array_equal(got, image.read(given, channels=4).pixels)


class _Counted(bytes):
    def count(self, *args):
        raise AssertionError("searched for scans")


def test_only_files_that_may_have_several_scans_are_searched_for_them():
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 30, 3), np.uint8))
    contents = []
    for is_progressive in (False, True):
        encoded = io.BytesIO()
        picture.save(encoded, "JPEG", progressive=is_progressive)
        contents.append(encoded.getvalue())
    sequential, progressive = contents
    affordable(_Counted(sequential), "picture")
    with pytest.raises(AssertionError, match="searched"):
        affordable(_Counted(progressive), "picture")
    one_of_three = sequential.replace(b"\xff\xda\x00\x0c\x03", b"\xff\xda\x00\x0c\x01")
    assert one_of_three != sequential
    with pytest.raises(AssertionError, match="searched"):
        affordable(_Counted(one_of_three), "picture")


def test_further_scans_of_a_sequential_picture_cost_nothing():
    encoded = io.BytesIO()
    Image.new("RGB", (1600, 1200)).save(encoded, "JPEG")
    content = encoded.getvalue()
    scan = content[content.index(b"\xff\xda") : -2]
    start = time.process_time()
    with pytest.raises(ImageError):
        image.read(content[:-2] + scan * 1000 + b"\xff\xd9")
    assert time.process_time() - start < 2
