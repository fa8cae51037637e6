"""The Open Inference Protocol of KServe and Triton (v2) over HTTP.

The input `picture` takes encoded pictures as BYTES: base64 in JSON, or raw bytes after the JSON
(Triton's binary extension). The outputs are those of engine.fleet.triton, as JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.arrays import Array
from engine.errors import EngineError, InputError, suggest
from engine.files.naming import shown
from engine.picture_runs import Outcome
from engine.serve import body, request_options
from engine.serve.rejection import RejectedError
from engine.serve.server_limits import check_count
from engine.serve.service import Inference, Service
from engine.serve.upload_endpoint import EncodedResponse, Exchange, UploadEndpoint
from engine.serve.uploads import (
    JSON_TYPE,
    Upload,
    Uploads,
    brief,
    decode_base64,
    parse_object,
)
from engine.version import __version__
from engine.vision import serialize
from engine.vision.padded import padded_arrays

INPUT = "picture"
VERSION = "1"
_MOST_DIGITS = 18  # maximum for a length
_BINARY_HEADER = "inference-header-content-length"
_ROUTING_PARAMETERS = ("binary_data_output", "binary_data_size", "priority", "timeout")
_DATATYPES = {"f": "FP32", "i4": "INT32", "i8": "INT64", "O": "BYTES"}


def routes() -> list[Route]:
    paths = ("/v2/models/{name}", f"/v2/models/{{name}}/versions/{VERSION}")
    return [
        Route("/v2", _server),
        Route("/v2/health/live", _live),
        Route("/v2/health/ready", _ready),
        *(Route(path, _model) for path in paths),
        *(Route(f"{path}/ready", _model_ready) for path in paths),
        *(Route(f"{path}/infer", InferEndpoint(), methods=["POST"]) for path in paths),
    ]


async def _server(request: Request) -> Response:
    extensions = ["binary_tensor_data"]
    return JSONResponse({"name": "engine", "version": __version__, "extensions": extensions})


async def _live(request: Request) -> Response:
    is_live = not request.app.state.service.failure
    return JSONResponse({"live": is_live}, 200 if is_live else 503)


async def _ready(request: Request) -> Response:
    is_ready = request.app.state.service.is_ready
    return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)


async def _model_ready(request: Request) -> Response:
    _check_name(request, request.app.state.service)
    return await _ready(request)


async def _model(request: Request) -> Response:
    service: Service = request.app.state.service
    _check_name(request, service)
    example = _outputs(padded_arrays([], has_boxes=service.detector.task == "detector"))
    shapes = {"count": [-1, 1], "boxes": [-1, -1, 4], "error": [-1, 1]}
    return JSONResponse(
        {
            "name": service.model_name,
            "versions": [VERSION],
            "platform": "engine_darknet",
            "inputs": [{"name": INPUT, "datatype": "BYTES", "shape": [-1, 1]}],
            "outputs": [
                {
                    "name": each["name"],
                    "datatype": each["datatype"],
                    "shape": shapes.get(each["name"], [-1, -1]),
                }
                for each in example
            ],
        }
    )


class InferEndpoint(UploadEndpoint):
    """POST /v2/models/{name}/infer."""

    def check(self, request: Request, service: Service) -> None:
        _check_name(request, service)
        body.check_headers(request.headers, service.limits)

    async def respond(self, exchange: Exchange) -> EncodedResponse:
        length = exchange.request.headers.get(_BINARY_HEADER)
        found = await exchange.parse(partial(_uploads, header_length=length), is_json=True)
        detector = exchange.service.detector
        wanted = found.settings["outputs"]
        options = request_options.parse(
            [*found.settings["parameters"].items()],
            JSON_TYPE,
            defaults=replace(detector.settings, read=False),
            labels=detector.labels,
            has_boxes=detector.task == "detector",
            only_arrays=True,
        )
        outcomes = await exchange.infer_all(found.pictures, options.settings, _outcome)
        answer = partial(_answer, exchange.service, found.settings["id"], wanted, outcomes)
        return EncodedResponse(JSON_TYPE, await exchange.service.run_in_thread(answer))


def _check_name(request: Request, service: Service) -> None:
    name = request.path_params["name"]
    if name != service.model_name:
        raise RejectedError(404, f"model {shown(name[:80])}: expected {service.model_name}")


def _uploads(content: bytes, header_length: str | None) -> Uploads:
    binary = b""
    if header_length is not None:
        is_number = header_length.isdecimal() and len(header_length) <= _MOST_DIGITS
        if not (is_number and int(header_length) <= len(content)):
            got = shown(header_length[:40])
            raise InputError(f"Inference-Header-Content-Length: expected a length, got {got}")
        content, binary = content[: int(header_length)], content[int(header_length) :]
    document = parse_object(content)
    inputs = document.get("inputs")
    if not (isinstance(inputs, list) and len(inputs) == 1 and isinstance(inputs[0], dict)):
        raise InputError(f"inputs: expected one, called {INPUT}, got {brief(inputs)}")
    (given,) = inputs
    if given.get("name") != INPUT or given.get("datatype") != "BYTES":
        got = f"{brief(given.get('name'))} of {brief(given.get('datatype'))}"
        raise InputError(f"inputs: expected {INPUT} of BYTES, got {got}")
    parameters = _object(given, "parameters")
    if "binary_data_size" in parameters:
        if parameters["binary_data_size"] != len(binary):
            size = brief(parameters["binary_data_size"])
            raise InputError(f"binary_data_size: expected {len(binary)}, got {size}")
        contents = _split(binary)
    else:
        data = _flat(given.get("data"))
        check_count(len(data))
        contents = [decode_base64(text, f"data[{number}]") for number, text in enumerate(data)]
    _check_shape(given.get("shape"), len(contents))
    settings = _object(document, "parameters")
    request_id = document.get("id")
    if request_id is not None and not isinstance(request_id, str):
        raise InputError(f"id: expected text, got {brief(request_id)}")
    return Uploads(
        tuple(Upload(each) for each in contents),
        is_list=True,
        settings={
            "id": request_id,
            "parameters": {k: v for k, v in settings.items() if k not in _ROUTING_PARAMETERS},
            "outputs": _wanted(document.get("outputs")),
        },
    )


def _object(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise InputError(f"{key}: expected an object, got {brief(value)}")
    return value


def _wanted(outputs: Any) -> list[str] | None:
    """Return the names of the outputs that the client asks for; None means all."""
    if outputs is None or outputs == []:
        return None
    if not isinstance(outputs, list) or not all(isinstance(each, dict) for each in outputs):
        raise InputError(f"outputs: expected a list of objects, got {brief(outputs)}")
    return [str(each.get("name")) for each in outputs]


def _flat(data: Any) -> list[Any]:
    """Return the elements of a list that may be nested, as the protocol allows."""
    if not isinstance(data, list):
        raise InputError(f"data: expected a list, got {brief(data)}")
    if all(isinstance(each, list) and len(each) == 1 for each in data):
        return [each[0] for each in data]
    return data


def _split(content: bytes) -> list[bytes]:
    """Return the elements of a binary BYTES tensor, each preceded by its length in four bytes."""
    elements: list[bytes] = []
    position = 0
    while position < len(content):
        if position + 4 > len(content):
            raise InputError("binary data: ends within the length of an element")
        (length,) = struct.unpack_from("<I", content, position)
        position += 4 + length
        if position > len(content):
            raise InputError("binary data: ends within an element")
        elements.append(content[position - length : position])
        check_count(len(elements))
    return elements


def _check_shape(shape: Any, count: int) -> None:
    if count == 0:
        raise InputError(f"{INPUT}: expected at least one, got none")
    is_whole = isinstance(shape, list) and all(type(each) is int for each in shape)
    if not is_whole or shape not in ([count], [count, 1]):
        raise InputError(f"shape: expected [{count}, 1] for {count} elements, got {shape!r:.40}")


def _outcome(inference: Inference) -> Outcome:
    return inference.outcome


def _answer(
    service: Service,
    request_id: str | None,
    wanted: Sequence[str] | None,
    outcomes: Sequence[Outcome | EngineError],
) -> bytes:
    arrays = padded_arrays(outcomes, has_boxes=service.detector.task == "detector")
    if unknown := next((each for each in wanted or () if each not in arrays), None):
        hint = suggest(unknown, arrays)
        raise InputError(f"outputs: {shown(unknown)}: expected {', '.join(arrays)}.{hint}")
    document: dict[str, Any] = {"model_name": service.model_name, "model_version": VERSION}
    if request_id is not None:
        document["id"] = request_id
    chosen = {name: arrays[name] for name in wanted} if wanted else arrays
    document["outputs"] = _outputs(chosen)
    return serialize.json_text(document).encode()


def _outputs(arrays: Mapping[str, Array]) -> list[dict[str, Any]]:
    found = []
    for name, array in arrays.items():
        kind = array.dtype.str.lstrip("<>=|")
        data = array.ravel().tolist()
        if array.dtype.kind == "O":
            data = [each.decode() for each in data]
        elif array.dtype.kind == "f":
            data = [serialize.json_number(each) for each in data]
        datatype = _DATATYPES.get(kind) or _DATATYPES[array.dtype.kind]
        found.append({"name": name, "datatype": datatype, "shape": list(array.shape), "data": data})
    return found
