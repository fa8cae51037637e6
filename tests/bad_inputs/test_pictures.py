"""54 to 64: pictures, as files and as arrays."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

import engine
from engine.vision import picture_limits
from tests.bad_inputs.small import short

SMALL = Image.effect_noise((24, 16), 80).convert("RGB")


def saved(kind="PNG", image=SMALL, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_header(width, height):
    def chunk(name, content):
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(bytes(9999)))


def gif_of(frames):
    """Return a GIF of many frames of one pixel."""
    frame = b",\0\0\0\0\1\0\1\0\0\2\2D\1\0"
    return b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff" + frame * frames + b";"


def tiff_with_tag(count):
    """Return a TIFF whose only tag declares `count` numbers."""
    return b"II*\0\x08\0\0\0\1\0" + struct.pack("<HHII", 273, 4, count, 26) + bytes(4)


def oriented(number):
    exif = Image.Exif()
    exif[0x0112] = number
    return saved("JPEG", exif=exif)


BAD_PICTURES = [
    (54, b"", "got an empty file"),
    (54, saved("JPEG")[:400], "picture: "),
    (54, saved()[:200], "picture: "),
    (54, np.random.default_rng(0).bytes(5000), "got something else"),
    (55, png_header(50_000, 50_000), "at most 89478485 pixels, got 50000 x 50000"),
    (55, png_header(1, 100_000_000), "at most 89478485 pixels"),
    (55, tiff_with_tag(2**31), "picture: "),
    (55, b"SIMPLE  =                    T", "got a FITS"),
    (55, b"\x1f\x8b\x08" + bytes(50), "got a gzip archive"),
    (55, b"%!PS-Adobe-3.0 EPSF-3.0\n", "got an EPS"),
    (55, b"%PDF-1.7\n", "got a PDF"),
    (64, b"\0\0\0\x18ftypheic" + bytes(50), "got a HEIC"),
    (64, b"\0\0\0\x18ftypavif" + bytes(50), "got an AVIF"),
]

GOOD_PICTURES = [
    (54, saved("BMP")),
    (55, gif_of(100_000)),
    *((56, saved(image=SMALL.convert(mode))) for mode in ("1", "L", "LA", "P", "RGBA")),
    *((56, saved("TIFF", SMALL.convert(mode))) for mode in ("CMYK", "YCbCr", "LAB", "PA")),
    (56, saved("PNG", SMALL.quantize(8), transparency=3)),
    (56, saved("JPEG", SMALL.convert("CMYK"))),
    (56, saved(image=Image.fromarray(np.full((9, 9), 40_000, np.uint16)))),
    (56, saved("TIFF", Image.fromarray(np.full((9, 9), 0.5, np.float32)))),
    *((57, oriented(number)) for number in range(10)),
    (57, saved("JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")),
    *((58, saved(kind, save_all=True, append_images=[SMALL] * 3)) for kind in ("GIF", "WEBP")),
    *((58, saved(kind, save_all=True, append_images=[SMALL] * 3)) for kind in ("PNG", "TIFF")),
    (59, saved(image=Image.new("L", (1, 1)))),
    (59, saved(image=Image.new("L", (1, 5000)))),
    (59, saved(image=Image.new("L", (5000, 1)))),
    (64, saved(icc_profile=b"not a profile", gamma=0.45)),
    (64, saved("JPEG", progressive=True)),
]


@pytest.mark.parametrize(("kind", "data", "message"), BAD_PICTURES, ids=short)
def test_a_bad_picture_is_refused(refuses, file, kind, data, message):
    refuses(message, shown=file("bad.jpg", data), status=1)


@pytest.mark.parametrize(("kind", "data"), GOOD_PICTURES, ids=short)
def test_unusual_picture_is_read(detect, file, kind, data):
    assert detect(shown=file("odd.jpg", data)) == (0, "")


ARRAYS = [
    (59, np.zeros((0, 9, 3), np.uint8), "at least 1 x 1"),
    (59, np.zeros((1, 1, 3), np.uint8), None),
    (60, np.zeros((3, 40, 50), np.uint8), "Channels come last"),
    (60, np.zeros((9, 9, 2), np.uint8), r"got \(9, 9, 2\)"),
    (60, np.zeros((2, 9, 9, 3), np.uint8), "pass a list of arrays"),
    (60, np.full((9, 9), 255.0, np.float32), "floats in 0..1"),
    (60, np.full((9, 9), np.nan, np.float32), "floats in 0..1"),
    (60, np.zeros((9, 9, 3), object), "object"),
    (60, np.zeros((9, 9, 3), complex), "complex"),
    (60, np.broadcast_to(np.uint8(0), (50_000, 50_000, 3)), "at most"),
    (60, np.zeros((9, 9), bool), None),
    (60, np.zeros((9, 9, 4), np.uint8), None),
    (60, np.zeros((9, 9, 3), ">u2")[::-1, ::2], None),
    (61, io.StringIO("text"), "text mode"),
    (61, b"street.png", "got something else"),
    (61, io.BytesIO(saved()), None),
]


@pytest.mark.parametrize(("kind", "source", "message"), ARRAYS, ids=short)
def test_arrays_and_files_are_pictures_or_refused(tiny_detector, kind, source, message):
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as detector:
        if message is None:
            detector(source)
        else:
            with pytest.raises(engine.ImageError, match=message):
                detector(source)


@pytest.mark.parametrize(
    "name",
    [
        "stra\u00dfe.png",
        "cafe\u0301.png",
        "\U0001f415.png",
        os.fsdecode(b"caf\xe9.png"),
        "a\nb.png",
        "-o.png",
        "a%20b.png",
        "~x.png",
        "CON",
    ],
    ids=ascii,
)
def test_62_unusual_name_is_accepted(detect, picture, monkeypatch, name):
    monkeypatch.chdir(picture.parent)
    picture.rename(name)
    assert detect(shown=name) == (0, "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("~/street.png", "which only a shell expands"),
        ("file://elsewhere/street.png", "expected a path, got an address"),
        (r"\\host\share\street.png", "No such file"),
        ("x" * 4096, "cannot be read"),
        ("a\0b", "cannot be read"),
    ],
    ids=short,
)
def test_62_dangling_path_is_refused(refuses, name, message):
    refuses(message, shown=name, status=1)


def test_63_outputs_never_replace_inputs_or_each_other(detect, picture):
    before = picture.read_bytes()
    for more in ([], ["--overwrite"]):
        status, line = detect("-o", str(picture.parent), *more)
        assert (status, "is a folder that pictures are read from" in line) == (2, True)
    out = str(picture.parent / "out")
    assert detect("-o", out) == (0, "")
    status, line = detect("-o", out)
    assert (status, "street.png exists already" in line) == (2, True)
    assert picture.read_bytes() == before
    assert len(list(picture.parent.rglob("street*.png"))) == 2


@pytest.mark.parametrize("folder", ["/proc/none/out", "/dev/null/out"])
def test_63_folder_that_cannot_be_created_is_refused(refuses, folder):
    refuses(folder, "-o", folder, status=2)


@pytest.mark.parametrize(
    ("name", "most", "message"),
    [("PIXELS", 24 * 16 - 1, "at most 383 pixels, got 24 x 16"), ("BYTES", 99, "at most 99 bytes")],
)
def test_55_a_lowered_ceiling_is_respected(detect, refuses, file, monkeypatch, name, most, message):
    path = file("a.png", saved())
    assert detect(shown=path) == (0, "")
    monkeypatch.setattr(picture_limits, name, most)
    refuses(message, shown=path, status=1)
