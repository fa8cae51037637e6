"""The application: routes, error responses and request metrics."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
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
from engine.serve import kserve, live_endpoints, metrics, openapi
from engine.serve.access import Access, AccessLog, Cors, RequireToken
from engine.serve.darknet_ports import DarknetPorts
from engine.serve.host import CheckHost
from engine.serve.inference import InferenceEndpoint, PictureEndpoint
from engine.serve.live import LiveSource
from engine.serve.metrics import Metrics
from engine.serve.rejection import ClientDisconnectedError, RejectedError
from engine.serve.service import Service
from engine.version import __version__

_PAGE = Path(__file__).parent / "page"
_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
FILES = {
    "/": "page.html",
    "/docs": "docs.html",
    **{f"/{path.name}": path.name for path in _PAGE.iterdir() if path.suffix in _MEDIA_TYPES},
}
PROBES = ("/healthz", "/readyz", "/v2/health/live", "/v2/health/ready")
ENDPOINTS = (
    *("/detect", "/classify", "/picture", "/model", "/metrics", "/openapi.json"),
    "/sources",
)
PATHS = {*ENDPOINTS, *PROBES, "/v2", *FILES}
_PUBLIC_PATHS = frozenset((*PROBES, *FILES, "/openapi.json"))  # need no token
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self' blob: data:; media-src 'self' blob:; connect-src 'self'; form-action 'none';"
    " base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_CLIENT_CLOSED_REQUEST = 499  # nginx's status for it
_STATUSES = ((InputError, 400), (ImageError, 422), (DeviceError, 503), (EngineError, 500))


def make(
    open_service: Callable[[], Service],
    access: Access,
    access_log: AccessLog | None,
    ports: DarknetPorts,
) -> Starlette:
    """Return the application; `open_service` is called on the event loop at start-up."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.service = open_service()
        try:
            async with ports.opened(app.state.service, access):
                yield
        finally:
            app.state.service.close()

    app = Starlette(
        routes=[
            Route("/detect", InferenceEndpoint("detector"), methods=["POST"]),
            Route("/classify", InferenceEndpoint("classifier"), methods=["POST"]),
            Route("/picture", PictureEndpoint(), methods=["POST"]),
            Route("/model", _model),
            Route("/openapi.json", _openapi),
            *live_endpoints.routes(),
            *kserve.routes(),
            Route("/healthz", _healthz),
            Route("/readyz", _readyz),
            Route("/metrics", _metrics),
            *(Route(path, partial(_file, name)) for path, name in FILES.items()),
        ],
        middleware=_middleware(access, access_log),
        exception_handlers={
            HTTPException: _http_error,
            EngineError: _engine_error,
            ClientDisconnectedError: _client_disconnected,
            Exception: _internal_error,
        },
        lifespan=lifespan,
    )
    app.state.access = access
    app.state.is_on_loopback = True  # until the server knows its address
    app.router.redirect_slashes = False  # redirects fail on a query string that is not UTF-8
    return app


def _middleware(access: Access, access_log: AccessLog | None) -> list[Middleware]:
    found = [Middleware(_RequestRecords, access_log), Middleware(CheckHost, access.hosts)]
    if access.cors:  # before the token, because a preflight request carries none
        found.append(
            Middleware(
                Cors,
                allow_origins=access.cors,
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type", "Inference-Header-Content-Length"],
                expose_headers=["Retry-After"],
            )
        )
    if access.token is not None:
        found.append(Middleware(RequireToken, access.token, _PUBLIC_PATHS))
    return found


async def _openapi(request: Request) -> Response:
    return JSONResponse(openapi.document(request.app.state.service, request.app.state.access))


async def _file(name: str, request: Request) -> Response:
    content = (_PAGE / name).read_bytes()
    return Response(content, media_type=_MEDIA_TYPES[Path(name).suffix], headers=_HEADERS)


