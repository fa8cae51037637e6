"""ONNX Runtime, which runs the exported model."""

from __future__ import annotations

from engine.benchmark.peers import base
from engine.benchmark.peers.base import PeerUnavailable
from engine.benchmark.workload import Workload


def open_peer(workload: Workload, batch: int) -> base.RunPeer:
    onnxruntime = base.import_package("onnxruntime", "onnxruntime")
    base.require_precision(workload, "float32")
    provider = "CUDAExecutionProvider" if base.is_cuda(workload) else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise PeerUnavailable(f"this build has no {provider}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = base.threads_of(workload)
    options.log_severity_level = 3
    model = base.onnx_model(workload, batch)
    session = onnxruntime.InferenceSession(model, options, providers=[provider])
    (source,) = session.get_inputs()
    return lambda images: session.run(None, {source.name: images})
