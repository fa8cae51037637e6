"""An untrusted HTTP request, through the whole application without a socket.

An input is `METHOD target`, header lines, an empty line, and the body. No response may be a 500,
and afterwards the service must hold no memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any

import engine
from engine.serve import app
from engine.serve.access import Access
from engine.serve.darknet_ports import DarknetPorts
from engine.serve.server_limits import ServerLimits
from engine.serve.service import Service
from engine.vision.decode_pool import DecodePool
from tools.fuzz.harnesses import pictures

_LIMITS = ServerLimits(pixels=1 << 22, body_bytes=1 << 20)
SIDE = 64

_FORM = b"multipart/form-data; boundary=edge"
_PART = (
    b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n%s'
    b"\r\n--edge--\r\n"
)
_TARGETS = (
    *(b"/detect", b"/detect?threshold=0.01&nms=0.5", b"/detect?classes=qr,1&max-detections=3"),
    *(b"/classify?top_k=2", b"/model", b"/healthz", b"/readyz", b"/metrics", b"/", b"/page.js"),
    *(b"/detect?threshold=nan", b"/detect?classes=" + b"9" * 5000, b"/../etc/passwd", b"/%00"),
)
_HEADERS = (
    *(b"accept: image/png", b"accept: image/jpeg;q=0.5, */*;q=nan", b"accept: text/html"),
    *(b"content-type: image/jpeg", b"content-type: " + _FORM, b"content-type: text/plain"),
    *(b"content-encoding: gzip", b"content-length: 99999999999999999999999", b"content-length: x"),
    *(b"sec-fetch-site: cross-site", b"expect: 100-continue", b"content-type: \xff; boundary=\xff"),
    *(b"content-type: multipart/form-data", b"content-type: multipart/form-data; boundary="),
)


def seeds() -> Iterator[bytes]:
    small = list(pictures.seeds())[:20]
    for picture in small:
        yield b"POST /detect\ncontent-type: image/png\n\n" + picture
        yield b"POST /detect\ncontent-type: " + _FORM + b"\n\n" + _PART % picture
    for target in _TARGETS:
        yield b"POST " + target + b"\n\n" + small[0]
        yield b"GET " + target + b"\n\n"
    for header in _HEADERS:
        yield b"POST /detect\n" + header + b"\n\n" + small[0]


def mutate(data: bytes, random: Random) -> bytes:
    head, _, body = data.partition(b"\n\n")
    lines = head.split(b"\n")
    kind = random.random()
    if kind < 0.3:
        method = random.choice((b"POST", b"POST", b"GET", b"HEAD", b"PUT", b"X" * 300))
        lines[0] = method + b" " + pictures.mutate(random.choice(_TARGETS), random)
    elif kind < 0.5:
        lines.append(random.choice(_HEADERS))
    elif kind < 0.6 and len(lines) > 1:
        index = random.randrange(1, len(lines))
        lines[index] = pictures.mutate(lines[index], random)
    else:
        body = pictures.mutate(body, random)
    return b"\n".join(lines) + b"\n\n" + body


def run(data: bytes) -> None:
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, target = first.partition(b" ")
    path, _, query = target.partition(b"?")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in _partitioned(lines)]
    loop, application = _application()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method.decode("latin-1").upper() or "GET",
        "scheme": "http",
        "path": path.decode("utf-8", "replace") or "/",
        "raw_path": path,
        "root_path": "",
        "query_string": query,
        "headers": headers,
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 9),
    }
    sent = loop.run_until_complete(_respond(application, scope, body))
    (status,) = (each["status"] for each in sent if each["type"] == "http.response.start")
    content = b"".join(each.get("body", b"") for each in sent)
    assert 200 <= status < 600, status
    assert status != 500, content
    if status >= 400 and content.startswith(b"{"):
        assert json.loads(content)["error"].isprintable(), content
    service = application.state.service
    held = (
        *(service.active_requests, service.accepted_pictures),
        *(service.body_memory.held, service.picture_memory.held),
    )
    assert held == (0, 0, 0, 0), held


def _partitioned(lines: list[bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
    return (line.partition(b":") for line in lines if b":" in line)


async def _respond(application: Any, scope: dict[str, Any], body: bytes) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []
    chunks = [body[:1000], body[1000:]]
    has_response = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if chunks:
            chunk = chunks.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(chunks)}
        await has_response.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await asyncio.wait_for(application(scope, receive, send), 20)
    has_response.set()
    return sent


@cache
def _application() -> tuple[asyncio.AbstractEventLoop, Any]:
    """Return the event loop and the application, created once per process."""
    loop = asyncio.new_event_loop()
    detector = engine.load(device="cpu", threads=1, size=SIDE, threshold=0.001)

    async def make() -> Any:
        service = Service(detector, _LIMITS, DecodePool(2), wait_seconds=0)
        made = app.make(lambda: service, Access(), None, DarknetPorts())
        made.state.service = service
        return made

    return loop, loop.run_until_complete(make())