async def _model(request: Request) -> Response:
    service: Service = request.app.state.service
    detector = service.detector
    width, height = detector.size
    chosen = detector.settings
    return JSONResponse(
        {
            "engine": __version__,
            "model": service.model_name,
            "task": detector.task,
            "device": detector.device,
            "width": width,
            "height": height,
            "classes": detector.labels,
            "batch": chosen.batch,
            "threshold": chosen.threshold,
            "nms": chosen.nms,
            "top_k": chosen.top_k,
            "read": chosen.read,
            "accepts_urls": service.fetcher is not None,
        }
    )


async def _healthz(request: Request) -> Response:
    """Respond with 503 while the device fails, which a restart may fix."""
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
    text = service.metrics.text(_gauges(service), info, _of_sources(service))
    return Response(text, media_type=metrics.MEDIA_TYPE)


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


def _of_sources(service: Service) -> list[metrics.Labelled]:
    def of_each(value: Callable[[LiveSource], int]) -> dict[str, float]:
        return {f'source="{each.number}"': value(each) for each in service.live}

    return [
        metrics.Labelled(
            *("engine_source_frames_total", "counter", "Frames of a source that were processed."),
            of_each(lambda each: each.frames),
        ),
        metrics.Labelled(
            *("engine_source_up", "gauge", "1 while a source has frames and results."),
            of_each(lambda each: int(each.is_live)),
        ),
        metrics.Labelled(
            *("engine_source_clients", "gauge", "Clients that follow a source."),
            of_each(lambda each: len(each.viewers)),
        ),
        *_counts(service.live),
    ]


def _counts(live: Iterable[LiveSource]) -> Iterator[metrics.Labelled]:
    """Yield the counts of the lines and zones of all sources."""
    crossings: dict[str, float] = {}
    visitors: dict[str, float] = {}
    inside: dict[str, float] = {}
    for source in live:
        number = str(source.number)
        counts = source.counts or {"lines": (), "zones": ()}
        for line in counts["lines"]:
            for way in ("in", "out"):
                for label, count in line[way].items():
                    place = {"source": number, "line": line["name"], "label": label}
                    crossings[metrics.labels(**place, direction=way)] = count
        for zone in counts["zones"]:
            for label, count in zone["visitors"].items():
                key = metrics.labels(source=number, zone=zone["name"], label=label)
                visitors[key] = count
                inside[key] = zone["inside"].get(label, 0)
    for name, kind, help_text, values in (
        ("engine_line_crossings_total", "counter", "Objects that crossed a line.", crossings),
        ("engine_zone_objects", "gauge", "Objects in a zone.", inside),
        ("engine_zone_visitors_total", "counter", "Objects that were in a zone.", visitors),
    ):
        yield metrics.Labelled(name, kind, help_text, values)


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
    if isinstance(error, RejectedError):
        closing = {"Connection": "close"} if error.closes_connection else {}
        return JSONResponse(content, error.status, error.headers | closing)
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    return JSONResponse(content, status)


async def _internal_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"internal error: {type(error).__name__}"}, 500)


async def _client_disconnected(request: Request, error: Exception) -> Response:
    """Return a response only for the metrics: the client is gone."""
    return Response(status_code=_CLIENT_CLOSED_REQUEST)


class _RequestRecords:
    """Middleware that records every request: metrics by path, and the access log."""

    def __init__(self, app: ASGIApp, access_log: AccessLog | None) -> None:
        self._app = app
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 500
        length = 0

        async def record_status_and_send(message: Message) -> None:
            nonlocal status, length
            status = message.get("status", status)
            length += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, record_status_and_send)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            if path == "other" and scope["path"].startswith("/v2/models/"):
                path = "/v2/models"
            if path == "other" and scope["path"].startswith("/sources/"):
                path = "/sources/N"
            recorded: Metrics = scope["app"].state.service.metrics
            seconds = time.perf_counter() - start
            recorded.add_request(path, status, seconds)
            if self._access_log:
                target = (scope["raw_path"] or b"").decode("latin-1")
                if scope["query_string"]:
                    target += "?" + scope["query_string"].decode("latin-1")
                client = scope["client"][0] if scope["client"] else "-"
                self._access_log.add(client, scope["method"], target, status, length, seconds)
