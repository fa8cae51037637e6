"""OpenCV DNN, through our export: version 5 does not read a .cfg any more."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.benchmark.peers import base
from engine.benchmark.peers.base import Missing
from engine.benchmark.subject import Subject


def open_peer(subject: Subject, batch: int) -> base.Run:
    cv2 = base.imported("cv2", "opencv-python-headless")
    base.refuse_other_precisions(subject, "float32")
    if base.is_cuda(subject):
        raise Missing("its packages run on the CPU only")
    model = base.onnx_model(subject, batch)
    cv2.setNumThreads(base.threads_of(subject))
    try:
        net = cv2.dnn.readNetFromONNX(np.frombuffer(model, np.uint8))
        net.setInput(subject.images(batch))
        names = net.getUnconnectedOutLayersNames()
        net.forward(names)
    except cv2.error as error:
        reason = str(error).strip().splitlines()[0]
        raise Missing(f"it cannot run this network: {reason}") from None

    def run(images: Array) -> object:
        net.setInput(images)
        return net.forward(names)

    return run
