"""GET /sources, and streams of the pictures and results of each source."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from engine.serve import live
from engine.serve.live import Encoder, SeenFrame, Viewer
from engine.serve.protocol import STREAM
from engine.serve.service import Service

_BOUNDARY = "frame"
MJPEG = f"multipart/x-mixed-replace; boundary={_BOUNDARY}"
JSON_LINES = "application/jsonl"
_HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "close",  # the server ends a stream only when it shuts down
    "X-Accel-Buffering": "no",  # nginx would buffer parts
    "X-Content-Type-Options": "nosniff",
}


def routes() -> list[Route]:
    return [
        Route("/sources", _list),
        Route("/sources/{number}/mjpeg", StreamEndpoint(_jpeg_part, MJPEG), methods=["GET"]),
        Route(
            "/sources/{number}/jsonl", StreamEndpoint(live.json_line, JSON_LINES), methods=["GET"]
        ),
    ]


async def _list(request: Request) -> Response:
    service: Service = request.app.state.service
    sources = [each.to_dict() for each in service.live]
    return JSONResponse({"sources": sources}, headers={"Cache-Control": "no-store"})


def _jpeg_part(seen: SeenFrame) -> bytes:
    content = seen.jpeg
    head = f"--{_BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content + b"\r\n"


class StreamEndpoint:
    """An ASGI endpoint that sends the newest part of a source whenever the client is ready."""

    def __init__(self, encode: Encoder, media_type: str) -> None:
        self._encode = encode
        self._media_type = media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        service: Service = scope["app"].state.service
        scope["app"].state.access.check_origin(request.headers)
        service.reject_if_draining()
        source = service.live.find(request.path_params["number"])
        start = Response(headers=_HEADERS, media_type=self._media_type)
        del start.headers["content-length"]
        with service.live.viewing(source, self._encode) as viewer:
            scope[STREAM] = True
            await send({"type": "http.response.start", "status": 200, "headers": start.raw_headers})
            if request.method == "GET":
                await self._send_until_gone(service, viewer, receive, send)
            await send({"type": "http.response.body", "body": b""})

    async def _send_until_gone(
        self, service: Service, viewer: Viewer, receive: Receive, send: Send
    ) -> None:
        sending = asyncio.ensure_future(self._send_parts(service, viewer, send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            done, _ = await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending in done:
                sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_parts(self, service: Service, viewer: Viewer, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        async with aclosing(viewer.parts(service.picture_memory)) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                # This returns when the client has taken the part.
                await send({"type": "http.response.body", "body": b"", "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
