"""`detector demo` prints and writes the objects of each frame."""

import json
import re
import socket

import numpy as np
import pytest
from PIL import Image

from engine import cli
from engine.cli._darknet.broadcast import JsonPort
from tests import needs
from tests.cli.darknet.parcel_set import MODEL, ROOT

needs.package("av")

COMMAND = ["detector", "demo", *MODEL, "street.mp4", "-nogpu", "-dont_show"]
FRAMES = 2


@pytest.fixture(autouse=True)
def video(here):
    import av

    with Image.open(ROOT / "docs/parcel.jpg") as parcel, av.open("street.mp4", "w") as container:
        stream = container.add_stream(container.default_video_codec, rate=5)
        stream.width = stream.height = 400
        stream.pix_fmt = "yuv420p"
        for number in range(FRAMES):
            area = parcel.convert("RGB").crop((20 * number, 0, 400 + 20 * number, 400))
            frame = av.VideoFrame.from_ndarray(np.asarray(area), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def test_each_frame_is_printed_as_by_darknet(capsys):
    assert cli.main([*COMMAND, "-thresh", "0.5", "-ext_output"]) == 0
    heading, *frames = capsys.readouterr().out.split("\033[H\033[JObjects:\n\n")
    assert heading.startswith(" GPU isn't used \nDemo\nmini_batch = 1, batch = 1, ")
    assert heading.endswith("\nvideo file: street.mp4\n")
    assert len(frames) == FRAMES
    *lines, rates = frames[0].strip().splitlines()
    (line,) = [each for each in lines if each.startswith("aztec")]
    place = r"left_x:   3\d   top_y:   6\d   width:  16\d   height:  14\d"  # as the codec leaves it
    assert re.fullmatch(rf"aztec: 9\d% \t\({place}\)", line)
    assert rates == "FPS:0.0 \t AVG_FPS:0.0"
    assert frames[-1].endswith("\ninput video stream closed. \n")


def test_outputs(here, capsys):
    options = ["-out_filename", "found.avi", "-prefix", "frame", "-json_file_output", "found.json"]
    for name in ("found.avi", "frame_00000001.jpg", "found.json"):
        (here / name).write_text("of an earlier run")  # is replaced, as by darknet
    assert cli.main([*COMMAND, *options]) == 0
    assert "output_video_writer closed. \n" in capsys.readouterr().out
    entries = json.loads((here / "found.json").read_text())
    assert [entry["frame_id"] for entry in entries] == [1, 2]
    assert "filename" not in entries[0]
    assert {each["name"] for each in entries[0]["objects"]} == {"aztec", "barcode"}
    assert sorted(each.name for each in here.glob("frame_*")) == [
        f"frame_0000000{number}.jpg" for number in (1, 2)
    ]
    assert cli.main(["detector", "demo", *MODEL, "found.avi", "-nogpu", "-dont_show"]) == 0
    assert capsys.readouterr().out.count("Objects:") == FRAMES


def test_frames_without_boxes_and_a_limit_of_time(here, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("engine.cli._darknet.demo.time.perf_counter", lambda: next(clock) * 10.0)
    options = ["-prefix", "plain", "-dontdraw_bbox", "-time_limit_sec", "1"]
    assert cli.main([*COMMAND, *options]) == 0
    (only,) = here.glob("plain_*")
    with Image.open(only) as plain, Image.open("set/2.png") as first:
        difference = np.asarray(plain, int) - np.asarray(first.convert("RGB"), int)
    assert np.abs(difference).mean() < 6  # no box was drawn


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["new/inner/x", "new/"])
def test_the_folder_of_a_prefix_is_made(here, prefix):
    assert cli.main([*COMMAND, "-prefix", prefix]) == 0
    assert len(list((here / "new").rglob("*_0000000?.jpg"))) == FRAMES


def test_ports_are_opened(capsys, monkeypatch):
    sent = []
    port = "engine.cli._darknet.demo_outputs"
    monkeypatch.setattr(f"{port}.MjpegPort.send_jpeg", lambda self, part: sent.append(part[:2]))
    monkeypatch.setattr(f"{port}.JsonPort.send_entry", lambda self, entry: sent.append(entry[:1]))
    monkeypatch.setattr(f"{port}.MjpegPort.__init__", lambda *_: None)
    monkeypatch.setattr(f"{port}.JsonPort.__init__", lambda *_: None)
    for name in ("MjpegPort.close", "JsonPort.close"):
        monkeypatch.setattr(f"{port}.{name}", lambda self: sent.append("closed"))
    assert cli.main([*COMMAND, "-http_port", "8090", "-json_port", "8070"]) == 0
    assert sent == [b"\xff\xd8", "{"] * FRAMES + ["closed", "closed"]
    assert "-mjpeg_port 8090: everybody who reaches it" in capsys.readouterr().err


class JsonClient:
    """A program for darknet's JSON port, written from darknet's documentation.

    It sends a request, skips the head of the answer and decodes one object after the other: a list
    whose end only comes with the end of the video.
    """

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")

    def frames(self):
        with self._socket, self._socket.makefile(encoding="utf-8", newline="") as answer:
            while answer.readline().strip():
                pass
            text = answer.read().strip().removeprefix("[")
        decoder = json.JSONDecoder()
        while (text := text.lstrip(" \n,")) and text != "]":
            frame, end = decoder.raw_decode(text)
            text = text[end:]
            yield frame


def test_a_program_for_the_json_port_of_darknet_reads_all_frames(monkeypatch):
    clients = []

    class Watched(JsonPort):
        def __init__(self, option, port):
            super().__init__(option, port)
            clients.append(JsonClient(port))  # connected before the first frame

    monkeypatch.setattr("engine.cli._darknet.demo_outputs.JsonPort", Watched)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert cli.main([*COMMAND, "-json_port", str(port), "-thresh", "0.1"]) == 0
    frames = list(clients[0].frames())
    assert [each["frame_id"] for each in frames] == list(range(1, FRAMES + 1))
    objects = [found for each in frames for found in each["objects"]]
    assert objects
    for found in objects:
        assert set(found) == {"class_id", "name", "relative_coordinates", "confidence"}
        place = found["relative_coordinates"]
        assert set(place) == {"center_x", "center_y", "width", "height"}
        assert 0 < place["center_x"] < 1
        assert 0.1 <= found["confidence"] <= 1


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["set/1.png"], 2, "set/1.png: expected a video, a stream or no name for the camera."),
        (["none.mp4"], 1, "Error: none.mp4: video: cannot be read"),
        (["street.mp4", "-mjpeg_port", "99999"], 2, "-mjpeg_port: expected a port from 1 to 65535"),
        (["street.mp4", "-out_filename", "street.mp4"], 2, "would replace a file that is read"),
        (
            ["street.mp4", "-out_filename", "x.mp4", "-json_file_output", "./x.mp4"],
            *(2, "-out_filename and -json_file_output: expected different files, got one"),
        ),
        (["street.mp4", "-out_filename", "found.txt"], 2, "found.txt: expected one of .avi"),
    ],
)
def test_mistakes_are_one_line(capsys, words, status, message):
    assert cli.main(["detector", "demo", *MODEL, *words, "-nogpu", "-dont_show"]) == status
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", ["res.xyz", "res"])
def test_a_video_that_cannot_be_written_is_refused_before_the_network_is_read(capsys, here, name):
    (here / "not.weights").write_bytes(b"")
    words = ["detector", "demo", *MODEL[:2], "not.weights", "street.mp4", "-nogpu"]
    assert cli.main([*words, "-out_filename", name]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith(f"Error: {name}: expected one of .avi, ")


def test_a_missing_window_is_told(capsys):
    assert cli.main([*COMMAND[:-1]]) == 0
    assert "no window is opened. See -out_filename" in capsys.readouterr().err
