"""-mjpeg_port and -json_port: send each frame to every connected client, as darknet does."""

from __future__ import annotations

import socket
from contextlib import suppress

from engine.errors import InputError
from engine.vision import darknet_streams
from engine.vision.darknet_streams import Framing

_SECONDS = 0.4  # darknet's limit for one part; slower clients are disconnected
_MAX_CLIENTS = 32


class Broadcast:
    """A port that sends the same parts to all clients, from the time they connect."""

    def __init__(self, option: str, port: int, framing: Framing) -> None:
        if not 0 < port < 65536:
            raise InputError(f"{option}: expected a port from 1 to 65535, got {port}")
        self._framing = framing
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

    def send(self, part: bytes) -> None:
        before, self._clients = self._clients, []
        for client in before:
            self._send_to(client, self._framing.separator + part)
        while len(self._clients) < _MAX_CLIENTS:
            try:
                client, _ = self._listener.accept()
            except OSError:  # no connection is pending
                break
            self._send_to(client, self._framing.header() + self._framing.first + part)

    def close(self) -> None:
        self._listener.close()
        before, self._clients = self._clients, []
        for client in before:
            self._send_to(client, self._framing.last)
        for client in self._clients:
            client.close()

    def _send_to(self, client: socket.socket, content: bytes) -> None:
        """Send a part, and disconnect a client that fails; input from it is discarded."""
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
        super().__init__(option, port, darknet_streams.MJPEG)

    def send_jpeg(self, content: bytes) -> None:
        self.send(darknet_streams.jpeg_part(content))


class JsonPort(Broadcast):
    """A JSON list with an element for each frame."""

    def __init__(self, option: str, port: int) -> None:
        super().__init__(option, port, darknet_streams.JSON)

    def send_entry(self, entry: str) -> None:
        self.send(entry.encode())
