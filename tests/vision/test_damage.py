"""Damaged pictures that decoders accept are read, and one line says what is wrong."""

import io
import logging
import struct
import zlib
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError
from engine.vision import image
from engine.vision.decode_pool import DecodePool

NOISE = np.random.default_rng(0).integers(1, 256, (32, 48, 3), dtype=np.uint8)
RANDOM = np.random.default_rng(1).bytes(3000)


def png(mode="RGB", **changes):
    """Return a PNG of which a part of the rows was written."""
    picture = (
        Image.fromarray(NOISE).convert(mode)
        if mode != "I;16"
        else Image.fromarray(
            np.random.default_rng(0).integers(256, 65536, (32, 48), dtype=np.uint16)
        )
    )
    return with_pixels(saved(picture, "PNG"), **changes)


def with_pixels(content, *, share=0.5):
    chunks, place = [], 8
    while place < len(content):
        (size,) = struct.unpack_from(">I", content, place)
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += 12 + size
    pixels = zlib.decompress(b"".join(data for name, data in chunks if name == b"IDAT"))
    pixels = zlib.compress(pixels[: int(len(pixels) * share)])
    kept = [(name, data) for name, data in chunks if name not in (b"IDAT", b"IEND")]
    return content[:8] + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in [*kept, (b"IDAT", pixels), (b"IEND", b"")]
    )


def saved(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def jpeg(**options):
    picture = Image.fromarray(NOISE).resize((300, 300))
    return saved(picture, "JPEG", quality=90, **options)


def overwritten(content):
    middle = len(content) // 2
    return content[:middle] + RANDOM + content[middle + len(RANDOM) :]


def warnings_of(content, caplog):
    caplog.clear()
    with caplog.at_level(logging.WARNING, "engine"):
        picture = image.read(content)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ([f"picture: {picture.damage}"] if picture.damage else [])
    return lines


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16"])
def test_a_png_with_half_its_rows_is_read_with_a_warning(mode, caplog):
    (line,) = warnings_of(png(mode), caplog)
    assert line == "picture: has 50 % of its pixels; the missing part is black or empty"
    assert not warnings_of(png(mode, share=1), caplog)


@pytest.mark.parametrize("lenient", [False, True])
def test_a_png_cut_in_half_is_refused(lenient):
    whole = saved(Image.fromarray(NOISE), "PNG")
    with pytest.raises(ImageError, match=r"incomplete, damaged .*image file is truncated"):
        image.read(whole[: len(whole) // 2], lenient=lenient)


def test_a_black_picture_has_no_warning(caplog):
    for size in ((1, 1), (48, 32), (5, 2)):
        assert not warnings_of(saved(Image.new("RGB", size), "PNG"), caplog)


PASSES = (
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)),
    (0, 1, 1, 2),
)


def interlaced(width, height, passes=PASSES):
    """Return a grey PNG in seven passes, whose pixels are 200."""
    content = b""
    for x, y, x_step, y_step in passes:
        columns, rows = len(range(x, width, x_step)), len(range(y, height, y_step))
        content += (b"\0" + b"\xc8" * columns) * rows if columns else b""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 1)
    pixels = zlib.compress(content)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    )


@pytest.mark.parametrize("size", [(9, 9), (8, 8), (1, 1), (3, 2), (1, 7)])
def test_an_interlaced_png_is_counted_in_passes(size, caplog):
    assert not warnings_of(interlaced(*size), caplog)
    if size[1] > 1:
        assert warnings_of(interlaced(*size, PASSES[:-1]), caplog)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"optimize": True}])
def test_a_jpeg_overwritten_in_the_middle_is_read_with_a_warning(options, caplog):
    whole = jpeg(**options)
    assert not warnings_of(whole, caplog)
    (line,) = warnings_of(overwritten(whole), caplog)
    assert line == (
        "picture: is damaged: its data break off in the middle, and the rest may be wrong"
    )


def gradient(mode="RGB"):
    """Return a picture whose last MCU is one pixel wide and high if chroma has half the size."""
    picture = Image.fromarray(
        np.linspace(40, 240, 145 * 161 * 3).astype(np.uint8).reshape(145, 161, 3)
    )
    picture.paste(Image.fromarray(NOISE).resize((120, 140)))
    return picture.convert(mode)


def shortened(content, cut):
    return content[: -len(END) - cut] + END


END = b"\xff\xd9"
GREY = "picture: lacks data before its end: the missing part is grey"


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"restart_marker_blocks": 4}])
def test_a_jpeg_that_ends_early_is_read_with_a_warning(mode, options, caplog):
    whole = saved(gradient(mode), "JPEG", quality=90, **options)
    for content in (whole, whole + whole, whole[:-2] + b"\xff" * 9 + whole[-2:]):
        assert not warnings_of(content, caplog)
    for cut in (50, 500, 2000):
        assert warnings_of(shortened(whole, cut) + RANDOM, caplog) == [GREY]


def test_a_jpeg_that_ends_between_restart_intervals_is_read_with_a_warning(caplog):
    whole = jpeg(restart_marker_blocks=39)
    places = [place for place in range(len(whole) - 1) if whole[place : place + 2] in RESTARTS]
    if not places:
        pytest.skip("Pillow writes restart markers from 10.2 on")
    assert len(places) > len(RESTARTS)
    for end in (place + each for place in places for each in range(3)):
        assert warnings_of(whole[:end] + END, caplog) == [GREY]


RESTARTS = [bytes((0xFF, 0xD0 + number)) for number in range(8)]


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}])
def test_a_grey_corner_is_not_damage(mode, options, caplog):
    for size in ((1, 1), (16, 16), (49, 33), (300, 200)):
        picture = Image.new("RGB", size, (128, 128, 128))
        picture.paste(Image.fromarray(NOISE), (-20, -10))
        picture = Image.new(mode, size, (0, 0, 0, 127)) if mode == "CMYK" else picture.convert(mode)
        assert not warnings_of(saved(picture, "JPEG", **options), caplog)


def test_what_follows_the_end_of_a_jpeg_is_not_damage(caplog):
    assert not warnings_of(jpeg() + RANDOM, caplog)


def test_restart_markers_and_comments_are_not_damage(caplog):
    plain = jpeg(restart_marker_blocks=3, comment=bytes(range(256)) * 4)
    if b"\xff\xdd" not in plain:
        pytest.skip("Pillow writes restart markers from 10.2 on")
    assert b"\xff\xd7" in plain
    assert not warnings_of(plain, caplog)


def test_processes_tell_of_damage(caplog):
    with closing(DecodePool(1)) as pool:
        picture = image.read(png(), decoder=pool.read)
    assert picture.damage == image.read(png()).damage
    assert picture.damage
