"""JPEGs become the same pictures, warnings and errors with the extra `jpeg` as without it."""

import io
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError
from engine.vision import image, turbo_jpeg
from engine.vision.decode import decode

NOISE = np.random.default_rng(0).integers(0, 256, (9, 13, 3), dtype=np.uint8)
SAVED = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 1},
    "poor": {"quality": 10},
    "dpi": {"dpi": (72, 150)},
}
MUTATIONS = 400


def jpeg(mode="RGB", size=(97, 61), **options):
    buffer = io.BytesIO()
    picture = Image.fromarray(NOISE).resize(size, Image.Resampling.BICUBIC)
    picture.convert(mode).save(buffer, "JPEG", **{"quality": 90, **options})
    return buffer.getvalue()


@pytest.fixture
def decoded(monkeypatch):
    """Return a list of what the extra decoded: None for what it left to Pillow."""
    pytest.importorskip("simplejpeg")
    shapes = []

    def decode_whole(*given):
        pixels = turbo_jpeg.decode_whole(*given)
        shapes.append(None if pixels is None else pixels.shape)
        return pixels

    monkeypatch.setattr("engine.vision.decode.decode_whole", decode_whole)
    return shapes


def by_pillow(content, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.vision.decode.decode_whole", lambda *_: None)
        return read(content, **options)


def read(content, **options):
    try:
        found = image.read(content, **options)
    except ImageError as error:
        return str(error)
    values = found.pixels
    return values.shape, values.tobytes(), found.damage, found.orientation, found.dpi


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", SAVED)
def test_pixels_are_those_of_pillow(decoded, name, mode):
    for size in ((97, 61), (16, 16), (1, 1), (640, 3)):
        content = jpeg(mode, size, **SAVED[name])
        for channels in (1, 3):
            assert read(content, channels=channels) == by_pillow(content, channels=channels)
    width, height = size
    assert decoded[-1] == (height, width, 3 if mode == "RGB" else 1)
    assert None not in decoded


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_upright(decoded, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = jpeg(exif=exif)
    assert read(content) == by_pillow(content)
    assert read(content, orient=False) == by_pillow(content, orient=False)
    assert decoded == [(61, 97, 3)] * 2


def test_other_kinds_are_left_to_pillow(decoded):
    content = jpeg("CMYK")
    assert read(content) == by_pillow(content)
    assert decoded == [None]


def test_a_header_that_is_read_in_two_ways_costs_no_memory(decoded, monkeypatch):
    """Pillow says 97 x 61; a decoder that believed in something larger would write beyond."""
    content = jpeg()
    larger = jpeg(size=(970, 610))
    real = turbo_jpeg._decoder()
    monkeypatch.setattr(
        turbo_jpeg, "_decoder", lambda: lambda _, *given, **options: real(larger, *given, **options)
    )
    assert read(content) == by_pillow(content)
    assert decoded == [None]


def test_damage_is_told_as_by_pillow(decoded):
    """Whatever happens to a file, the picture, the warning and the error stay what they were."""
    chance = random.Random(0)
    contents = [jpeg(mode, **options) for mode in ("RGB", "L") for options in SAVED.values()]
    outcomes = set()
    for number in range(MUTATIONS):
        content = spoiled(chance.choice(contents), chance)
        is_lenient = number % 3 == 0
        found = read(content, lenient=is_lenient)
        assert found == by_pillow(content, lenient=is_lenient)
        outcomes.add((decoded[-1] is None if decoded else None, isinstance(found, str)))
    assert {(True, True), (True, False), (False, False)} <= outcomes


def spoiled(content, chance):
    place = chance.randrange(2, len(content))
    end = place + chance.randrange(1, 40)
    kind = chance.randrange(5)
    if kind == 0:
        return content[:place]
    if kind == 1:
        return content[:place] + content[end:]
    middle = (
        chance.randbytes(1),
        b"\xff" + bytes((chance.choice((0xC0, 0xC4, 0xD0, 0xD9, 0xDA, 0xE0)),)),
        chance.randbytes(end - place),
    )[kind - 2]
    return content[:place] + middle + content[place + len(middle) :]


def old_version(data, colorspace="RGB"):
    raise AssertionError(data, colorspace)


def other_numpy(*_, **__):
    raise ValueError("numpy.dtype size changed")


@pytest.mark.parametrize("found", [old_version, other_numpy, None])
def test_a_version_that_does_not_work_is_not_used(monkeypatch, found):
    module = None if found is None else SimpleNamespace(decode_jpeg=found)
    monkeypatch.setitem(sys.modules, "simplejpeg", module)
    turbo_jpeg._decoder.cache_clear()
    try:
        assert turbo_jpeg._decoder() is None
        assert turbo_jpeg.command_that_helps().startswith("pip install ")
        assert read(jpeg()) == by_pillow(jpeg())
    finally:
        turbo_jpeg._decoder.cache_clear()


def test_untrusted_pictures_are_decoded_by_pillow_alone(decoded):
    """Its use of memory is known, and limits on the process are made from it."""
    admitted = []
    found = decode(jpeg(), "picture", max_pixels=10**6, admit=admitted.append)
    assert found.pixels is None
    assert admitted == [found.image]
    assert not decoded
