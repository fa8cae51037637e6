"""The OpenAPI 3.1 description of a server, for its task, model and access."""

from __future__ import annotations

from typing import Any

from engine.serve import kserve
from engine.serve.access import Access
from engine.serve.live_endpoints import JSON_LINES, MJPEG
from engine.serve.request_options import (
    CLASSIFICATION_PARAMETERS,
    DETECTION_PARAMETERS,
    PICTURE_PARAMETERS,
)
from engine.serve.service import Service
from engine.version import __version__

_Object = dict[str, Any]

_IMAGES = ("image/jpeg", "image/png")
_FRACTION = {"type": "number", "minimum": 0, "maximum": 1}
_COUNT = {"type": "integer", "minimum": 1}
_CLASSES = {
    "type": "array",
    "minItems": 1,
    "items": {"type": ["string", "integer"]},
}
_TILES = {
    "oneOf": [
        {"type": "string", "pattern": "^(auto|none|[0-9]+(x[0-9]+)?)$"},
        _COUNT,
        {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2},
    ]
}
_SETTINGS: dict[str, tuple[_Object, str]] = {
    "threshold": (_FRACTION, "The minimum score."),
    "nms": (_FRACTION, "The maximum IoU of two boxes of a class."),
    "classes": (_CLASSES, "The classes to return, by name or number."),
    "max_detections": (_COUNT, "The number of detections to return at most."),
    "read": ({"type": "boolean"}, "Whether to read the codes that are found."),
    "tiles": (_TILES, "Into which a picture is cut: auto, none, SIZE or COLUMNSxROWS."),
    "overlap": ({"type": "number", "minimum": 0, "maximum": 0.8}, "Of neighbouring tiles."),
    "blur": (_CLASSES, "The classes to blur in an annotated picture, or all."),
    "pixelate": (_CLASSES, "The classes to pixelate in an annotated picture, or all."),
    "top_k": (_COUNT, "The number of classes to return."),
}
_ERRORS = {
    400: "A setting, a form or JSON is invalid.",
    401: "The token is missing or wrong.",
    403: "A page of another origin sent the request, or a URL is not allowed.",
    404: "There is no such address or model, or the server has another task.",
    405: "The address does not take this method.",
    406: "Accept names nothing that the server can return.",
    408: "The body was not complete in time.",
    413: "The body or the picture is too large.",
    415: "Content-Type or Content-Encoding is not supported.",
    422: "The picture cannot be read.",
    501: "Transfer-Encoding is not supported.",
    503: "The server is full, shuts down, or its device fails.",
}
_UPLOAD_ERRORS = (400, 401, 403, 404, 405, 406, 408, 413, 415, 422, 501, 503)


def document(service: Service, access: Access) -> _Object:
    """Return the description."""
    is_detector = service.detector.task == "detector"
    task_path = "/detect" if is_detector else "/classify"
    found: _Object = {
        "openapi": "3.1.0",
        "info": {
            "title": f"engine: {service.model_name}",
            "version": __version__,
            "description": f"A {service.detector.task} with {len(service.detector.labels)} classes."
            " Errors are one line of JSON.",
        },
        "paths": {
            task_path: {"post": _inference(is_detector)},
            "/picture": {"post": _picture()},
            "/model": {"get": _get("model", "What runs.", _ref("Model"))},
            **_probes(),
            "/metrics": {"get": _text("metrics", "Metrics for Prometheus.")},
            "/openapi.json": {
                "get": _get("openapi", "This description.", {"type": "object"}, is_public=True)
            },
            **_live(),
            **_kserve(service.model_name),
        },
        "components": {"schemas": _schemas(is_detector)},
    }
    if access.token is not None:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    if not access.allow_urls:
        del found["paths"]["/picture"]
    return found


def _ref(name: str) -> _Object:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: _Object) -> _Object:
    return {"application/json": {"schema": schema}}


def _errors(*statuses: int) -> _Object:
    found: _Object = {
        str(status): {"description": _ERRORS[status], "content": _json(_ref("Error"))}
        for status in statuses
    }
    if "503" in found:
        seconds = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
        found["503"]["headers"] = {"Retry-After": seconds}
    return found


def _get(name: str, summary: str, schema: _Object, *, is_public: bool = False) -> _Object:
    ok = {"description": summary, "content": _json(schema)}
    found: _Object = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": ok, **_errors(401, 405)},
    }
    if is_public:
        found["security"] = []
        del found["responses"]["401"]
    return found


def _text(name: str, summary: str, *, is_probe: bool = False) -> _Object:
    content = {"text/plain": {"schema": {"type": "string"}}}
    found: _Object = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}, **_errors(401, 405)},
    }
    if is_probe:
        found["security"] = []
        del found["responses"]["401"]
        found["responses"]["503"] = {"description": "The reason.", "content": content}
    return found


def _probes() -> _Object:
    return {
        "/healthz": {"get": _text("healthz", "Whether the device works.", is_probe=True)},
        "/readyz": {"get": _text("readyz", "Whether requests are welcome.", is_probe=True)},
    }


