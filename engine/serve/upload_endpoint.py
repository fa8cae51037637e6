"""The steps that every request with a body takes: checks, body, response, release."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from engine.errors import DeviceError, EngineError, ImageError
from engine.serve import body
from engine.serve.rejection import RejectedError, no_memory
from engine.serve.service import Inference, PictureLease, RequestLease, Service, shutting_down
from engine.serve.uploads import Upload, Uploads
from engine.settings import Settings

Answer = TypeVar("Answer")

NO_URLS = "url: expected a picture, got its address. This server runs without --allow-urls"

_MAX_INLINE_ENTRIES = 100  # serializing so few is faster than switching threads
_CHUNK_BYTES = 1 << 16  # per write, so that the response to a slow client is not all buffered
_BYTES_PER_JSON_BYTE = 2  # text and decoded pictures exist at the same time


@dataclass(frozen=True)
class EncodedResponse:
    media_type: str
    content: bytes


@dataclass(frozen=True)
class Exchange:
    """A request whose body was read, with its lease."""

    service: Service
    lease: RequestLease
    request: Request
    content: bytes

    async def parse(self, parse: Callable[[bytes], Uploads], *, is_json: bool) -> Uploads:
        """Return the pictures in the body; parse large bodies in a thread."""
        decoded = len(self.content) * _BYTES_PER_JSON_BYTE
        if is_json and not self.lease.try_reserve_body(decoded):
            most = self.service.body_memory.largest // (1 + _BYTES_PER_JSON_BYTE)
            if len(self.content) > most:
                got = len(self.content)
                raise RejectedError(413, f"body: expected at most {most} bytes of JSON, got {got}")
            raise no_memory("pictures in base64")
        uploads = await self.service.run_in_thread(partial(parse, self.content))
        if any(each.url is not None for each in uploads.pictures) and not self.service.fetcher:
            raise RejectedError(
                403, "url: expected pictures; this server runs without --allow-urls"
            )
        self.lease.accept_pictures(len(uploads.pictures) - 1)
        return uploads

    async def infer(
        self,
        upload: Upload,
        settings: Settings,
        answer: Callable[[Inference], Answer],
        *,
        draws: bool = False,
    ) -> Answer:
        """Run the network on one picture; return `answer` of the result, computed in a thread.

        The picture's memory is then released: otherwise pictures of one request could wait for each
        other's forever.
        """
        lease = PictureLease(self.lease, await self._content(upload))
        try:
            inference = await self.service.infer(lease, settings, draws=draws)
            if not draws and len(inference.outcome) <= _MAX_INLINE_ENTRIES:
                return answer(inference)
            return await self.service.run_in_thread(partial(answer, inference))
        finally:
            lease.release()

    async def infer_all(
        self,
        uploads: Sequence[Upload],
        settings: Settings,
        answer: Callable[[Inference], Answer],
    ) -> list[Answer | EngineError]:
        """Return the answer or the error of each picture; raise errors that are not a picture's."""
        answers = await asyncio.gather(
            *(self.infer(each, settings, answer) for each in uploads),
            return_exceptions=True,
        )
        kept: list[Answer | EngineError] = []
        for each in answers:
            if isinstance(each, BaseException) and not _is_of_picture(each):
                raise each
            kept.append(each)  # type: ignore[arg-type]
        return kept

    async def _content(self, upload: Upload) -> bytes:
        if upload.url is None:
            return upload.content
        assert self.service.fetcher is not None
        return await self.service.fetcher.fetch(upload.url, self.lease.try_reserve_body)


def _is_of_picture(error: BaseException) -> bool:
    is_too_large = isinstance(error, RejectedError) and error.status == 413
    return is_too_large or (isinstance(error, ImageError) and not isinstance(error, DeviceError))


class UploadEndpoint(ABC):
    """An ASGI endpoint that reads a body within the limits of the service."""

    @abstractmethod
    def check(self, request: Request, service: Service) -> None:
        """Raise an error if the request cannot succeed, before its body is read."""

    @abstractmethod
    async def respond(self, exchange: Exchange) -> EncodedResponse:
        """Return the response to a request whose body was read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service: Service = scope["app"].state.service
        request = Request(scope)
        lease = RequestLease(service, request.client.host if request.client else "-")
        try:
            scope["app"].state.access.check_origin(request.headers)
            self.check(request, service)
            service.reject_if_draining()
            try:
                response = await self._answered(request, receive, lease)
            except asyncio.CancelledError:
                if service.is_abandoned:  # uvicorn would answer 500
                    raise shutting_down() from None
                raise
            await _send(send, response)
        finally:
            lease.release()

    async def _answered(
        self, request: Request, receive: Receive, lease: RequestLease
    ) -> EncodedResponse:
        service = lease.service
        with service.reading_body(lease.client):
            content = await body.read(receive, service.limits, lease.try_reserve_body)
        lease.accept_pictures(1)
        watch = asyncio.ensure_future(_watch_disconnect(receive, lease))
        try:
            return await self.respond(Exchange(service, lease, request, content))
        finally:
            watch.cancel()


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
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for start in range(0, len(content), _CHUNK_BYTES):
        end = start + _CHUNK_BYTES
        chunk, has_more = content[start:end], end < len(content)
        await send({"type": "http.response.body", "body": chunk, "more_body": has_more})
