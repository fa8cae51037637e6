"""Worker processes decode as this process does, within limits, and their end harms nobody."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from engine.errors import EngineError, ImageError
from engine.vision import decode_channel, image
from engine.vision.decode_pool import DecodeLimits, DecodePool
from tests.cli.child import ENVIRONMENT
from tools.load.hostile_pictures import compressed_text, saved

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows has neither timers nor limits")
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

_LAST_WORDS = """
import os, signal
from engine.vision.decode_pool import DecodePool
pool = DecodePool(1)
(worker,) = pool._workers
print(worker._child.pid, flush=True)
{}
"""
_KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
_FORKED = """
picture = open("docs/parcel.jpg", "rb")
content = picture.read()
picture.close()
expected = pool.read(content, "picture", channels=3).pixels
if not os.fork():
    same = (pool.read(content, "picture", channels=3).pixels == expected).all()
    os._exit(not same)
status = os.wait()[1]
again = (pool.read(content, "picture", channels=3).pixels == expected).all()
pool.close()
raise SystemExit(status or not again)
"""


@pytest.fixture(scope="module")
def pool():
    with closing(DecodePool(1)) as made:
        yield made


def noise(mode="RGB", size=(40, 30)):
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def floats():
    return Image.fromarray(np.random.default_rng(0).random((30, 40), dtype=np.float32))


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(noise(), "JPEG", exif=exif, dpi=(72, 96), icc_profile=bytes(16) + b"RGB " * 9)


PICTURES = {
    "JPEG": lambda: saved(noise(), "JPEG"),
    "turned JPEG": turned,
    "JPEG without its end": lambda: saved(noise(), "JPEG")[:-200],
    "grey PNG": lambda: saved(noise("L"), "PNG"),
    "transparent PNG": lambda: saved(noise("RGBA"), "PNG"),
    "WebP": lambda: saved(noise(), "WEBP"),
    "GIF": lambda: saved(noise("P"), "GIF"),
    "TIFF of floats": lambda: saved(floats(), "TIFF"),
    "PPM": lambda: saved(noise(), "PPM"),
    "large PNG": lambda: saved(noise(size=(900, 700)), "PNG"),
}


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_are_those_of_this_process(pool, kind, channels):
    content = PICTURES[kind]()
    expected = image.read(content, channels=channels, lenient=True)
    got = image.read(content, channels=channels, lenient=True, decoder=pool.read)
    assert got.pixels.dtype == expected.pixels.dtype
    assert np.array_equal(got.pixels, expected.pixels)
    assert (got.dpi, got.icc_profile) == (expected.dpi, expected.icc_profile)
    assert got.orientation == expected.orientation == (6 if kind == "turned JPEG" else 1)


def test_warnings_of_the_decoder_are_logged_here(pool, caplog):
    pool.read(PICTURES["JPEG without its end"](), "cut.jpg", channels=3, lenient=True)
    assert caplog.messages == ["cut.jpg: is truncated: the missing part is grey"]


def test_pictures_pass_through_the_socket_where_there_are_no_files(monkeypatch):
    monkeypatch.setattr("engine.vision.decode_pool.make_file", lambda: -1)
    content = PICTURES["large PNG"]()
    with closing(DecodePool(1)) as pool:
        got = pool.read(content, "picture", channels=3).pixels
    assert np.array_equal(got, image.read(content).pixels)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "expected JPEG, PNG, WebP, BMP, GIF, TIFF or PPM, got an empty file"),
        (b"\x89PNG\r\n\x1a\n", "cannot be decoded: "),
        (saved(noise(), "PNG")[:400], "cannot be decoded: .*image file is truncated"),
    ],
)
def test_errors_are_those_of_this_process(pool, content, reason):
    (worker,) = pool._workers
    with pytest.raises(ImageError, match=f"dog.png: picture: {reason}"):
        pool.read(content, "dog.png", channels=3)
    assert pool._workers == {worker}  # the process goes on


def test_a_picture_that_is_not_admitted_is_not_decoded(pool):
    (worker,) = pool._workers

    def refuse(opened):
        assert opened == (40, 30, "PNG", opened.needed)
        assert 12 * 40 * 30 < opened.needed < 30 * 40 * 30
        raise KeyError("no memory")

    with pytest.raises(KeyError):
        pool.read(saved(noise(), "PNG"), "picture", channels=3, admit=refuse)
    assert pool.open(saved(noise(), "GIF"), "picture")[:3] == (40, 30, "GIF")
    assert pool._workers == {worker}


# ------------------------------------------------------------ limits


@pytest.mark.slow
@POSIX
def test_a_process_that_takes_too_long_is_replaced():
    costly = saved(Image.new("RGB", (6000, 6000)), "PNG")  # about a second
    with closing(DecodePool(1, DecodeLimits(seconds=0.1))) as pool:
        before = set(pool._workers)
        with pytest.raises(ImageError) as error:
            pool.read(costly, "bomb.png", channels=3)
        assert str(error.value) == (
            "bomb.png: picture: cannot be decoded within 0.1 s of processor time"
        )
        assert pool._workers.isdisjoint(before)
        assert pool.read(saved(noise(), "PNG"), "picture", channels=3).size == (40, 30)


@LINUX
def test_a_picture_that_takes_too_much_memory_is_refused():
    with closing(DecodePool(1, DecodeLimits(extra_bytes=16 << 20))) as pool:
        assert pool.read(compressed_text(4), "picture", channels=3).size == (40, 30)
        (worker,) = pool._workers
        with pytest.raises(ImageError) as error:
            pool.read(compressed_text(40), "bomb.png", channels=3)
        assert str(error.value).startswith("bomb.png: picture: ")
        assert "\n" not in str(error.value)
        assert pool.read(saved(noise(), "PNG"), "picture", channels=3).size == (40, 30)
        assert peak_bytes(worker._child.pid) < 100 << 20


def peak_bytes(process):
    with open(f"/proc/{process}/status") as file:  # noqa: PTH123 - not a file on a disk
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"seconds": float("nan")}, {"extra_bytes": -1}])
def test_invalid_limits_are_refused(limits):
    with pytest.raises(EngineError, match="expected a number above 0, got"):
        DecodeLimits(**limits)


# ------------------------------------------------------------ life


@pytest.mark.slow
@POSIX
def test_a_process_that_died_is_replaced(pool):
    (worker,) = pool._workers
    worker._child.kill()
    os.waitid(os.P_PID, worker._child.pid, os.WEXITED | os.WNOWAIT)
    assert pool.read(saved(noise(), "PNG"), "picture", channels=3).size == (40, 30)
    (other,) = pool._workers

    def kill(opened):
        other._child.kill()
        other._child.wait()

    with pytest.raises(ImageError) as error:
        pool.read(saved(noise(), "PNG"), "dog.png", channels=3, admit=kill)
    assert str(error.value).startswith("dog.png: picture: cannot be decoded: ")
    assert pool.read(saved(noise(), "PNG"), "picture", channels=3).size == (40, 30)


@POSIX
def test_signals_to_a_group_of_processes_do_not_end_workers(pool):
    pool.read(saved(noise(), "PNG"), "picture", channels=3)
    (worker,) = pool._workers
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(worker._child.pid, number)
    assert pool.read(saved(noise(), "PNG"), "picture", channels=3).size == (40, 30)
    assert pool._workers == {worker}


@LINUX
def test_workers_end_with_a_process_that_is_killed():
    code = _LAST_WORDS.format(_KILLED)
    ran = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True)
    assert ran.returncode == -signal.SIGKILL
    end = time.monotonic() + 30
    while is_running(int(ran.stdout)):
        assert time.monotonic() < end, "the worker lives on"
        time.sleep(0.02)


def is_running(process):
    try:
        with open(f"/proc/{process}/stat") as file:  # noqa: PTH123 - not a file on a disk
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@LINUX
def test_a_fork_uses_processes_of_its_own():
    code = _LAST_WORDS.format(_FORKED)
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], env=ENVIRONMENT, timeout=60)
    assert ran.returncode == 0


def test_a_closed_pool_says_so():
    pool = DecodePool(1)
    pool.close()
    with pytest.raises(EngineError, match="decode: is closed"):
        pool.read(b"", "picture", channels=3)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("executable", "/no/such/python", "No such file"),
        ("executable", "", "need a Python interpreter"),
        ("path", [], "No module named 'engine'"),
    ],
)
def test_workers_that_cannot_start_are_reported(monkeypatch, name, value, reason):
    monkeypatch.setattr(sys, name, value)
    with (
        pytest.raises(EngineError, match=f"decode: .*{reason}"),
        closing(DecodePool(1)) as pool,
    ):
        pool.read(b"", "picture", channels=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "reply",
    [
        decode_channel.Reply(decode_channel.SIZE, 1 << 20, 1 << 20),
        decode_channel.Reply(decode_channel.PIXELS, 1, 1, 3),
        decode_channel.Reply(9),
    ],
)
def test_a_reply_that_makes_no_sense_is_refused(pool, reply, monkeypatch):
    pool.read(saved(noise(), "PNG"), "picture", channels=3)
    monkeypatch.setattr(decode_channel.Channel, "receive_reply", lambda channel: reply)
    with pytest.raises(ImageError, match="picture: cannot be decoded: reply"):
        pool.read(saved(noise(), "PNG"), "picture", channels=3)
    monkeypatch.undo()
    assert pool.read(saved(noise(), "PNG"), "picture", channels=3).size == (40, 30)
