"""The adapter through which golden/check.py runs the engine on darknet's golden cases.

ENGINE_GOLDEN_DEVICE names the device (cpu). ENGINE_GOLDEN_PASSES=0 runs the plan without passes. On
a CUDA device ENGINE_GOLDEN_GRAPH=0 launches kernels without a graph, and ENGINE_GOLDEN_ALGORITHM
forces a convolution algorithm where it is supported.
With passes, two programs see the same inputs: one that keeps every layer, and the fully fused one,
whose outputs are graded. ENGINE_GOLDEN_PASSES=last compiles the first without passes, which checks
large networks both ways in one run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # check.py is in another folder

from engine.backends import open_device
from engine.backends.base import Program
from engine.backends.cpu.heads import candidates_of_all
from engine.backends.cuda.device import CudaDevice
from engine.darknet import cfg, graph, weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.plan.ops import GridHead, Tensor
from engine.vision.boxes import Suppression
from engine.vision.nms import suppress
from engine.vision.postprocess import relative_to_picture, sorted_boxes
from engine.vision.resize import Placement

Array = NDArray[Any]


def load(cfg_path: str, weights_path: str, batch: int = 1, time_steps: int = 1) -> Engine:
    network = graph.build(cfg.read(Path(cfg_path)), time_steps=time_steps)
    plan = lower(network, weights.load(Path(weights_path), network))
    device = open_device(os.environ.get("ENGINE_GOLDEN_DEVICE", "cpu"))
    passes = os.environ.get("ENGINE_GOLDEN_PASSES", "1")
    plans = [plan.keeping_layers()]
    if passes == "1":
        plans = [optimise(each, device.passes) for each in plans]
    if passes != "0":
        plans.append(optimise(plan, device.passes))
    options = _options() if isinstance(device, CudaDevice) else {}
    programs = [device.compile(each, batch=batch // time_steps, **options) for each in plans]
    is_decoded_here = not isinstance(device, CudaDevice)
    engine = Engine(network, programs, is_decoded_here=is_decoded_here)
    finalize(engine, device.close)
    return engine


def _options() -> dict[str, Any]:
    algorithm = os.environ.get("ENGINE_GOLDEN_ALGORITHM")
    graph = os.environ.get("ENGINE_GOLDEN_GRAPH", "1") != "0"
    return {"graph": graph, "algorithm": algorithm, "waits": True}  # tuned before they run


class Engine:
    """Two programs of one network: the first keeps every layer, the last gives graded boxes."""

    def __init__(
        self, network: graph.Graph, programs: Sequence[Program], *, is_decoded_here: bool
    ) -> None:
        self._network = network
        self._programs = programs
        self._is_decoded_here = is_decoded_here
        self._inputs: list[Array] = []
        self._values: dict[Tensor, Array] = {}  # outputs of the last program for the last input
        self._candidates: dict[float, Array] = {}  # by threshold

    def layers_output(self, x: Array) -> list[Array]:
        images = x.reshape(len(x), *self._network.net.shape.sides)
        self._inputs.append(images)
        self._candidates.clear()
        values = {}
        for program in self._programs:
            self._values = dict(zip(program.plan.outputs, program.forward(images), strict=True))
            values.update(self._values)
        return [values[tensor] for tensor in self._programs[0].plan.layers]

    def detections(
        self,
        image_w: int,
        image_h: int,
        thresh: float,
        letterbox: bool,
        relative: bool,
        nms: float,
    ) -> Iterable[tuple[float, ...]]:
        if thresh not in self._candidates:
            self._candidates[thresh] = self._find_candidates(thresh)
        candidates = self._candidates[thresh]
        net = self._network.net
        is_grid = any(isinstance(head, GridHead) for head in self._programs[-1].plan.heads)
        if is_grid:  # darknet: no letterbox correction, and always pixels
            letterbox = relative = False
        kind = "letterbox" if letterbox else "stretch"
        placement = Placement((image_w, image_h), (net.width, net.height), kind)
        rows = relative_to_picture(candidates, placement)
        if not relative:
            rows = rows.copy()
            rows[:, :4] *= np.array([image_w, image_h, image_w, image_h], np.float32)
        found = suppress(sorted_boxes(rows), Suppression(nms, *self._network.nms))
        for class_id, score, box in zip(found.class_ids, found.scores, found.xywh, strict=True):
            yield class_id, score, *box

    def _find_candidates(self, threshold: float) -> Array:
        """Return the candidates of the last call's first row; repeat earlier calls for their state.

        On a CPU they are decoded from the outputs of that call, as detect() does.
        """
        program = self._programs[-1]
        sources = [head.src for head in program.plan.heads]
        if self._is_decoded_here and all(source in self._values for source in sources):
            values = [self._values[source][0] for source in sources]
            return candidates_of_all(program.plan.heads, values, threshold=threshold, hierarchy=0.5)
        program.reset()
        for images in self._inputs[:-1]:
            program.forward(images)
        return program.detect(self._inputs[-1], threshold=threshold)[0]
