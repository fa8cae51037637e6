"""POST /detect, /classify and /picture."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request

from engine.errors import EngineError
from engine.serve import body, request_options, uploads
from engine.serve.multipart import MEDIA_TYPE as FORM_TYPE
from engine.serve.rejection import RejectedError
from engine.serve.request_options import RequestOptions
from engine.serve.service import Inference, Service
from engine.serve.upload_endpoint import NO_URLS, EncodedResponse, Exchange, UploadEndpoint
from engine.serve.uploads import JSON_TYPE, Upload, Uploads
from engine.version import __version__
from engine.vision import encode, serialize
from engine.vision.result import Result

_PATHS = {"detector": "/detect", "classifier": "/classify"}
_MEDIA_TYPES = {
    "BMP": "image/bmp",
    "GIF": "image/gif",
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "PPM": "image/x-portable-anymap",
    "TIFF": "image/tiff",
    "WEBP": "image/webp",
}  # by Pillow's name
_DOCUMENT_VERSION = 1  # version of a list of entries, see docs/json.md


class InferenceEndpoint(UploadEndpoint):
    """The endpoint for networks of one task, "detector" or "classifier"."""

    def __init__(self, task: str) -> None:
        self._task = task

    def check(self, request: Request, service: Service) -> None:
        refuse_other_task(service, self._task, _PATHS[self._task])
        _options(request, service)
        body.check_headers(request.headers, service.limits)

    async def respond(self, exchange: Exchange) -> EncodedResponse:
        found = await _uploads(exchange)
        options = _options(exchange.request, exchange.service, found.settings)
        if not found.is_list:
            (upload,) = found.pictures
            answer = partial(_encoded, name=upload.name, options=options)
            is_drawn = options.format != "json"
            return await exchange.infer(upload, options.settings, answer, draws=is_drawn)
        if options.format != "json":
            raise RejectedError(406, f"Accept: expected {JSON_TYPE} for several pictures")
        entries = await exchange.infer_all(found.pictures, options.settings, _entry)
        return EncodedResponse(JSON_TYPE, _list(exchange.service, found, entries))


class PictureEndpoint(UploadEndpoint):
    """The endpoint that returns the picture at a URL, which a page may not read cross-origin."""

    def check(self, request: Request, service: Service) -> None:
        body.check_headers(request.headers, service.limits)
        if not service.fetcher:
            raise RejectedError(403, NO_URLS)

    async def respond(self, exchange: Exchange) -> EncodedResponse:
        found = await exchange.parse(uploads.from_json, is_json=True)
        url = found.pictures[0].url
        if found.is_list or url is None or not exchange.service.fetcher:
            raise RejectedError(400, 'body: expected {"url": "https://…"}')
        content = await exchange.service.fetcher.fetch(url, exchange.lease.try_reserve_body)
        media_type = await exchange.service.run_in_thread(
            partial(_media_type, exchange.service, content)
        )
        return EncodedResponse(media_type, content)


def refuse_other_task(service: Service, task: str, path: str) -> None:
    actual = service.detector.task
    if actual != task:
        raise RejectedError(404, f"{path}: this is a {actual}. POST {_PATHS[actual]}")


def _options(
    request: Request, service: Service, settings: Mapping[str, Any] | None = None
) -> RequestOptions:
    """Return the options in the query string, the Accept header and `settings`."""
    detector = service.detector
    options = request_options.parse(
        [*request.query_params.multi_items(), *(settings or {}).items()],
        request.headers.get("accept"),
        defaults=detector.settings,
        labels=detector.labels,
        has_boxes=detector.task == "detector",
    )
    if options.settings.read:
        detector.check_reading()  # an error in the run would fail the whole batch
    return options


async def _uploads(exchange: Exchange) -> Uploads:
    content_type = exchange.request.headers.get("content-type", "")
    media_type = body.media_type_of(exchange.request.headers)
    if media_type == JSON_TYPE:
        return await exchange.parse(uploads.from_json, is_json=True)
    if media_type == FORM_TYPE:
        from_form = partial(uploads.from_form, content_type=content_type)
        return await exchange.parse(from_form, is_json=False)
    return Uploads((Upload(exchange.content),))


def _entry(inference: Inference) -> dict[str, Any]:
    entry = dict(inference.outcome.to_dict())
    entry["timing_ms"]["queue"] = round(inference.queue_ms, 3)
    if inference.picture.damage:
        entry["warning"] = inference.picture.damage
    orientation = inference.picture.orientation
    if orientation != 1 and isinstance(inference.outcome, Result):
        entry["exif"] = {"orientation": orientation, "applied": inference.outcome.oriented}
    return entry


def _encoded(inference: Inference, *, name: str | None, options: RequestOptions) -> EncodedResponse:
    if options.format == "json":
        entry = {**_entry(inference), "path": name}
        return EncodedResponse(JSON_TYPE, serialize.json_text(entry).encode())
    assert isinstance(inference.outcome, Result)
    image = inference.outcome.plot(inference.picture, **options.hiding)
    content = encode.encode(image, f"picture.{options.format}")
    return EncodedResponse(f"image/{options.format}", content)


def _list(service: Service, found: Uploads, entries: list[dict[str, Any] | EngineError]) -> bytes:
    images = []
    for upload, entry in zip(found.pictures, entries, strict=True):
        if isinstance(entry, EngineError):
            images.append({"path": upload.name, "error": str(entry)})
        else:
            images.append({**entry, "path": upload.name})
    document = {
        "version": _DOCUMENT_VERSION,
        "engine": __version__,
        "model": service.model_name,
        "images": images,
    }
    return serialize.json_text(document).encode()


def _media_type(service: Service, content: bytes) -> str:
    """Return the media type of a picture; refuse any other content."""
    return _MEDIA_TYPES[service.decoders.open(content, "picture").format]
