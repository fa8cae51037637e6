"""Plans exported to ONNX and run by ONNX Runtime."""

import numpy as np

from engine.export import onnx
from engine.passes import optimise


def run(plan, network, images, **options):
    plan = optimise(plan, onnx.PASSES)
    return run_model(onnx.serialize(plan, network.titles, **options), images)


def run_model(model, images):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (source,) = session.get_inputs()
    return session.run(None, {source.name: images})


def detected(rows, plan, threshold):
    """Return what Program.detect gives for decoded rows, if all heads have the same classes."""
    found = []
    for each in rows:
        each = each.copy()
        each[:, 5:][each[:, 5:] <= threshold] = 0
        has_objectness = type(plan.heads[0]).__name__ == "YoloHead"
        is_kept = each[:, 4] > threshold if has_objectness else each[:, 5:].any(axis=1)
        found.append(each[is_kept])
    return [np.asarray(each, np.float32) for each in found]
