"""The application: routes, error responses and request metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import DeviceError, EngineError, ImageError, InputError
from engine.files.naming import shown
from engine.serve import metrics
from engine.serve.inference import InferenceEndpoint
from engine.serve.lingering_close import LingeringCloseResponse
from engine.serve.metrics import Metrics
from engine.serve.rejection import ClientDisconnectedError, RejectedError
from engine.serve.service import Service
from engine.version import __version__

_FILES = {"/": "page.html", "/page.css": "page.css", "/page.js": "page.js"}
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
PATHS = {"/detect", "/classify", "/model", "/healthz", "/readyz", "/metrics", *_FILES}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_CLIENT_CLOSED_REQUEST = 499  # nginx logs this status for it, too
_STATUSES = ((InputError, 400), (ImageError, 422), (DeviceError, 503), (EngineError, 500))


def make(open_service: Callable[[], Service]) -> Starlette:
    """Return the application; `open_service` is called on the event loop at start-up."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.service = open_service()
        try:
            yield
        finally:
            app.state.service.close()

    app = Starlette(
        routes=[
            Route("/detect", InferenceEndpoint("detector"), methods=["POST"]),
            Route("/classify", InferenceEndpoint("classifier"), methods=["POST"]),
            Route("/model", _model),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz),
            Route("/metrics", _metrics),
            *(Route(path, partial(_file, name)) for path, name in _FILES.items()),
        ],
        middleware=[Middleware(_RequestMetrics)],
        exception_handlers={
            HTTPException: _http_error,
            EngineError: _engine_error,
            ClientDisconnectedError: _client_disconnected,
            Exception: _internal_error,
        },
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # redirects fail on a query string that is not UTF-8
    return app


async def _file(name: str, request: Request) -> Response:
    content = (Path(__file__).parent / "page" / name).read_bytes()
    return Response(content, media_type=_MEDIA_TYPES[Path(name).suffix], headers=_HEADERS)


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
    """Respond with 503 while the device fails, when a restart may help."""
    problem = request.app.state.service.failure
    return PlainTextResponse(f"{problem or 'ok'}\n", 503 if problem else 200)


async def _readyz(request: Request) -> Response:
    """Respond with 503 while requests should go to another server."""
    service = request.app.state.service
    problem = "shutting down" if service.is_draining else service.failure
    return PlainTextResponse(f"{problem or 'ready'}\n", 503 if problem else 200)


async def _metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    info = {
        "version": __version__,
        "device": service.detector.device,
        "task": service.detector.task,
    }
    return Response(service.metrics.text(_gauges(service), info), media_type=metrics.MEDIA_TYPE)


def _gauges(service: Service) -> dict[str, tuple[str, float]]:
    return {
        "engine_queue_depth": ("Pictures that wait for the network.", service.depth),
        "engine_pictures_in_progress": (
            "Accepted pictures without a response.",
            service.accepted_pictures,
        ),
        "engine_requests_in_progress": ("Requests without a response.", service.active_requests),
        "engine_body_bytes": ("Bytes of request bodies held.", service.body_memory.held),
        "engine_picture_bytes": (
            "Bytes reserved for decoded pictures.",
            service.picture_memory.held,
        ),
        "engine_draining": ("1 while the server shuts down.", int(service.is_draining)),
    }


# Handlers are coroutines because Starlette runs other functions in a thread.


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        reason = (
            f"{shown(request.scope['path'][:80])}: expected POST /detect or /classify, or GET /"
        )
    else:
        reason = f"{shown(request.method[:20])}: expected {(error.headers or {}).get('Allow')}"
    return JSONResponse({"error": reason}, error.status_code, error.headers)


async def _engine_error(request: Request, error: Exception) -> Response:
    content = {"error": str(error)}
    if isinstance(error, ImageError):  # "picture" is the name that the service passes
        content["error"] = str(error).removeprefix("picture: ")
    if isinstance(error, RejectedError):
        response = LingeringCloseResponse if error.closes_connection else JSONResponse
        return response(content, error.status, error.headers)
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    return JSONResponse(content, status)


async def _internal_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"internal error: {type(error).__name__}"}, 500)


async def _client_disconnected(request: Request, error: Exception) -> Response:
    """Return a response that nobody receives, for the metrics."""
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


class _RequestMetrics:
    """Middleware that records the status and the duration of every request by path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500

        async def record_status_and_send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, record_status_and_send)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            recorded: Metrics = scope["app"].state.service.metrics
            recorded.add_request(path, status, time.perf_counter() - start)
