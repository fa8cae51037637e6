"""A camera that sends MJPEG over HTTP."""

import io
import socket
import threading
import time
from contextlib import suppress

import numpy as np
from PIL import Image


class Camera:
    """An MJPEG server that can be switched off and on."""

    def __init__(self, jpeg=None):
        jpeg = jpeg or _noise()
        head = b"--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg)
        self._part = head + jpeg + b"\r\n"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._listener = None
        self.on()

    @property
    def name(self):
        return f"http://me:secret@127.0.0.1:{self.port}/x.mjpg"

    def on(self):
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def off(self):
        listener, self._listener = self._listener, None
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()

    def _serve(self, listener):
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._send, args=(client, listener), daemon=True).start()

    def _send(self, client, listener):
        with client, suppress(OSError):
            client.recv(1 << 16)
            client.sendall(
                b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=b\r\n\r\n"
            )
            while self._listener is listener:
                client.sendall(self._part)
                time.sleep(0.02)


def _noise():
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    Image.fromarray(noise).save(buffer, "JPEG")
    return buffer.getvalue()
