"""Small files that made the decoder loop for seconds or take gigabytes are refused or cheap."""

import io
import struct
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError
from engine.vision import decode, image


def saved(picture, kind, **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def rle_bmp():
    info = struct.pack("<IiiHHIIiiII", 40, 49_000_000, 1, 1, 8, 1, 8, 0, 0, 1, 0)
    return b"BM" + struct.pack("<IHHI", 68, 0, 0, 58) + info + bytes(4) + b"\x01\0\0\0\0\0\0\1"


def png_of_chunks():
    small = saved(Image.new("L", (1, 1)), "PNG")
    return small[:33] + chunk(b"teSt", b"") * 300_000 + small[33:]


def tiff_of_strips(tag=273):
    count = 300_000
    entries = [(256, 3, 1, 1), (257, 4, 1, count), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    entries += [(tag, 1, count, 200), (278, 3, 1, 1)]
    head = b"II*\0" + struct.pack("<IH", 8, len(entries))
    packed = b"".join(struct.pack("<HHII", *each) for each in sorted(entries))
    return (head + packed + bytes(4)).ljust(200, b"\0") + bytes(count)


def segments(content):
    small = saved(Image.new("L", (8, 8)), "JPEG")
    return small[:2] + content + small[2:]


def gif_of_comments():
    small = saved(Image.new("L", (1, 1)), "GIF")
    start = small.index(b",")
    return small[:start] + b"!\xfe\x01x\0" * 200_000 + small[start:]


def scans():
    small = saved(Image.new("L", (6000, 6000)), "JPEG", progressive=True)
    start = small.rindex(b"\xff\xda")
    return small[:-2] + small[start:-2][:12] * 2000 + small[-2:]


HOSTILE = {
    "BMP of runs": rle_bmp,
    "PGM of comments": lambda: b"P5\n" + b"#\n" * 400_000 + b"1 1 255\n0",
    "PGM without a maximum": lambda: b"P5 1 1 " + b"#\n" * 400_000 + b"255\n0",
    "PGM in text": lambda: b"P2 7000 7000 255\n" + b"0 " * 100_000,
    "PGM of comments in text": lambda: b"P2 9 9 255\n" + b"#\n" * 100_000,
    "JPEG of fill bytes": lambda: segments(b"\xff" * 3_000_000),
    "JPEG of junk": lambda: segments(b"\0" * 3_000_000),
    "JPEG of segments": lambda: segments(b"\xff\xfe\0\2" * 300_000),
    "JPEG of lone markers": lambda: segments(b"\xff\xd0" * 1_000_000),
    "JPEG of scans": scans,
    "PNG of chunks": png_of_chunks,
    "GIF of comments": gif_of_comments,
    "GIF of junk": lambda: b"GIF89a" + bytes(3_000_000),
    "TIFF of strips": tiff_of_strips,
    "TIFF of tiles": lambda: tiff_of_strips(324),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_costly_file_is_refused_at_once(kind):
    content = HOSTILE[kind]()
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
    got, _ = decode.decode(content, "picture", max_pixels=100)
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
