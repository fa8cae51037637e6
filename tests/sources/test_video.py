"""Videos: order, orientation and stride of frames; errors name the place."""

import functools
import socket
import struct
import threading
from fractions import Fraction
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ImageError, InputError
from engine.sources import video
from engine.sources.media import Media, MediaKind
from engine.sources.pictures import pictures_of
from engine.sources.reader import FrameSelection, read_in_turn, read_items
from tests import needs
from tests.pictures import write_video

av = needs.package("av")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return str(write_video(tmp_path_factory.mktemp("video") / "clip.mp4"))


def opened(name, kind=MediaKind.VIDEO, **pace):
    return list(read_items([Media(name, kind)], FrameSelection(**pace)))


def grey(item):
    return round(float(item.source.pixels.mean()) / 40)


@pytest.mark.parametrize(
    ("pace", "numbers"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"stride": 2}, [0, 2, 4]),
        ({"max_frames": 2}, [0, 1]),
        ({"stride": 3, "max_frames": 9}, [0, 3]),
    ],
)
def test_frames_follow_order_stride_and_limit(clip, pace, numbers):
    found = opened(clip, **pace)
    assert [item.frame.number for item in found] == numbers
    assert [grey(item) for item in found] == numbers
    assert [item.frame.seconds for item in found] == pytest.approx([n / 10 for n in numbers])
    assert found[-1].name == f"{clip}#{numbers[-1]}"
    assert found[0].source.pixels.shape == (48, 64, 3)


@pytest.mark.parametrize("name", ["late.ts", "late.mkv", "late.mp4"])
def test_times_count_from_the_first_frame(tmp_path, name):
    path = str(tmp_path / name)
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(6):
            grey = np.full((48, 64, 3), 40 * number, np.uint8)
            frame = av.VideoFrame.from_ndarray(grey, format="rgb24")
            frame.pts, frame.time_base = 50 + number, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    found = opened(path, stride=2)
    assert [item.frame.number for item in found] == [0, 2, 4]
    assert [item.frame.seconds for item in found] == pytest.approx([0, 0.2, 0.4])


def test_videos_that_are_read_at_once_take_turns(clip, tmp_path):
    short = str(write_video(tmp_path / "short.mp4", count=2))
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    names = [clip, short, str(broken), clip]

    def read(at_once):
        media = [Media(each, MediaKind.VIDEO) for each in names]
        found = read_in_turn(media, FrameSelection(at_once=at_once))
        return [(number, item.frame and item.frame.number) for number, item in found]

    first, second, error = [(0, n) for n in range(6)], [(1, 0), (1, 1)], (2, None)
    last = [(3, n) for n in range(6)]
    assert read(1) == [*first, *second, error, *last]
    mixed = read(2)
    assert mixed[:5] == [first[0], second[0], first[1], second[1], first[2]]
    assert sorted(mixed, key=lambda each: each[0]) == read(1)
    assert read(9)[:4] == [first[0], second[0], error, last[0]]
    pictures = pictures_of([clip, short], FrameSelection(at_once=2))
    assert [each.path for each in pictures] == [clip, short] * 2 + [clip] * 4


def test_a_live_source_gives_its_newest_frames_and_ends(clip, monkeypatch):
    monkeypatch.setattr(video, "is_url", lambda name: False)
    found = opened(clip, MediaKind.LIVE)
    numbers = [item.frame.number for item in found]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 5


def test_a_stream_that_was_never_there_is_tried_four_times(clip, monkeypatch):
    monkeypatch.setattr(video, "FIRST_PAUSE", 0)
    tries = []

    def lost(name, *, is_live, card=None):
        tries.append(name)
        yield from ()
        raise ImageError(f"{name}: video: breaks off")

    monkeypatch.setattr(video, "frames", lost)
    with pytest.raises(ImageError, match="breaks off"):
        list(video.live_frames("rtsp://camera/1"))
    assert len(tries) == 4
    with pytest.raises(ImageError, match="breaks off"):
        list(video.live_frames("7"))  # a camera that is not there
    assert len(tries) == 5


