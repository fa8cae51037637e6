"""The detector behind NVIDIA's Triton Inference Server, through PyTriton (the extra `triton`).

    from engine.fleet import triton

    with engine.load(batch=8) as detector, triton.server(detector) as server:
        server.serve()

The input `picture` takes encoded pictures, one or several in a request; Triton joins those of many
clients into runs of up to `batch`. Of each picture come `count` and so many `boxes` (left, top,
right, bottom in pixels), `scores`, `class_ids` and `labels`; what lies behind the count fills up
lists that are shorter than others of the request, or empty. `error` says why there is no result.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import extras
from engine.arrays import Array
from engine.errors import ImageError, InputError
from engine.vision.result import Result

if TYPE_CHECKING:
    from engine.detector import Detector

INPUT = "picture"


def server(detector: Detector, *, name: str = "engine", wait_ms: float = 5.0, **config: Any) -> Any:
    """A pytriton.triton.Triton that has the detector as the model `name`.

    `wait_ms` is how long Triton waits for more pictures of a run at most; `config` is that of
    PyTriton's TritonConfig: http_port, allow_grpc and so on. Only programs on this machine can
    connect unless it says otherwise.
    """
    if detector.task != "detector":
        raise InputError("triton: the network has no boxes to give")
    try:
        from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
        from pytriton.triton import Triton, TritonConfig
    except ImportError as error:
        raise InputError(
            f"triton: {error.name} is not installed. Run: {extras.command('triton')}"
        ) from None
    _find_libpython()
    here = {"http_address": "127.0.0.1", "grpc_address": "127.0.0.1"}
    triton = Triton(config=TritonConfig(**{**here, **config}))
    batcher = DynamicBatcher(max_queue_delay_microseconds=round(wait_ms * 1e3))
    triton.bind(
        model_name=name,
        infer_func=partial(answer, detector),
        inputs=[Tensor(name=INPUT, dtype=bytes, shape=(1,))],
        outputs=[
            Tensor(name="count", dtype=np.int32, shape=(1,)),
            Tensor(name="boxes", dtype=np.float32, shape=(-1, 4)),
            Tensor(name="scores", dtype=np.float32, shape=(-1,)),
            Tensor(name="class_ids", dtype=np.int64, shape=(-1,)),
            Tensor(name="labels", dtype=bytes, shape=(-1,)),
            Tensor(name="error", dtype=bytes, shape=(1,)),
        ],
        config=ModelConfig(max_batch_size=detector.settings.batch, batcher=batcher),
        strict=True,
    )
    return triton


def answer(detector: Detector, requests: Sequence[Any]) -> list[dict[str, Array]]:
    """What is in the pictures of several requests, looked at together."""
    asked = [request[INPUT].ravel().tolist() for request in requests]
    pictures = [picture for each in asked for picture in each]
    outcomes = detector.stream(pictures, on_error="yield")
    return [_filled([next(outcomes) for _ in each]) for each in asked]


def _filled(outcomes: Sequence[Result | ImageError]) -> dict[str, Array]:
    """The arrays of one request, each list as long as the longest."""
    counts = [0 if isinstance(each, ImageError) else len(each) for each in outcomes]
    rows, columns = len(outcomes), max(1, *counts)  # PyTriton takes no empty lists of text
    boxes = np.zeros((rows, columns, 4), np.float32)
    scores = np.zeros((rows, columns), np.float32)
    class_ids = np.full((rows, columns), -1, np.int64)
    labels = np.full((rows, columns), b"", object)
    errors = np.full((rows, 1), b"", object)
    for row, (outcome, count) in enumerate(zip(outcomes, counts, strict=True)):
        if isinstance(outcome, ImageError):
            errors[row, 0] = str(outcome).encode()
            continue
        boxes[row, :count] = outcome.boxes
        scores[row, :count] = outcome.scores
        class_ids[row, :count] = outcome.class_ids
        labels[row, :count] = [label.encode() for label in outcome.labels]
    return {
        "count": np.array(counts, np.int32)[:, None],
        "boxes": boxes,
        "scores": scores,
        "class_ids": class_ids,
        "labels": labels,
        "error": errors,
    }


def _find_libpython() -> None:
    """Let Triton's own process load the libpython of this Python, not another one's of its name."""
    ours, others = sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH", "")
    if ours and ours not in others.split(os.pathsep):
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [ours, others]))
