"""Decoding takes at most the memory that is reserved for it, in every format and mode."""

import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from PIL import Image

from tests.cli.child import ENVIRONMENT
from tests.lanes import slow_except

# One process decodes all pictures, each after its peak was reset.
_MEASURE = """
import sys
from pathlib import Path
from engine.vision import decoding_memory, formats, image

def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

image.read(Path("docs/parcel.jpg"))  # what is imported and allocated once
for name in sys.argv[1:]:
    path, channels = name.split(":")
    content = Path(path).read_bytes()
    Path("/proc/self/clear_refs").write_text("5")
    before = kib("VmRSS")
    needed = []
    def admit(opened):
        needed.append(decoding_memory.of_picture(opened, len(content)) - 2 * len(content))
    picture = image.read_encoded(
        content, "picture", orient=True, max_pixels=10**8, lenient=False, admit=admit
    ).with_channels(int(channels))
    print(path, (kib("VmHWM") - before) << 10, *needed)
"""
_SIDE = 1500
_SPARE = 3 << 20  # of the allocator and of what a codec needs for any picture


@cache
def noise():
    return Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)
    )


def jpeg_440(path):
    """Write a JPEG whose chroma has half the height, which Pillow cannot write."""
    noise().save(path, "JPEG", subsampling="4:2:2")
    content = bytearray(path.read_bytes())
    content[content.index(b"\xff\xc0") + 11] = 0x12
    path.write_bytes(content)


def lab(path):
    Image.new("LAB", (_SIDE, _SIDE)).save(path, "TIFF", compression="tiff_deflate")


def floats(path):
    values = np.random.default_rng(0).random((_SIDE, _SIDE), dtype=np.float32)
    Image.fromarray(values).save(path, "TIFF")


def wide(path):
    values = np.random.default_rng(0).integers(0, 65536, (_SIDE, _SIDE), dtype=np.uint16)
    Image.fromarray(values).save(path, "PNG", compress_level=1)


def ppm(path):
    path.write_bytes(b"P6 %d %d 254\n" % (_SIDE, _SIDE) + bytes(_SIDE * _SIDE * 3))


def saved(kind, mode="RGB", **options):
    return lambda path: noise().convert(mode).save(path, kind, **options)


KINDS = {
    "JPEG": saved("JPEG"),
    "JPEG 4:4:0": jpeg_440,
    "JPEG CMYK progressive": saved("JPEG", "CMYK", progressive=True, subsampling=0),
    "PNG LA": saved("PNG", "LA", compress_level=1),
    "PNG P": saved("PNG", "P", compress_level=1, transparency=0),
    "PNG of 16 bits": wide,
    "WebP": saved("WEBP", method=0),
    "WebP RGBA": saved("WEBP", "RGBA", lossless=True, method=0, quality=0),
    "GIF": saved("GIF", "P", transparency=0),
    "PPM": ppm,
    "TIFF LAB": lab,
    "TIFF YCbCr": saved("TIFF", "YCbCr", compression="jpeg"),
    "TIFF F": floats,
}
_FAST = ("JPEG 4:4:0", "PNG LA", "WebP", "PPM", "TIFF LAB", "TIFF F")


@pytest.fixture(scope="module")
def measured(tmp_path_factory, request):
    """Return the bytes that each picture took and those that are reserved for it."""
    folder = tmp_path_factory.mktemp("pictures")
    wanted = {item.callspec.params["kind"] for item in request.session.items if is_here(item)}
    words = []
    for kind in sorted(wanted):
        KINDS[kind](folder / kind)
        for channels in (1, 3):
            words.append(f"{folder / kind.replace(':', '-')}:{channels}")
            if channels == 1:
                (folder / kind).rename(folder / kind.replace(":", "-"))
    environment = {**ENVIRONMENT, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    command = [sys.executable, "-c", _MEASURE, *words]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    found = {}
    for line in ran.stdout.splitlines():
        path, took, reserved = line.rsplit(" ", 2)
        found.setdefault(os.path.basename(path), []).append((int(took), int(reserved)))  # noqa: PTH119
    return found


def is_here(item):
    return item.module.__name__ == __name__ and hasattr(item, "callspec")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", slow_except(_FAST, KINDS))
def test_decoding_takes_no_more_than_is_reserved(measured, kind):
    for took, reserved in measured[kind.replace(":", "-")]:
        assert _SIDE * _SIDE < took <= reserved + _SPARE