@pytest.mark.parametrize(
    ("matrix", "size", "dark_side"),
    [
        ((1, 0, 0, 1), (64, 48), "left"),
        ((0, 1, -1, 0), (48, 64), "top"),  # a phone in portrait: a quarter turn clockwise
        ((-1, 0, 0, -1), (64, 48), "right"),
        ((0, -1, 1, 0), (48, 64), "bottom"),
    ],
)
def test_rotated_video_is_turned_upright(tmp_path, matrix, size, dark_side):
    path = tmp_path / "turned.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        picture = np.full((48, 64, 3), 200, np.uint8)
        picture[:, :32] = 20
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    turn(path, matrix)
    (item,) = opened(str(path))
    assert item.source.size == size
    pixels = item.source.pixels.astype(float)
    width, height = size
    sides = {
        "left": pixels[:, : width // 4],
        "right": pixels[:, -width // 4 :],
        "top": pixels[: height // 4],
        "bottom": pixels[-height // 4 :],
    }
    assert min(sides, key=lambda side: sides[side].mean()) == dark_side


@pytest.mark.parametrize(
    ("stated", "matrix", "expected"),
    [
        ((4, 3), (1, 0, 0, 1), "4/3"),
        ((4, 3), (0, 1, -1, 0), "3/4"),  # a quarter turn
        ((60_000, 1), (1, 0, 0, 1), "1"),  # of a damaged file
        (None, (1, 0, 0, 1), "1"),
    ],
)
def test_frames_tell_the_shape_of_their_pixels(tmp_path, stated, matrix, expected):
    path = tmp_path / "wide.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        if stated:
            stream.codec_context.sample_aspect_ratio = Fraction(*stated)
        picture = np.full((48, 64, 3), 200, np.uint8)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    turn(path, matrix)
    (item,) = opened(str(path))
    assert item.frame.pixel_aspect == Fraction(expected)


def turn(path, matrix):
    """Give a video of MP4 a matrix that players turn it by."""
    content = bytearray(path.read_bytes())
    a, b, c, d = (value * 65536 for value in matrix)
    at = content.index(b"tkhd") + 44
    content[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(content)


def broken_files(folder):
    (folder / "empty.mp4").touch()
    (folder / "noise.mp4").write_bytes(np.random.default_rng(0).bytes(5000))
    with av.open(str(folder / "sound.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    return ["empty.mp4", "noise.mp4", "sound.mkv", "none.mp4"]


def test_invalid_video_is_one_image_error(tmp_path):
    for name in broken_files(tmp_path):
        (item,) = opened(str(tmp_path / name))
        assert isinstance(item.source, ImageError), name
        assert f"{name}: video: " in str(item.source)
        assert "\n" not in str(item.source)


def test_broken_end_of_a_video_loses_only_the_end(clip, tmp_path):
    path = write_video(tmp_path / "tail.mkv", count=60)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    found = opened(str(path))
    frames = [item for item in found if item.frame]
    assert 0 < len(frames) < 60
    assert len(found) - len(frames) <= 1


def test_missing_pyav_is_one_line_with_an_install_hint(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(InputError, match=r"a.mp4: video: PyAV is not installed. Run: pip"):
        video.require_pyav("a.mp4")


@pytest.mark.parametrize(
    "pace", [{"stride": 0}, {"max_frames": 0}, {"stride": 1.5}, {"at_once": "2"}]
)
def test_invalid_frame_selections_are_refused(pace):
    with pytest.raises(InputError, match="expected an integer of 1 or more, got "):
        FrameSelection(**pace)


@pytest.mark.slow
def test_a_stream_over_the_network_is_read_and_opened_again_until_it_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "FIRST_PAUSE", 0.01)
    content = write_video(tmp_path / "live.ts", count=20).read_bytes()
    server = socket.create_server(("127.0.0.1", 0))

    def serve_twice():
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.sendall(content)
        server.close()

    thread = threading.Thread(target=serve_twice)
    thread.start()
    name = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    seen = []
    with pytest.raises(ImageError, match=f"{name}: video: "):
        seen.extend(each.number for each in video.live_frames(name, reconnect=3))
    thread.join()
    assert seen == list(range(40))


@pytest.mark.slow
def test_a_video_at_an_address_is_read_from_there(clip):
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=Path(clip).parent)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        found = opened(f"http://127.0.0.1:{server.server_port}/clip.mp4", stride=5)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert [item.frame.number for item in found] == [0, 5]


def patched(path, *pairs):
    """The path of a video with some of its bytes replaced."""
    content = path.read_bytes()
    for old, new in pairs:
        assert old in content
        content = content.replace(old, new)
    path.write_bytes(content)
    return str(path)


def write_avi(path, codec="mpeg4", *, size=(64, 48), title=None):
    with av.open(str(path), "w") as container:
        if title:
            container.metadata["title"] = title
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        picture = np.zeros((*size[::-1], 3), np.uint8)
        for _ in range(2):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_metadata_need_not_be_utf_8(tmp_path):
    made = write_avi(tmp_path / "named.avi", title="abcdefgh")
    assert len(opened(patched(made, (b"abcdefgh", b"\xff\xfe\xe9bcdef")))) == 2


def test_an_unknown_codec_is_one_line(tmp_path):
    made = write_avi(tmp_path / "odd.avi")
    (item,) = opened(patched(made, (b"FMP4", b"XQZ9")))
    assert "odd.avi: video: " in str(item.source)
    assert "codec" in str(item.source).lower()


def test_frames_are_limited_whatever_their_container_says(tmp_path, monkeypatch):
    small, large = (write_avi(tmp_path / f"{s}.avi", "mjpeg", size=(s, s)) for s in (64, 640))
    assert len(opened(str(large))) == 2
    header = struct.pack("<ii", 640, 640), struct.pack("<ii", 64, 64)
    disguised = patched(large, header)
    monkeypatch.setattr(video.picture_limits, "PIXELS", 100 * 100)
    assert len(opened(str(small))) == 2
    (item,) = opened(disguised)
    assert "expected at most 10000 pixels, got 640 x 640" in str(item.source)


def test_few_threads_decode_a_live_stream(clip, monkeypatch):
    """Each thread after the first delays H.264 by a frame: 0.6 seconds with 16."""
    streams = []
    plain = video._video_stream_of

    def stream_of(*arguments):
        streams.append(plain(*arguments))
        return streams[-1]

    monkeypatch.setattr(video, "_video_stream_of", stream_of)
    frames = video.live_frames(str(clip))
    next(frames)
    assert streams[0].codec_context.thread_count == 2
    frames.close()


def test_each_frame_is_measured(tmp_path, monkeypatch):
    made = str(write_avi(tmp_path / "fine.avi"))
    frame = next(video.frames(made)).frame
    monkeypatch.setattr(video.picture_limits, "PIXELS", 10)
    with pytest.raises(ImageError, match=r"got 64 x 48\. Scale it down\.$"):
        video._check_frame_size(frame, made)


@pytest.mark.parametrize(
    "text",
    [
        "ffconcat version 1.0\nfile secret.avi\n",
        "#EXTM3U\n#EXTINF:1,\nsecret.avi\n",
    ],
    ids=["ffconcat", "m3u8"],
)
def test_a_file_opens_no_other_file(tmp_path, text):
    write_avi(tmp_path / "secret.avi")
    listed = tmp_path / "clip.mp4"
    listed.write_text(text)
    (item,) = opened(str(listed))
    assert "clip.mp4: video: cannot be read" in str(item.source)
