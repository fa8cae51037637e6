"""The addresses, and what each of them answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import DeviceError, EngineError, ImageError, InputError
from engine.serve import metrics
from engine.serve.last_answer import LastAnswer
from engine.serve.post import Post
from engine.serve.refusal import ClientLeftError, RefusedError
from engine.serve.service import Service
from engine.version import __version__
from engine.vision.naming import shown

_FILES = {"/": "page.html", "/page.css": "page.css", "/page.js": "page.js"}
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
ADDRESSES = {"/detect", "/classify", "/model", "/healthz", "/readyz", "/metrics", *_FILES}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_CLIENT_LEFT = 499  # as nginx counts them
_STATUSES = ((InputError, 400), (ImageError, 422), (DeviceError, 503), (EngineError, 500))


def make(open_service: Callable[[], Service]) -> Starlette:
    """`open_service` is called on the event loop when the server starts."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.service = open_service()
        try:
            yield
        finally:
            app.state.service.close()

    app = Starlette(
        routes=[
            Route("/detect", Post("detector"), methods=["POST"]),
            Route("/classify", Post("classifier"), methods=["POST"]),
            Route("/model", _model),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz),
            Route("/metrics", _metrics),
            *(Route(path, partial(_file, name)) for path, name in _FILES.items()),
        ],
        middleware=[Middleware(_Counted)],
        exception_handlers={
            HTTPException: _answer_http,
            EngineError: _answer_error,
            ClientLeftError: _say_nothing,
            Exception: _answer_bug,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # it reads the query as text, which it need not be
    return app


async def _file(name: str, request: Request) -> Response:
    content = (Path(__file__).parent / "page" / name).read_bytes()
    return Response(content, media_type=_KINDS[Path(name).suffix], headers=_HEADERS)


async def _model(request: Request) -> Response:
    detector = request.app.state.service.detector
    width, height = detector.size
    chosen = detector.settings
    return JSONResponse(
        {
            "engine": __version__,
            "task": detector.task,
            "device": detector.device,
            "width": width,
            "height": height,
            "classes": detector.labels,
            "batch": chosen.batch,
            "threshold": chosen.threshold,
            "nms": chosen.nms,
            "top_k": chosen.top_k,
        }
    )


async def _healthz(request: Request) -> Response:
    """Whether it helps to leave this process alone."""
    trouble = request.app.state.service.failure
    return PlainTextResponse(f"{trouble or 'ok'}\n", 503 if trouble else 200)


async def _readyz(request: Request) -> Response:
    """Whether pictures should be sent here."""
    service = request.app.state.service
    trouble = "about to end" if service.is_draining else service.failure
    return PlainTextResponse(f"{trouble or 'ready'}\n", 503 if trouble else 200)


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    about = {
        "version": __version__,
        "device": service.detector.device,
        "task": service.detector.task,
    }
    return Response(service.metrics.text(_gauges(service), about), media_type=metrics.KIND)


def _gauges(service: Service) -> dict[str, tuple[str, float]]:
    return {
        "engine_queue_depth": ("Pictures that wait for the network.", service.depth),
        "engine_pictures_in_progress": ("Pictures taken in and not answered.", service.places),
        "engine_requests_in_progress": ("Requests not answered.", service.visits),
        "engine_body_bytes": ("Bytes of bodies held.", service.bodies.held),
        "engine_picture_bytes": ("Bytes set aside for decoded pictures.", service.pictures.held),
        "engine_draining": ("Whether the server is about to end.", int(service.is_draining)),
    }


# Handlers are coroutines: others would each be given a thread.


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        reason = (
            f"{shown(request.scope['path'][:80])}: expected POST /detect or /classify, or GET /"
        )
    else:
        reason = f"{shown(request.method[:20])}: expected {(error.headers or {}).get('Allow')}"
    return JSONResponse({"error": reason}, error.status_code, error.headers)


async def _answer_error(request: Request, error: Exception) -> Response:
    content = {"error": str(error)}
    if isinstance(error, ImageError):  # the only name that an encoded picture has is "picture"
        content["error"] = str(error).removeprefix("picture: ")
    if isinstance(error, RefusedError):
        kind = LastAnswer if error.is_last else JSONResponse
        return kind(content, error.status, error.headers)
    return JSONResponse(content, next(each for kind, each in _STATUSES if isinstance(error, kind)))


async def _answer_bug(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"internal error: {type(error).__name__}"}, 500)


async def _say_nothing(request: Request, error: Exception) -> Response:
    """For the metrics alone: nobody is there."""
    return Response(status_code=_CLIENT_LEFT)


class _Counted:
    """Every request and the time until its answer, by address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500

        async def note_and_send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, note_and_send)
        finally:
            path = scope["path"] if scope["path"] in ADDRESSES else "other"
            counts: Any = scope["app"].state.service.metrics
            counts.add_request(path, status, time.perf_counter() - start)
