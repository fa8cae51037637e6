"""A web server whose answers a test writes byte by byte, such as those of cameras."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

MJPEG = b"multipart/x-mixed-replace; boundary=b"


@contextmanager
def answering(answer):
    """Serve the pieces of answer(request), the request being bytes; yield the server's address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send(client):
        with client, suppress(OSError):
            request = client.recv(1 << 16)
            for piece in answer(request) if request else ():
                client.sendall(piece)

    def serve():
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=send, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def head(kind, status=b"200 OK"):
    return b"HTTP/1.0 %s\r\nContent-Type: %s\r\n\r\n" % (status, kind)


def camera(*parts, seconds=0.02):
    """Yield the answer of a camera that sends these parts, one after the other."""
    yield head(MJPEG)
    for part in parts:
        yield b"--b\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(part)
        yield part + b"\r\n"
        time.sleep(seconds)
