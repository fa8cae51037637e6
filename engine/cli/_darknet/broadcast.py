"""-mjpeg_port and -json_port: send each frame to everybody who connects, as darknet does."""

from __future__ import annotations

import socket
from contextlib import suppress

from engine.errors import InputError

_SECONDS = 0.4  # darknet's limit for one part; a client that is slower is disconnected
_MAX_CLIENTS = 32
_HEADER = (
    "HTTP/1.0 200 OK\r\nConnection: close\r\nCache-Control: no-cache, private\r\n"
    "Pragma: no-cache\r\nContent-Type: {}\r\n\r\n"
)


class Broadcast:
    """A port whose clients all get the same parts, from the part on at which they connect."""

    def __init__(self, option: str, port: int, content_type: str) -> None:
        if not 0 < port < 65536:
            raise InputError(f"{option}: expected a port from 1 to 65535, got {port}")
        self._header = _HEADER.format(content_type).encode()
        self._clients: list[socket.socket] = []
        self._listener = socket.socket()
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind(("", port))
            self._listener.listen()
        except OSError as error:
            self._listener.close()
            raise InputError(f"{option} {port}: cannot listen: {error.strerror}") from None
        self._listener.setblocking(False)

    def send(self, part: bytes, *, first: bytes = b"", separator: bytes = b"") -> None:
        """Send a part: after `first` to new clients, after `separator` to the others."""
        before, self._clients = self._clients, []
        for client in before:
            self._send_to(client, separator + part)
        while len(self._clients) < _MAX_CLIENTS:
            try:
                client, _ = self._listener.accept()
            except OSError:  # nobody is waiting
                break
            self._send_to(client, self._header + first + part)

    def close(self, end: bytes = b"") -> None:
        self._listener.close()
        before, self._clients = self._clients, []
        for client in before:
            self._send_to(client, end)
        for client in self._clients:
            client.close()

    def _send_to(self, client: socket.socket, content: bytes) -> None:
        """Send and keep the client, or disconnect it; what it has sent is read and ignored."""
        try:
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.recv(1 << 16)
            client.settimeout(_SECONDS)
            client.sendall(content)
        except OSError:
            client.close()
        else:
            self._clients.append(client)


class MjpegPort(Broadcast):
    """Frames as JPEGs, which a browser shows as a moving picture."""

    def __init__(self, option: str, port: int) -> None:
        super().__init__(option, port, "multipart/x-mixed-replace; boundary=mjpegstream")

    def send_jpeg(self, content: bytes) -> None:
        head = (
            f"--mjpegstream\r\nContent-Type: image/jpeg\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self.send(head.encode() + content + b"\r\n")


class JsonPort(Broadcast):
    """A JSON list with an element for each frame."""

    def __init__(self, option: str, port: int) -> None:
        super().__init__(option, port, "application/json")

    def send_entry(self, entry: str) -> None:
        self.send(entry.encode(), first=b"[\n", separator=b", \n")

    def end(self) -> None:
        self.close(b"\n]")