def _inference(is_detector: bool) -> _Object:
    settings = _settings(is_detector)
    one_or_several: _Object = _json({"oneOf": [_ref("Entry"), _ref("Entries")]})
    picture = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
    drawn = dict.fromkeys(_IMAGES, picture) if is_detector else {}
    return {
        "operationId": "detect" if is_detector else "classify",
        "summary": "Find objects in pictures." if is_detector else "Name what pictures show.",
        "description": "The body is an encoded picture, a form with one or several files, or JSON."
        " Several pictures get a list. Accept chooses JSON or a picture with boxes.",
        "parameters": [
            {
                "name": name,
                "in": "query",
                "description": _SETTINGS[name][1],
                "schema": _SETTINGS[name][0],
                **({"style": "form", "explode": False} if _SETTINGS[name][0] is _CLASSES else {}),
            }
            for name in settings
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": picture,
                "multipart/form-data": {
                    "schema": {
                        "type": "object",
                        "properties": {
                            "image": {
                                "type": "array",
                                "items": {
                                    "type": "string",
                                    "contentMediaType": "application/octet-stream",
                                },
                            }
                        },
                        "required": ["image"],
                    }
                },
                **_json(_ref("Request")),
            },
        },
        "responses": {
            "200": {
                "description": "An entry, a list of entries, or a picture with boxes.",
                "content": {**one_or_several, **drawn},
            },
            **_errors(*_UPLOAD_ERRORS),
        },
    }


def _settings(is_detector: bool) -> tuple[str, ...]:
    return (
        (*DETECTION_PARAMETERS, *PICTURE_PARAMETERS) if is_detector else CLASSIFICATION_PARAMETERS
    )


def _picture() -> _Object:
    url: _Object = {
        "type": "object",
        "properties": {"url": {"type": "string", "format": "uri"}},
        "required": ["url"],
    }
    picture = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
    return {
        "operationId": "picture",
        "summary": "Fetch the picture at a public address.",
        "requestBody": {"required": True, "content": _json(url)},
        "responses": {
            "200": {"description": "The picture.", "content": {"image/*": picture}},
            **_errors(*_UPLOAD_ERRORS),
        },
    }


def _live() -> _Object:
    """Describe the paths of live sources; a stream ends when the client disconnects."""
    number: _Object = {
        "name": "number",
        "in": "path",
        "required": True,
        "description": "The number of the source, from 0.",
        "schema": {"type": "integer", "minimum": 0},
    }

    def stream(name: str, summary: str, content: _Object) -> _Object:
        return {
            "operationId": name,
            "summary": summary,
            "parameters": [number],
            "responses": {
                "200": {"description": "A stream without an end.", "content": content},
                **_errors(401, 403, 404, 405, 503),
            },
        }

    pictures = {MJPEG: {"schema": {"type": "string"}}}
    lines = {JSON_LINES: {"schema": _ref("LiveEntry")}}
    sources = {
        "type": "object",
        "properties": {"sources": {"type": "array", "items": _ref("Source")}},
        "required": ["sources"],
    }
    return {
        "/sources": {"get": _get("sources", "The live sources and their state.", sources)},
        "/sources/{number}/mjpeg": {
            "get": stream("source_mjpeg", "The newest frames with boxes.", pictures)
        },
        "/sources/{number}/jsonl": {
            "get": stream("source_jsonl", "A line of JSON for each of the newest frames.", lines)
        },
    }


def _kserve(model: str) -> _Object:
    base = f"/v2/models/{model}"
    health = {"type": "object", "additionalProperties": {"type": "boolean"}}
    infer = {
        "operationId": "infer",
        "summary": "Run the model, by the Open Inference Protocol.",
        "requestBody": {"required": True, "content": _json(_ref("InferRequest"))},
        "responses": {
            "200": {"description": "The outputs.", "content": _json(_ref("InferResponse"))},
            **_errors(*_UPLOAD_ERRORS),
        },
    }
    return {
        "/v2": {"get": _get("server_metadata", "The server's name.", {"type": "object"})},
        "/v2/health/live": {"get": _health("server_live", "Whether the device works.", health)},
        "/v2/health/ready": {
            "get": _health("server_ready", "Whether requests are welcome.", health)
        },
        base: {"get": _get("model_metadata", "Inputs and outputs.", {"type": "object"})},
        f"{base}/ready": {
            "get": _health("model_ready", "Whether the model is ready.", health, is_public=False)
        },
        f"{base}/infer": {"post": infer},
    }


def _health(name: str, summary: str, schema: _Object, *, is_public: bool = True) -> _Object:
    found = _get(name, summary, schema, is_public=is_public)
    found["responses"]["503"] = {"description": "It is not.", "content": _json(schema)}
    return found


