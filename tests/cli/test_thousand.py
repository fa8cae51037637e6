"""A folder of a thousand pictures, of which twenty are broken in different ways."""

import json
import os
import struct
import subprocess
import sys
import zlib

import pytest

from tests.cli.child import ENVIRONMENT
from tests.pictures import write_picture

pytestmark = pytest.mark.slow

# Runs the command line and prints the peak memory in KiB to stderr.
RUN = """
import resource, sys
from engine import cli
status = cli.main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(status)
"""


def png_of(width, height):
    head = chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(99)))


def chunk(kind, content):
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def write_broken(folder, good):
    """Write twenty invalid pictures."""
    jpeg, png, bmp, gif, webp = (
        good[kind].read_bytes() for kind in ("jpg", "png", "bmp", "gif", "webp")
    )
    contents = {
        "empty": b"",
        "one-byte": b"\xff",
        "cut-jpeg": jpeg[: len(jpeg) // 3],
        "head-of-jpeg": jpeg[:20],
        "cut-png": png[: len(png) // 2],
        "cut-bmp": bmp[:60],
        "cut-gif": gif[:20],
        "cut-webp": webp[:40],
        "bomb": png_of(50_000, 50_000),
        "flat": png_of(0, 7),
        "noise": bytes(range(7, 250)) * 9,
        "page": b"<!DOCTYPE html><html><body>404</body></html>",
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "zip": b"PK\x03\x04" + bytes(40),
        "gzip": b"\x1f\x8b\x08" + bytes(40),
        "paper": b"%PDF-1.7\n",
        "heic": b"\0\0\0\x18ftypheic" + bytes(20),
    }
    for name, content in contents.items():
        (folder / f"broken-{name}.jpg").write_bytes(content)
    os.mkfifo(folder / "broken-pipe.jpg")
    (folder / "broken-link.jpg").symlink_to("nowhere.jpg")
    (folder / "broken-loop.jpg").symlink_to("broken-loop.jpg")
    assert len(list(folder.glob("broken-*"))) == 20


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    kinds = ("jpg", "png", "bmp", "gif", "webp")
    return {kind: write_picture(folder / f"x.{kind}", size=(160, 120)) for kind in kinds}


def folder_of(path, good, count):
    path.mkdir()
    kinds = sorted(good)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        os.link(good[kind], path / f"{number:04d}.{kind}")
    return path


def run(model, folder, out):
    command = ["detect", *model.options, str(folder), "--jsonl", str(out), "--batch", "4"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *command, "--quiet", "--save-txt", f"{out}.labels"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=400,
    )
    *reasons, memory = done.stderr.splitlines()
    return done.returncode, reasons, int(memory)


def test_980_results_20_reasons_and_flat_memory(tiny_detector, tmp_path, good):
    few = folder_of(tmp_path / "few", good, 100)
    status, reasons, memory_of_few = run(tiny_detector, few, tmp_path / "few.jsonl")
    assert (status, reasons) == (0, [])

    many = folder_of(tmp_path / "many", good, 980)
    write_broken(many, good)
    status, reasons, memory_of_many = run(tiny_detector, many, tmp_path / "many.jsonl")
    assert status == 1
    *reasons, count = reasons
    assert count == "20 of 1000 pictures could not be read"
    assert len(reasons) == 20
    assert all(line.startswith(f"Error: {many}/broken-") for line in reasons)
    assert f"Error: {many}/broken-bomb.jpg: size: expected at most " in reasons[0]
    lines = [json.loads(line) for line in (tmp_path / "many.jsonl").read_text().splitlines()]
    assert sum("detections" in line for line in lines) == 980
    assert sum("error" in line for line in lines) == 20
    assert len(list((tmp_path / "many.jsonl.labels").glob("[!.]*"))) == 980
    assert memory_of_many < memory_of_few + 20 * 1024  # KiB; the pictures are 54 MiB
