"""Processes that decode batches give the pictures of this process, and their end harms nobody."""

import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

import engine
from engine.errors import ImageError
from engine.files.stamp import is_of_file
from engine.sources.archive import NamedBytes
from engine.vision import batch_decoder, image
from engine.vision.batch_channel import BatchChannel, Decoded
from engine.vision.batch_decoder import BatchDecoder, Reading
from engine.vision.image import Picture
from engine.vision.plain_jpeg import PlainPicture, plain_jpeg
from engine.vision.shared_pixels import Segment
from tests.cli.child import ENVIRONMENT
from tests.vision.test_decode_pool import PICTURES, is_running, noise
from tools.load.hostile_pictures import saved

pytestmark = pytest.mark.skipif(not batch_decoder.IS_POSSIBLE, reason="needs files in memory")

HOW = Reading(1, copies=False)
OPTIONS = {"channels": 3, "orient": True, "max_pixels": None, "lenient": False}


def started(decoder, count=1):
    """Start processes at once, which usually follows a number of pictures; wait for them."""
    decoder._team.start(count)
    wait_until(lambda: decoder._team.ready == count)
    return decoder


def wait_until(is_so):
    end = time.monotonic() + 60
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    assert is_so()


@pytest.fixture(scope="module")
def decoder():
    with closing(BatchDecoder()) as made, made.held():
        yield started(made)


def read(decoder, sources, **changes):
    return [each for each, _ in decoder.read(sources, **{"how": HOW, **OPTIONS, **changes})]


def assert_same(got, expected):
    assert isinstance(got, Picture)
    assert got.pixels.dtype == expected.pixels.dtype
    assert got.pixels.flags.c_contiguous
    assert np.array_equal(got.pixels, expected.pixels)
    assert (got.path, got.dpi, got.icc_profile) == (
        expected.path,
        expected.dpi,
        expected.icc_profile,
    )
    assert (got.damage, got.orientation) == (expected.damage, expected.orientation)
    assert got.stamp == expected.stamp


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures_are_those_of_this_process(decoder, channels):
    sources = [make() for make in PICTURES.values()]
    got = read(decoder, sources, channels=channels, lenient=True)
    for each, source in zip(got, sources, strict=True):
        assert_same(each, image.read(source, channels=channels, lenient=True))


def test_sources_are_names_bytes_and_files_in_memory(decoder, tmp_path, monkeypatch):
    content = saved(noise(), "JPEG")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b \udcff.jpg").write_bytes(content)
    names = ["a b \udcff.jpg", tmp_path / "a b \udcff.jpg"]
    sources = [*names, content, NamedBytes("x.tar#y.jpg", content)]
    for got, source in zip(read(decoder, sources), sources, strict=True):
        assert_same(got, image.read(source))
        if isinstance(source, NamedBytes):
            source.seek(0)


def test_what_cannot_be_decoded_there_is_left_to_this_process(decoder, tmp_path):
    good = saved(noise(), "JPEG")
    frame = np.zeros((3, 4, 3), np.uint8)
    problem = ImageError("no such member")
    others = ["missing.jpg", tmp_path, b"", good[:300], frame, problem, "/proc/self/cmdline"]
    got = read(decoder, [others[0], good, *others[1:], good])
    assert all(one is other for one, other in zip([got[0], *got[2:-1]], others, strict=True))
    for each in (got[1], got[-1]):
        assert_same(each, image.read(good))


