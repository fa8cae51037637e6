"""The framing of darknet's -json_port and -mjpeg_port: an endless HTTP response."""

from __future__ import annotations

from dataclasses import dataclass

_HEADER = (
    "HTTP/1.0 200 OK\r\nConnection: close\r\nCache-Control: no-cache, private\r\n"
    "Pragma: no-cache\r\n{}\r\n"
)
_BOUNDARY = "mjpegstream"


@dataclass(frozen=True)
class Framing:
    """The bytes around the parts: before the first one, between two, and after the last one."""

    content_type: str
    first: bytes = b""
    separator: bytes = b""
    last: bytes = b""

    def header(self, **more: str) -> bytes:
        """Return the head of the response; keyword arguments are headers, with _ for -."""
        headers = {"Content-Type": self.content_type, **more}
        lines = (f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return _HEADER.format("".join(lines)).encode()


JSON = Framing("application/json", b"[\n", b", \n", b"\n]")  # a list with an entry for each frame
MJPEG = Framing(f"multipart/x-mixed-replace; boundary={_BOUNDARY}")  # a picture for each frame


def jpeg_part(content: bytes) -> bytes:
    head = f"--{_BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content + b"\r\n"