def _schemas(is_detector: bool) -> _Object:
    settings = _settings(is_detector)
    score = {"type": ["number", "null"]}
    named = {"class_id": {"type": "integer"}, "label": {"type": "string"}, "score": score}
    edges = ("left", "top", "right", "bottom")
    box = {
        "type": "object",
        "properties": {edge: {"type": ["number", "null"]} for edge in edges},
        "required": list(edges),
    }
    row = {**named, "box": box} if is_detector else named
    point = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    read = {  # if codes are read
        "text": {"type": ["string", "null"]},
        "format": {"type": ["string", "null"]},
        "corners": {"type": ["array", "null"], "items": point, "minItems": 4, "maxItems": 4},
        "bytes": {"type": "string", "contentEncoding": "base64"},
    }
    results = "detections" if is_detector else "classes"
    exif: _Object = {  # if the EXIF orientation rotates the picture
        "type": "object",
        "properties": {"orientation": {"type": "integer"}, "applied": {"type": "boolean"}},
        "required": ["orientation", "applied"],
    }
    tensor = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "datatype": {"type": "string"},
            "shape": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            "data": {"type": "array"},
        },
        "required": ["name", "datatype", "shape"],
    }
    picture = {"type": "string", "contentEncoding": "base64"}
    pair = {
        "data": picture,
        "url": {"type": "string", "format": "uri"},
        "name": {"type": "string"},
    }
    one_of = {"oneOf": [{"required": ["data"]}, {"required": ["url"]}]}
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    side = {"type": ["integer", "null"]}
    source: _Object = {
        "source": count,
        "name": text,
        "state": {"enum": ["opening", "live", "lost", "failing"]},
        "error": {"type": ["string", "null"]},
        "frames": count,
        "received": count,
        "fps": {"type": "number"},
        "width": side,
        "height": side,
        "clients": count,
        "mjpeg": text,
        "jsonl": text,
    }
    counts: _Object = {"counts": {"type": "object"}}  # with lines or zones
    live = {"source": count, "frame": count, "seconds": score, "time": {"type": "number"}}
    return {
        "Source": {"type": "object", "properties": source | counts, "required": list(source)},
        "LiveEntry": {
            "allOf": [
                _ref("Entry"),
                {"type": "object", "properties": live | counts, "required": list(live)},
            ]
        },
        "Error": {
            "type": "object",
            "properties": {"error": {"type": "string"}},
            "required": ["error"],
        },
        "Model": {
            "type": "object",
            "properties": {
                "engine": {"type": "string"},
                "model": {"type": "string"},
                "task": {"enum": ["detector", "classifier"]},
                "device": {"type": "string"},
                "width": {"type": "integer"},
                "height": {"type": "integer"},
                "classes": {"type": "array", "items": {"type": "string"}},
                "batch": {"type": "integer"},
                "threshold": {"type": "number"},
                "nms": {"type": "number"},
                "top_k": {"type": "integer"},
                "read": {"type": "boolean"},
                "accepts_urls": {"type": "boolean"},
            },
            "required": ["engine", "model", "task", "device", "width", "height", "classes"],
        },
        "Entry": {
            "type": "object",
            "properties": {
                "schema_version": {"type": "integer"},
                "path": {"type": ["string", "null"]},
                "width": {"type": "integer"},
                "height": {"type": "integer"},
                results: {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {**row, **(read if is_detector else {})},
                        "required": list(row),
                    },
                },
                "timing_ms": {"type": "object", "additionalProperties": score},
                **({"tiles": {"type": "integer"}, "exif": exif} if is_detector else {}),
                "warning": {"type": "string"},
            },
            "required": ["schema_version", "path", "width", "height", results, "timing_ms"],
        },
        "Entries": {
            "type": "object",
            "properties": {
                "version": {"type": "integer"},
                "engine": {"type": "string"},
                "model": {"type": "string"},
                "images": {
                    "type": "array",
                    "items": {"anyOf": [_ref("Entry"), _ref("Error")]},
                },
            },
            "required": ["version", "engine", "model", "images"],
        },
        "Picture": {
            "type": "object",
            "properties": pair,
            "additionalProperties": False,
            **one_of,
        },
        "Request": {
            "type": "object",
            "properties": {
                **pair,
                "images": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"anyOf": [_ref("Picture"), picture]},
                },
                **{name: _SETTINGS[name][0] for name in settings},
            },
            "additionalProperties": False,
            "oneOf": [*one_of["oneOf"], {"required": ["images"]}],
        },
        "InferRequest": {
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "parameters": {
                    "type": "object",
                    "properties": {
                        name: _SETTINGS[name][0]
                        for name in settings
                        if name not in PICTURE_PARAMETERS
                    },
                },
                "inputs": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1,
                    "items": {
                        **tensor,
                        "properties": {
                            **tensor["properties"],  # type: ignore[dict-item]
                            "name": {"const": kserve.INPUT},
                            "datatype": {"const": "BYTES"},
                            "data": {"type": "array", "items": picture},
                        },
                    },
                },
                "outputs": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
            },
            "required": ["inputs"],
        },
        "InferResponse": {
            "type": "object",
            "properties": {
                "model_name": {"type": "string"},
                "model_version": {"type": "string"},
                "id": {"type": "string"},
                "outputs": {"type": "array", "items": tensor},
            },
            "required": ["model_name", "outputs"],
        },
    }