def test_plain_jpegs_stay_encoded_where_a_card_will_decode_them(decoder, tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    usual = saved(noise(), "JPEG", exif=turned)
    path = tmp_path / "usual.jpg"
    path.write_bytes(usual + bytes(100))
    others = [saved(noise(), "JPEG", progressive=True), saved(noise(), "PNG")]
    sources = [str(path), others[0], usual, others[1], "missing.jpg", usual[:300]]
    got = read(decoder, sources, leaves_plain=True)
    for number, name in ((0, str(path)), (2, None)):
        found = got[number]
        assert isinstance(found, PlainPicture)
        assert found.path == name
        assert is_of_file(found.stamp) == (name is not None)
        assert bytes(found.jpeg.content) == usual
        assert found.jpeg[1:-1] == plain_jpeg(usual)[1:-1] == (40, 30, 3, 6)
        assert ctypes.string_at(found.jpeg.address, len(usual)) == usual
    assert_same(got[1], image.read(others[0]))
    assert_same(got[3], image.read(others[1]))
    assert got[4:] == sources[4:]
    del got, found  # so that their memory is used again
    assert read(decoder, [usual], leaves_plain=True, max_pixels=40 * 30 - 1) == [usual]


def test_encoded_pictures_that_exceed_the_memory_take_several_turns(monkeypatch):
    monkeypatch.setattr("engine.vision.shared_pixels.BYTES", 1 << 20)
    small, large = saved(noise(size=(500, 500)), "JPEG", quality=95), bytes(2 << 20)
    count = (1 << 20) // len(small) + 3
    with closing(BatchDecoder()) as decoder, decoder.held():
        got = read(started(decoder), [small] * count + [small + large], leaves_plain=True)
        assert all(bytes(each.jpeg.content) == small for each in got)
        del got


@pytest.mark.parametrize("are_names", [True, False])
def test_a_process_has_its_next_part_before_it_answers(tmp_path, monkeypatch, are_names):
    """Bytes are sent when the process waits for them: otherwise both sides might only send."""
    content = saved(noise(), "JPEG")
    (tmp_path / "a.jpg").write_bytes(content)
    sources = [str(tmp_path / "a.jpg") if are_names else content] * 40
    events = []
    for name in ("ask", "receive"):
        own = getattr(batch_decoder._Process, name)

        def noted(self, *given, own=own, name=name):
            events.append(name)
            time.sleep(0.1 * (len(events) == 2))  # until all parts are there
            return own(self, *given)

        monkeypatch.setattr(batch_decoder._Process, name, noted)
    with closing(BatchDecoder()) as decoder, decoder.held():
        for each in read(started(decoder), sources):
            assert_same(each, image.read(sources[0]))
            del each
    turns = "".join(each[0] for each in events)
    assert turns.count("a") == turns.count("r") == 4
    assert ("aa" in turns) == are_names
    assert "aaa" not in turns


def test_a_process_that_ends_with_two_parts_is_missed_by_nobody(tmp_path, monkeypatch, caplog):
    name = str(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes(saved(noise(), "JPEG"))
    with closing(BatchDecoder()) as decoder:
        team = started(decoder)._team
        process = batch_decoder._Process
        ask, receive, events = process.ask, process.receive, []

        def noted(self, *given):
            events.append("asked")
            ask(self, *given)

        def kill_when_it_has_two(self):
            if events == ["asked"]:
                time.sleep(0.1)  # until all parts are there
            if events[-2:] == ["asked", "asked"]:
                os.killpg(team._groups[0].pid, signal.SIGKILL)
                team._groups[0].wait()
            events.append("received")
            return receive(self)

        monkeypatch.setattr(process, "ask", noted)
        monkeypatch.setattr(process, "receive", kill_when_it_has_two)
        with decoder.held():
            got = read(decoder, [name] * 40)
            wait_until(lambda: not team.members)
            assert got[-20:] == [name] * 20
            assert len(caplog.messages) == 1
            del got
        # A thread may still hold the last part; the process may have finished the first one.
        wait_until(lambda: not team.segments.alive)


def test_pixels_above_the_limit_are_not_decoded(decoder):
    good = saved(noise(), "JPEG")
    assert read(decoder, [good], max_pixels=40 * 30 - 1) == [good]


def test_warnings_are_logged_here(decoder, caplog):
    read(decoder, [NamedBytes("cut.jpg", saved(noise(), "JPEG")[:-200])], lenient=True)
    assert caplog.messages == ["cut.jpg: is truncated: the missing part is grey"]


def test_a_batch_that_exceeds_its_memory_takes_several(monkeypatch):
    monkeypatch.setattr("engine.vision.shared_pixels.BYTES", 2 << 20)
    small, large = saved(noise(size=(600, 500)), "PNG"), saved(noise(size=(900, 800)), "PNG")
    with closing(BatchDecoder()) as decoder, decoder.held():
        started(decoder)
        got = read(decoder, [small] * 3 + [large])
        assert got[3] is large
        for each in got[:3]:
            assert_same(each, image.read(small))
        assert len(decoder._team.segments.alive) == 3


def test_memory_is_used_again_and_freed_with_the_stream(decoder):
    content = saved(noise(), "JPEG")
    kept = read(decoder, [content] * 3)
    first = kept[0].pixels
    del kept
    number = decoder._team.segments.alive
    for _ in range(3):
        read(decoder, [content])
    assert len(decoder._team.segments.alive) == max(len(number), 2)
    with closing(BatchDecoder()) as other:
        with other.held():
            started(other)
            copied = read(other, [content], how=Reading(1, copies=True))
            assert copied[0].pixels.base is None
            lent = read(other, [content])
        gc.collect()
        assert len(other._team.segments.alive) == 1  # what the stream left is still there
        assert np.array_equal(lent[0].pixels, first)
        del lent
        assert not other._team.segments.alive
        with other.held():  # the process forgets what was freed
            assert_same(read(other, [content])[0], image.read(content))


def test_a_process_that_ends_is_missed_by_nobody(caplog):
    content = saved(noise(), "JPEG")
    with closing(BatchDecoder()) as decoder, decoder.held():
        team = started(decoder, 2)._team
        (group,) = team._groups
        os.killpg(group.pid, signal.SIGKILL)
        group.wait()
        assert read(decoder, [content] * 40) == [content] * 40  # a part for each, and two for none
        wait_until(lambda: not team.members)
        assert "a process ended; decoding continues in threads" in caplog.text
        assert len(caplog.messages) == 2
        assert not team.segments.alive
        assert not team.ready
        assert read(decoder, [content]) == [content]
        started(decoder)
        assert_same(read(decoder, [content])[0], image.read(content))


def test_idle_processes_end_and_are_started_again(monkeypatch):
    monkeypatch.setattr(batch_decoder, "WORTHWHILE", 0)
    content = saved(noise(), "JPEG")
    with closing(BatchDecoder()) as decoder, decoder.held():
        started(decoder)
        (group,) = decoder._team._groups
        # Set after the start: otherwise a process may end before the test sees it.
        monkeypatch.setattr(batch_decoder, "_IDLE_SECONDS", 0.05)
        assert_same(read(decoder, [content])[0], image.read(content))
        group.wait(60)
        wait_until(lambda: not decoder._team.members)
        monkeypatch.setattr(batch_decoder, "_IDLE_SECONDS", 60)
        assert_same(read(decoder, [content])[0], image.read(content))


def test_threads_decode_if_processes_start_slowly(monkeypatch):
    monkeypatch.setattr(batch_decoder, "_PATIENCE_SECONDS", 0)
    monkeypatch.setattr(batch_decoder, "WORTHWHILE", 0)
    monkeypatch.setattr(batch_decoder._Process, "wait_until_ready", lambda *_: time.sleep(0.2))
    content = saved(noise(), "JPEG")
    with closing(BatchDecoder()) as decoder, decoder.held():
        assert read(decoder, [content] * 9) == [content] * 9
        wait_until(lambda: decoder._team.ready)


def test_threads_decode_without_memory_to_share(monkeypatch):
    monkeypatch.setattr("engine.vision.shared_pixels.BYTES", -1)
    content = saved(noise(), "JPEG")
    with closing(BatchDecoder()) as decoder, decoder.held():
        started(decoder)
        assert read(decoder, [content] * 9) == [content] * 9
        assert decoder._team.ready == 1


def test_a_process_that_cannot_start_is_told_once(caplog, monkeypatch):
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    content = saved(noise(), "JPEG")
    with closing(BatchDecoder()) as decoder, decoder.held():
        for _ in range(2):
            assert read(decoder, [content] * 101) == [content] * 101
    assert len(caplog.messages) == 1


def test_after_close_threads_decode():
    content = saved(noise(), "JPEG")
    with closing(BatchDecoder()) as closed, closed.held():
        closed.close()
        assert read(closed, [content] * 101) == [content] * 101


_LAST_WORDS = """
import os, signal
from tests.vision.test_batch_decoder import *
decoder = started(BatchDecoder(), 2)
print(decoder._team._groups[0].pid, flush=True)
{}
"""
_KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
_FORKED = """
content = saved(noise(), "JPEG")
child = os.fork()
if not child:
    assert read(decoder, [content]) == [content]  # those processes belong to the parent
    assert not decoder._team._groups
    os._exit(0)
status = os.waitpid(child, 0)[1]
assert_same(read(decoder, [content])[0], image.read(content))
raise SystemExit(status)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("code", "status"), [(_KILLED, -signal.SIGKILL), (_FORKED, 0)])
def test_no_process_outlives_its_owner(code, status):
    ran = subprocess.run(
        [sys.executable, "-c", _LAST_WORDS.format(code)],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode == status, ran.stderr
    end = time.monotonic() + 30
    while is_running(int(ran.stdout)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(int(ran.stdout))


# ------------------------------------------------------------ a detector


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        turned = Image.Exif()
        turned[0x0112] = number % 8 + 1
        content = saved(noise(size=(30 + number, 40)), "JPEG", exif=turned)
        (tmp_path / f"{number:02}.jpg").write_bytes(content)
    (tmp_path / "05.jpg").write_bytes(b"no picture")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
def test_a_stream_gives_the_same_results_in_order(folder, tiny_detector, monkeypatch, keep):
    options = {"on_error": "yield", "threshold": 0.1, "keep_pictures": keep}
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu", batch=2) as detector:
        expected = list(detector.stream(str(folder), **options))
        assert detector._runs._batch_decoder is None
        detector._runs._batch_decoder = decoder = started(BatchDecoder(), 2)
        counted = []
        original = batch_decoder._Process.ask

        def ask(self, segment, alive, sources, *options, **more):
            counted.extend(sources)
            return original(self, segment, alive, sources, *options, **more)

        monkeypatch.setattr(batch_decoder._Process, "ask", ask)
        got = list(detector.stream(str(folder), workers=4, **options))
        assert len(counted) == 12
        assert not decoder._team.segments.alive
        group = decoder._team._groups[0]
    assert group.returncode is not None
    assert len(got) == len(expected) == 12
    for one, other in zip(got, expected, strict=True):
        assert type(one) is type(other)
        if isinstance(one, ImageError):
            assert str(one) == str(other)
            continue
        assert (one.path, one.size) == (other.path, other.size)
        assert np.array_equal(one.xywh, other.xywh)
        assert np.array_equal(one.scores, other.scores)
        if keep:
            assert_same(one.picture, other.picture)
            assert one.picture.pixels.base is None


def test_processes_start_for_long_streams_with_several_workers(folder, tiny_detector, monkeypatch):
    starts = []
    monkeypatch.setattr(batch_decoder._Team, "start", lambda _, count: starts.append(count))
    monkeypatch.setattr(batch_decoder, "usable_cores", lambda: 6)
    monkeypatch.setattr(batch_decoder, "WORTHWHILE", 10)
    name = str(folder / "00.jpg")
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu", batch=5) as detector:
        list(detector.stream([name] * 10, workers=8))
        for workers in (1, 3):
            list(detector.stream([name] * 20, workers=workers))
        assert not starts
        list(detector.stream([name] * 5, workers=8))
        assert starts == [6]


def test_a_part_follows_only_answers_that_the_connection_holds():
    """Both sides would wait for each other: one sends an answer, the other the next part."""
    ours, theirs = socket.socketpair()
    process, segment = batch_decoder._Process(ours), Segment()
    options = batch_decoder._Options(3, True, 1 << 20, False, False)
    full = Decoded(
        1 << 29, (9999, 9999, 3), False, 1234.567, (0, 0), None, "d" * 120, 1, (), (9,) * 3
    )
    try:
        theirs.setblocking(False)
        for count in (1, 256, 257, 1400):
            process.ask(segment, frozenset({segment.number}), ["a.jpg"] * count, options)
            assert process.is_ahead_possible == (count <= 256)
            theirs.recv(1 << 20)
        process.ask(segment, frozenset({segment.number}), [b"content"], options)
        assert not process.is_ahead_possible
        BatchChannel(theirs).send_answer([full] * 256, 1 << 29)  # nobody reads it yet
        entries, _ = process.receive()
        assert len(entries) == 256
    finally:
        segment.drop()
        process.close()
        theirs.close()
