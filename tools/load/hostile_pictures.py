"""Small files that keep a decoder busy for long or take much memory."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

Maker = Callable[[], bytes]


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def compressed_text(mebibytes: int) -> bytes:
    """Return a small PNG that describes itself in many megabytes."""
    text = zlib.compress(bytes((1 << 20) - 10))
    chunks = (chunk(b"zTXt", b"%d\0\0" % number + text) for number in range(mebibytes))
    small = saved(Image.new("RGB", (40, 30)), "PNG")
    return small[:33] + b"".join(chunks) + small[33:]


def rle_bmp() -> bytes:
    info = struct.pack("<IiiHHIIiiII", 40, 49_000_000, 1, 1, 8, 1, 8, 0, 0, 1, 0)
    return b"BM" + struct.pack("<IHHI", 68, 0, 0, 58) + info + bytes(4) + b"\x01\0\0\0\0\0\0\1"


def png_of_chunks() -> bytes:
    small = saved(Image.new("L", (1, 1)), "PNG")
    return small[:33] + chunk(b"teSt", b"") * 300_000 + small[33:]


def tiff_of_strips(tag: int = 273) -> bytes:
    count = 300_000
    entries = [(256, 3, 1, 1), (257, 4, 1, count), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    entries += [(tag, 1, count, 200), (278, 3, 1, 1)]
    head = b"II*\0" + struct.pack("<IH", 8, len(entries))
    packed = b"".join(struct.pack("<HHII", *each) for each in sorted(entries))
    return (head + packed + bytes(4)).ljust(200, b"\0") + bytes(count)


def segments(content: bytes) -> bytes:
    small = saved(Image.new("L", (8, 8)), "JPEG")
    return small[:2] + content + small[2:]


def gif_of_comments() -> bytes:
    small = saved(Image.new("L", (1, 1)), "GIF")
    start = small.index(b",")
    return small[:start] + b"!\xfe\x01x\0" * 200_000 + small[start:]


def scans() -> bytes:
    small = saved(Image.new("L", (6000, 6000)), "JPEG", progressive=True)
    start = small.rindex(b"\xff\xda")
    return small[:-2] + small[start:-2][:12] * 2000 + small[-2:]


# Refused by engine.vision.decoding_cost, which the decoder would read for seconds or more.
COSTLY: dict[str, Maker] = {
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


def bombs(pixels: int) -> dict[str, Maker]:
    """Return small files of many pixels, which are pictures like any other."""
    side = int(pixels**0.5)

    def flat(mode: str, kind: str, share: float = 1.0, **options: Any) -> Maker:
        size = (int(side * share), int(side * share))
        return lambda: saved(Image.new(mode, size), kind, **options)

    return {
        "PNG": flat("RGB", "PNG"),
        "progressive JPEG": flat("RGB", "JPEG", 0.7, progressive=True),
        "grey TIFF": flat("L", "TIFF", compression="tiff_deflate"),
    }


def memory_heavy(pixels: int) -> dict[str, Maker]:
    """Return files that take much memory for each pixel."""
    side = int((pixels / 2) ** 0.5)
    values = np.zeros((side, side), np.float32)
    return {
        "PNG with alpha": lambda: saved(Image.new("LA", (side, side)), "PNG"),
        "paletted PNG": lambda: saved(Image.new("P", (side, side)), "PNG", transparency=0),
        "WebP": lambda: saved(Image.new("RGBA", (side, side)), "WEBP"),
        "TIFF of floats": lambda: saved(
            Image.fromarray(values), "TIFF", compression="tiff_deflate"
        ),
        "TIFF in LAB": lambda: saved(
            Image.new("LAB", (side, side)), "TIFF", compression="tiff_deflate"
        ),
        "PNG of text": lambda: compressed_text(60),
    }
