"""An untrusted list of pictures, expanded but not fetched.

Patterns that would walk the whole disk are skipped, since their time depends on the disk.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.sources.expand import expand

_LEAVES_FOLDER = re.compile(rb"(?:^|[^\w.*?\]-])/|\.\.")  # an absolute path, or one with ..

_SEEDS = (
    b"a.jpg\r\n\r\n'b c.png'\n\"d.png\"\n",
    b"\xef\xbb\xbfa.jpg\nmissing/b.jpg\n",
    "a.jpg\nb.jpg\n".encode("utf-16"),
    b"http://[::1/a.jpg\nhttps://example.org/a.jpg?x=1\nrtsp://h/1\nfile:///a.jpg\n",
    b"*.jpg\n**/*.png\n[a-z].png\n?.gif\n",
    b"0\n1\n/dev/video0\n-\n.\n..\nother.txt\nclip.mp4\n",
    b"caf\xe9.png\n\xf0\x9f\x90\x95.png\n",
    b"a\0b.png\n" + b"x" * 5000 + b"\n",
    b"a.jpg\rb.jpg\r",
)


def seeds() -> Iterator[bytes]:
    yield from _SEEDS


def run(data: bytes) -> None:
    if _LEAVES_FOLDER.search(data) and any(mark in data for mark in b"*?["):
        return
    working_directory = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "inner")  # so that .. is not a folder that others fill
        inner.mkdir()
        os.chdir(inner)
        try:
            Path("given.txt").write_bytes(data)
            for item in expand(["given.txt"]):
                assert item.name or item.problem
        finally:
            os.chdir(working_directory)
