"""The POST endpoints: a picture is uploaded, and the response says what it shows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from engine.serve import body, request_options
from engine.serve.rejection import RejectedError
from engine.serve.request_options import RequestOptions, ResponseFormat
from engine.serve.service import Inference, RequestLease, Service
from engine.vision import encode, serialize
from engine.vision.result import Result

_MAX_INLINE_ENTRIES = 100  # so few are serialized faster than another thread takes over
_CHUNK_BYTES = 1 << 16  # of a response, so that a slow client does not make all of it buffered
_PATHS = {"detector": "/detect", "classifier": "/classify"}


@dataclass(frozen=True)
class EncodedResponse:
    media_type: str
    content: bytes


class InferenceEndpoint:
    """The ASGI endpoint for networks of one task, "detector" or "classifier"."""

    def __init__(self, task: str) -> None:
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service
        request = Request(scope)
        lease = RequestLease(service)
        try:
            options = self._options(request, service)
            body.check_headers(request.headers, service.limits)
            service.reject_if_draining()
            service.reject_if_full()
            with service.reading_body():
                lease.content = await body.read(receive, service.limits, lease.try_reserve_body)
            lease.accept_picture()
            watch = asyncio.ensure_future(_watch_disconnect(receive, lease))
            try:
                response = await _respond(service, lease, request, options)
            finally:
                watch.cancel()
            await _send(send, response)
        finally:
            lease.release()

    def _options(self, request: Request, service: Service) -> RequestOptions:
        detector = service.detector
        if detector.task != self._task:
            hint = f"POST {_PATHS[detector.task]}"
            raise RejectedError(404, f"{_PATHS[self._task]}: this is a {detector.task}. {hint}")
        if _is_cross_origin(request.headers):
            raise RejectedError(403, "Origin: expected a page of this server, got another's")
        return request_options.parse(
            *(request.query_params.multi_items(), request.headers.get("accept")),
            defaults=detector.settings,
            labels=detector.labels,
            has_boxes=detector.task == "detector",
        )


def _is_cross_origin(headers: Headers) -> bool:
    """Return whether a page of another origin sent the request.

    Sec-Fetch-Site decides where a browser sends it (over HTTPS and to localhost), since a proxy may
    have changed Host. An opaque origin is "null".
    """
    if site := headers.get("sec-fetch-site"):
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


async def _respond(
    service: Service, lease: RequestLease, request: Request, options: RequestOptions
) -> EncodedResponse:
    name = None
    if body.is_form(request.headers):
        extract = partial(body.extract_file, lease.content, request.headers)
        lease.content, name = await service.run_in_thread(extract)
    is_json = options.format == "json"
    inference = await service.infer(lease, options.settings, draws=not is_json)
    if is_json and len(inference.outcome) <= _MAX_INLINE_ENTRIES:
        return _serialize(inference, name)
    if is_json:
        return await service.run_in_thread(partial(_serialize, inference, name))
    return await service.run_in_thread(partial(_draw, inference, options.format))


def _serialize(inference: Inference, name: str | None) -> EncodedResponse:
    entry = {**inference.outcome.to_dict(), "path": name}
    entry["timing_ms"]["queue"] = inference.queue_ms
    return EncodedResponse("application/json", serialize.json_text(entry).encode())


def _draw(inference: Inference, image_format: ResponseFormat) -> EncodedResponse:
    assert isinstance(inference.outcome, Result)
    image = inference.outcome.plot(inference.picture)
    return EncodedResponse(f"image/{image_format}", encode.encode(image, f"picture.{image_format}"))


async def _watch_disconnect(receive: Receive, lease: RequestLease) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    lease.is_disconnected = True


async def _send(send: Send, response: EncodedResponse) -> None:
    content = response.content
    headers = [
        (b"content-type", response.media_type.encode()),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for start in range(0, len(content), _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        chunk, has_more = content[start:end], end < len(content)
        await send({"type": "http.response.body", "body": chunk, "more_body": has_more})
