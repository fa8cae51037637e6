"""Which JPEGs a card may decode: whatever Pillow would refuse, warn about or turn is known."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.vision import damage
from engine.vision.decode import decode
from engine.vision.plain_jpeg import PlainJpeg, plain_jpeg

XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


def picture(size: tuple[int, int] = (61, 43), mode: str = "RGB") -> Image.Image:
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size).convert(mode)


def jpeg(image: Image.Image | None = None, **options: Any) -> bytes:
    out = BytesIO()
    (image or picture()).save(out, "JPEG", **options)
    return out.getvalue()


def exif(orientation: int, *, order: str = "<", **others: Any) -> bytes:
    made = Image.Exif()
    made.endian = order
    made[0x0110] = "a camera"
    made[0x0112] = orientation
    made[0x8769] = {0x9003: "2026:01:01 00:00:00"}
    return made.tobytes()


def with_segment(content: bytes, marker: int, segment: bytes) -> bytes:
    length = (len(segment) + 2).to_bytes(2, "big")
    return content[:2] + bytes([0xFF, marker]) + length + segment + content[2:]


def changed(content: bytes, place: int, values: bytes) -> bytes:
    return content[:place] + values + content[place + len(values) :]


def frame_of(content: bytes) -> int:
    return content.index(b"\xff\xc0")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (jpeg(), (61, 43, 3, 1)),
        (jpeg(subsampling=0), (61, 43, 3, 1)),
        (jpeg(subsampling=1), (61, 43, 3, 1)),
        (jpeg(optimize=True, quality=3), (61, 43, 3, 1)),
        (jpeg(picture(mode="L")), (61, 43, 1, 1)),
        (jpeg(picture((1, 1))), (1, 1, 3, 1)),
        (jpeg(picture((3000, 1))), (3000, 1, 3, 1)),
        (jpeg(restart_marker_rows=1), (61, 43, 3, 1)),
        (jpeg(picture((200, 200)), restart_marker_blocks=1), (200, 200, 3, 1)),
        (jpeg(comment="what it shows"), (61, 43, 3, 1)),
        (jpeg(exif=exif(6)), (61, 43, 3, 6)),
        (jpeg(exif=exif(3, order=">")), (61, 43, 3, 3)),
        (jpeg(exif=exif(8), xmp=XMP), (61, 43, 3, 8)),
        (with_segment(jpeg(), 0xEE, b"Adobe\0d\0\0\0\0\x01"), (61, 43, 3, 1)),
    ],
)
def test_usual_files_are_recognised(content: bytes, expected: tuple[int, ...]) -> None:
    assert plain_jpeg(content) == PlainJpeg(content, *expected)


def test_what_follows_the_end_is_cut_off() -> None:
    content = jpeg()
    for rest in (b"\0", bytes(5000), jpeg(), b"\xff", b"\xff\xda"):
        assert plain_jpeg(content + rest) == PlainJpeg(content, 61, 43, 3, 1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_that_of_pillow(orientation: int) -> None:
    for order in "<>":
        content = jpeg(exif=exif(orientation, order=order))
        found = plain_jpeg(content)
        assert found is not None
        assert found.orientation == decode(content, "", max_pixels=10**6).orientation == orientation


def whole_exif(content: bytes) -> bytes:
    return with_segment(with_segment(content, 0xE1, exif(6)), 0xE1, exif(3))


UNUSUAL = {
    "nothing": b"",
    "text": b"hello",
    "a start only": b"\xff\xd8",
    "a PNG": b"\x89PNG\r\n\x1a\n",
    "progressive": jpeg(progressive=True),
    "CMYK": jpeg(picture(mode="CMYK")),
    "RGB": jpeg(keep_rgb=True),
    "4:1:1": changed(jpeg(subsampling=1), frame_of(jpeg(subsampling=1)) + 11, b"\x41"),
    "RGB by Adobe": with_segment(jpeg(), 0xEE, b"Adobe\0d\0\0\0\0\0"),
    "a short Adobe": with_segment(jpeg(), 0xEE, b"Adobe\0d"),
    "two EXIFs": whole_exif(jpeg()),
    "a broken EXIF": with_segment(jpeg(), 0xE1, b"Exif\0\0MM\0*\0\0"),
    "an EXIF that ends early": jpeg(exif=exif(6)[:40]),
    "an orientation in XMP": jpeg(xmp=XMP),
    "an orientation of 9": jpeg(exif=exif(9)),
    "12 bits": changed(jpeg(), frame_of(jpeg()) + 4, b"\x0c"),
    "no height": changed(jpeg(), frame_of(jpeg()) + 5, b"\0\0"),
    "extended": changed(jpeg(), frame_of(jpeg()), b"\xff\xc1"),
    "arithmetic": changed(jpeg(), frame_of(jpeg()), b"\xff\xc9"),
    "other components": changed(jpeg(), frame_of(jpeg()) + 10, b"R"),
    "no end": jpeg()[:-2],
    "half": jpeg()[: len(jpeg()) // 2],
    "no scan": jpeg()[: jpeg().index(b"\xff\xda")],
    "two frames": jpeg().replace(b"\xff\xc4", jpeg()[frame_of(jpeg()) :][:19] + b"\xff\xc4", 1),
    "4:4:0": changed(jpeg(subsampling=1), frame_of(jpeg(subsampling=1)) + 11, b"\x12"),
    "very many segments": jpeg().replace(b"\xff\xdb", b"\xff\xfe\0\2" * 70 + b"\xff\xdb", 1),
    "wide tables": changed(jpeg(), jpeg().index(b"\xff\xdb") + 4, b"\x10"),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_other_files_are_left_to_the_cpu(kind: str) -> None:
    assert plain_jpeg(UNUSUAL[kind]) is None


def test_a_restart_that_is_missing_is_seen() -> None:
    content = jpeg(picture((300, 300)), restart_marker_rows=1)
    places = [found.start() for found in re.finditer(rb"\xff[\xd0-\xd7]", content)]
    assert len(places) > 3
    assert plain_jpeg(content) is not None
    assert plain_jpeg(content[: places[0]] + content[places[1] :]) is None


def noise(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(content))
    for place in range(start, min(start + rng.choice((1, 4, 40)), len(content))):
        content[place] = rng.randrange(256)


def cut(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(2, len(content))
    del content[start : start + rng.choice((1, 30, 10**6))]


def zeros(content: bytearray, rng: random.Random) -> None:
    start = rng.randrange(2, len(content))
    content[start : start + 20] = bytes(len(content[start : start + 20]))


@pytest.mark.parametrize("spoil", [noise, cut, zeros])
def test_a_damaged_file_is_accepted_only_if_its_structure_shows_no_damage(
    spoil: Callable[[bytearray, random.Random], None],
) -> None:
    whole = jpeg(picture((90, 70)), exif=exif(6))
    accepted = 0
    for seed in range(400):
        content = bytearray(whole)
        spoil(content, random.Random(seed))
        found = plain_jpeg(bytes(content))
        if found is None:
            continue
        accepted += 1
        image, orientation, pixels = decode(bytes(content), "", max_pixels=10**9)
        seen = damage.describe(bytes(content), image if pixels is None else None)
        assert seen is None or "the missing part is grey" in seen  # found by decoding again
        assert (*image.size, orientation) == (found.width, found.height, found.orientation)
        assert image.mode == {1: "L", 3: "RGB"}[found.channels]
    assert accepted > 20
