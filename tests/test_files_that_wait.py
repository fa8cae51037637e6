"""Files whose reading would wait: an error at once, as picture, .cfg, .weights and names."""

import os
import threading
from pathlib import Path

import pytest

from engine import cli
from engine.errors import ImageError, InputError
from engine.files import regular
from engine.vision import image

KMSG = Path("/proc/kmsg")  # a regular file by its kind, which waits for the kernel's next message
needs_kmsg = pytest.mark.skipif(not os.access(KMSG, os.R_OK), reason=f"{KMSG} cannot be read")
needs_pipes = pytest.mark.skipif(not hasattr(os, "set_blocking"), reason="Windows pipes block")


@pytest.fixture
def pipe():
    """Return the descriptor of a file that has no content and never ends."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading
    os.close(writing)


@needs_pipes
@pytest.mark.parametrize("count", [1, 10, 1 << 20, -1])
def test_reading_is_an_error_where_there_is_no_content_yet(pipe, monkeypatch, count):
    monkeypatch.setattr(os, "open", lambda *_: pipe)
    with regular.open_without_waiting("any") as file, pytest.raises(OSError, match="no content"):
        file.read(count)


def ends(function):
    """Run a function on a thread that may hang; return what it raised."""
    raised = []

    def run():
        try:
            function()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    return raised[0]


@needs_kmsg
def test_a_picture_that_waits_is_refused():
    error = ends(lambda: image.read(str(KMSG)))
    assert isinstance(error, ImageError)
    assert "no content to read now" in str(error)


@needs_kmsg
def test_a_text_that_waits_is_refused():
    error = ends(lambda: regular.read_bytes(KMSG, InputError, limit=1 << 20))
    assert isinstance(error, InputError)


@needs_kmsg
@pytest.mark.parametrize("option", ["--cfg", "--weights", "--names"])
def test_a_model_that_waits_is_refused(tiny_detector, capsys, option):
    words = ["detect", *tiny_detector.options, "--names", str(tiny_detector.names)]
    words[words.index(option) + 1] = str(KMSG)
    assert cli.main([*words, "docs/parcel.jpg"]) in (2, 3)
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.startswith("Error: ")]) == 1


def test_a_picture_that_grows_while_it_is_read_is_read_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    path.write_bytes(b"x" * 3_000_000)
    real = os.stat

    def smaller(name, *more, **options):
        found = real(name, *more, **options)
        if name != str(path):
            return found
        return os.stat_result((*found[:6], 1000, *found[7:10]))

    monkeypatch.setattr(os, "stat", smaller)
    content, stamp = image._content_of_file(str(path), "a.bin")
    assert content == b"x" * 3_000_000
    assert stamp.size == 1000  # so that it counts as changed


@pytest.mark.parametrize("limit", [1 << 50, 100])
def test_a_file_without_a_size_takes_no_room_for_its_limit(tmp_path, limit):
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    assert regular.read_bytes(empty, InputError, limit=limit) == b""
    status = Path("/proc/self/status")  # about 1.5 KB, with a size of 0
    if status.exists():
        if limit > 1 << 20:
            assert regular.read_bytes(status, InputError, limit=limit).endswith(b"\n")
        else:
            with pytest.raises(InputError, match="expected at most"):
                regular.read_bytes(status, InputError, limit=limit)
