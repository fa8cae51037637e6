"""ONNX Runtime, through our export."""

from __future__ import annotations

from engine.benchmark.peers import base
from engine.benchmark.peers.base import Missing
from engine.benchmark.subject import Subject


def open_peer(subject: Subject, batch: int) -> base.Run:
    onnxruntime = base.imported("onnxruntime", "onnxruntime")
    base.refuse_other_precisions(subject, "float32")
    provider = "CUDAExecutionProvider" if base.is_cuda(subject) else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise Missing(f"this build has no {provider}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = base.threads_of(subject)
    options.log_severity_level = 3
    model = base.onnx_model(subject, batch)
    session = onnxruntime.InferenceSession(model, options, providers=[provider])
    (source,) = session.get_inputs()
    return lambda images: session.run(None, {source.name: images})
