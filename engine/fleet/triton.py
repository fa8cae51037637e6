"""The detector as a model of NVIDIA Triton Inference Server, through PyTriton (extra `triton`).

    from engine.fleet import triton

    with engine.load(batch=8) as detector, triton.server(detector) as server:
        server.serve()

The input `picture` takes encoded pictures, one or several in a request; Triton's dynamic batcher
joins those of many clients into batches of up to `batch`. The outputs for each picture are `count`
and as many `boxes` (left, top, right, bottom in pixels), `scores`, `class_ids` and `labels`, padded
to the largest count of the request, but at least 1. `error` says why there is no result, or is
empty.
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
from engine.errors import InputError
from engine.vision.padded import padded_arrays

if TYPE_CHECKING:
    from engine.detector import Detector

INPUT = "picture"


def server(detector: Detector, *, name: str = "engine", wait_ms: float = 5.0, **config: Any) -> Any:
    """Return a pytriton.triton.Triton that serves the detector as the model `name`.

    `wait_ms` is the maximum time that Triton waits for more pictures for a batch. `config` holds
    the options of PyTriton's TritonConfig (http_port, allow_grpc, …); by default the server listens
    on the loopback interface only.
    """
    if detector.task != "detector":
        raise InputError("triton: expected a detector, got another network")
    try:
        from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
        from pytriton.triton import Triton, TritonConfig
    except ImportError as error:
        raise InputError(
            f"triton: {error.name} is not installed. Run: {extras.command('triton')}"
        ) from None
    _find_libpython()
    local = {"http_address": "127.0.0.1", "grpc_address": "127.0.0.1"}
    triton = Triton(config=TritonConfig(**{**local, **config}))
    batcher = DynamicBatcher(max_queue_delay_microseconds=round(wait_ms * 1e3))
    triton.bind(
        model_name=name,
        infer_func=partial(infer, detector),
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


def infer(detector: Detector, requests: Sequence[Any]) -> list[dict[str, Array]]:
    """Detect in the pictures of several requests together; return the outputs of each request."""
    inputs = [request[INPUT].ravel().tolist() for request in requests]
    pictures = [picture for each in inputs for picture in each]
    outcomes = detector.stream(pictures, on_error="yield", expand=False)
    return [padded_arrays([next(outcomes) for _ in each]) for each in inputs]


def _find_libpython() -> None:
    """Make Triton's process load this interpreter's libpython instead of a system-wide one."""
    folder, search_path = sysconfig.get_config_var("LIBDIR"), os.environ.get("LD_LIBRARY_PATH", "")
    if folder and folder not in search_path.split(os.pathsep):
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [folder, search_path]))
