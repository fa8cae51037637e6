"""Ports on which other programs follow a demo."""

import json
import socket
import threading
from contextlib import closing

import pytest

from engine.cli._darknet.broadcast import JsonPort, MjpegPort
from engine.errors import InputError


@pytest.fixture
def port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def client_of(port):
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.sendall(b"GET / HTTP/1.1\r\n\r\n")
    return client


def everything_from(client):
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_json_is_a_list_from_the_entry_on_at_which_a_client_connects(port):
    entries = JsonPort("-json_port", port)
    entries.send_entry('{"frame_id":1}')
    with client_of(port) as client:
        entries.send_entry('{"frame_id":2}')
        entries.send_entry('{"frame_id":3}')
        entries.close()
        head, _, body = everything_from(client).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"Content-Type: application/json" in head
    assert json.loads(body) == [{"frame_id": 2}, {"frame_id": 3}]


def test_frames_are_parts_of_a_jpeg_stream(port):
    frames = MjpegPort("-mjpeg_port", port)
    with client_of(port) as client:
        frames.send_jpeg(b"one")
        frames.send_jpeg(b"three")
        frames.close()
        head, _, body = everything_from(client).partition(b"\r\n\r\n")
    assert b"multipart/x-mixed-replace; boundary=mjpegstream" in head
    part = b"--mjpegstream\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%b\r\n"
    assert body == part % (3, b"one") + part % (5, b"three")


def test_clients_that_leave_or_do_not_read_are_dropped(port):
    frames = MjpegPort("-mjpeg_port", port)
    with client_of(port) as idle, client_of(port) as reader:
        heard = []
        thread = threading.Thread(target=lambda: heard.append(len(everything_from(reader))))
        thread.start()
        for _ in range(3):
            frames.send_jpeg(bytes(8 << 20))  # more than the buffers of a socket hold
        assert len(frames._clients) == 1
        frames.close()
        thread.join(20)
        assert heard[0] > 24 << 20
        idle.close()


def test_a_port_that_cannot_be_used_is_one_line(port):
    first = MjpegPort("-mjpeg_port", port)
    with pytest.raises(InputError, match=rf"-mjpeg_port {port}: cannot listen: Address already"):
        MjpegPort("-mjpeg_port", port)
    first.close()
    with pytest.raises(InputError, match="-json_port: expected a port from 1 to 65535, got 70000"):
        JsonPort("-json_port", 70000)
