"""OpenCV DNN, which runs the exported model, since version 5 no longer reads .cfg files."""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.benchmark.peers import base
from engine.benchmark.peers.base import PeerUnavailable
from engine.benchmark.workload import Workload


def open_peer(workload: Workload, batch: int) -> base.RunPeer:
    cv2 = base.import_package("cv2", "opencv-python-headless")
    base.require_precision(workload, "float32")
    if base.is_cuda(workload):
        raise PeerUnavailable("its packages support the CPU only")
    model = base.onnx_model(workload, batch)
    cv2.setNumThreads(base.threads_of(workload))
    try:
        net = cv2.dnn.readNetFromONNX(np.frombuffer(model, np.uint8))
        net.setInput(workload.images(batch))
        names = net.getUnconnectedOutLayersNames()
        net.forward(names)
    except cv2.error as error:
        reason = str(error).strip().splitlines()[0]
        raise PeerUnavailable(f"it cannot run this network: {reason}") from None

    def run(images: Array) -> object:
        net.setInput(images)
        return net.forward(names)

    return run
