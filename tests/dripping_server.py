"""Servers whose answer never ends, although bytes keep arriving."""

import socket
import threading
from contextlib import suppress

import pytest

DRIPS = {
    "headers": (b"HTTP/1.1 200 OK\r\nX-Long: ", b"a"),
    "chunk extension": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"a"),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b"a"),
}


@pytest.fixture
def dripping():
    """Start servers that send a beginning and then a few bytes at a time, endlessly."""
    is_over, threads = threading.Event(), []

    def start(beginning, drop):
        listener = socket.create_server(("127.0.0.1", 0))

        def serve():
            listener.settimeout(10)
            with listener, suppress(OSError):
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(beginning)
                    while not is_over.wait(0.02):
                        peer.sendall(drop)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/a.png"

    yield start
    is_over.set()
    for each in threads:
        each.join()
