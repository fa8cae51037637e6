"""POST: a picture comes in, what is found in it goes out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from engine.serve import body, wish
from engine.serve.refusal import RefusedError
from engine.serve.service import Found, Service, Visit
from engine.serve.wish import Form, Wish
from engine.vision import encode, written
from engine.vision.result import Result

_FEW = 100  # entries, which are written faster than given to a thread
_PIECE = 1 << 16  # of an answer: the next is sent when the client has read most of those before
_ADDRESSES = {"detector": "/detect", "classifier": "/classify"}


@dataclass(frozen=True)
class Answer:
    kind: str
    content: bytes


class Post:
    """`task` is that of the detector for which this address is."""

    def __init__(self, task: str) -> None:
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service
        request = Request(scope)
        visit = Visit(service)
        try:
            wanted = self._wish(request, service)
            body.check_head(request.headers, service.limits)
            service.refuse_if_ending()
            service.refuse_if_full()
            visit.content = await body.read(receive, service.limits, visit.take_body)
            visit.take_place()
            watch = asyncio.ensure_future(_until_gone(receive, visit))
            try:
                answer = await _answer(service, visit, request, wanted)
            finally:
                watch.cancel()
            await _send(send, answer)
        finally:
            visit.leave()

    def _wish(self, request: Request, service: Service) -> Wish:
        detector = service.detector
        if detector.task != self._task:
            where = _ADDRESSES[detector.task]
            raise RefusedError(
                404, f"{_ADDRESSES[self._task]}: this is a {detector.task}. POST {where}"
            )
        if _is_by_another_page(request.headers):
            raise RefusedError(403, "Origin: expected a page of this server, got another's")
        return wish.read(
            *(request.query_params.multi_items(), request.headers.get("accept")),
            usual=detector.settings,
            labels=detector.labels,
            has_boxes=detector.task == "detector",
        )


def _is_by_another_page(headers: Headers) -> bool:
    """A browser tells; only to https and to localhost it sends Sec-Fetch-Site.

    That comes first, since a proxy may have changed Host. An opaque origin is "null".
    """
    if site := headers.get("sec-fetch-site"):
        return site not in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host")


async def _answer(service: Service, visit: Visit, request: Request, wanted: Wish) -> Answer:
    name = None
    if body.is_form(request.headers):
        read = partial(body.file_in, visit.content, request.headers)
        visit.content, name = await service.in_thread(read)
    found = await service.find(visit, wanted.settings, draws=wanted.form != "json")
    if wanted.form == "json" and len(found.outcome) <= _FEW:
        return _written(found, name)
    if wanted.form == "json":
        return await service.in_thread(partial(_written, found, name))
    return await service.in_thread(partial(_drawn, found, wanted.form))


def _written(found: Found, name: str | None) -> Answer:
    entry = {**found.outcome.to_dict(), "path": name}
    entry["timing_ms"]["queue"] = found.milliseconds
    return Answer("application/json", written.document(entry).encode())


def _drawn(found: Found, form: Form) -> Answer:
    assert isinstance(found.outcome, Result)
    image = found.outcome.plot(found.picture)
    return Answer(f"image/{form}", encode.encode(image, f"picture.{form}"))


async def _until_gone(receive: Receive, visit: Visit) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    visit.is_gone = True


async def _send(send: Send, answer: Answer) -> None:
    headers = [
        (b"content-type", answer.kind.encode()),
        (b"content-length", str(len(answer.content)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for start in range(0, len(answer.content), _PIECE):
        end = start + _PIECE
        has_more = end < len(answer.content)
        piece = answer.content[start:end]
        await send({"type": "http.response.body", "body": piece, "more_body": has_more})
