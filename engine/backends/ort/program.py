"""OrtProgram: a session of ONNX Runtime, with boxes decoded by the definitions of the CPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from engine.arrays import Array
from engine.backends.base import Memory, OpTime, Placed, Stages, check_heads, check_images
from engine.backends.cpu.heads import candidates_of_all
from engine.backends.host_processing import HostProcessing, scaled
from engine.concurrency import fork_safety
from engine.errors import EngineError, InputError, within_memory
from engine.export.graph_builder import INPUT
from engine.plan.build import Plan
from engine.plan.ops import Tensor


class OrtProgram(HostProcessing):
    """A loaded model. A session runs any number of threads at once; the lock guards closing."""

    def __init__(self, plan: Plan, tensors: Sequence[Tensor], session: Any, *, batch: int) -> None:
        self.plan = replace(plan, constants={})
        self.batch = batch
        self._session: Any = session
        self._lock = fork_safety.lock()
        self._process = os.getpid()
        places = {tensor: place for place, tensor in enumerate(tensors)}
        self._heads = [places[head.src] for head in plan.heads]
        # ONNX Runtime does not tell what it allocates beyond the weights.
        weights = sum(array.nbytes for array in plan.constants.values())
        self.memory = Memory(weights=weights, activations=0, workspace=0)

    def forward(self, images: Array) -> tuple[Array, ...]:
        return tuple(self._run(images)[: len(self.plan.outputs)])

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        check_heads(self.plan)
        return self._candidates(self._run(images), threshold, hierarchy)

    def stages(
        self, images: Array | Sequence[Placed], *, threshold: float | None = None
    ) -> tuple[Stages, Sequence[Any]]:
        """Time a run; what ONNX Runtime copies is part of `forward`."""
        if not isinstance(images, np.ndarray):
            images = scaled(images)
        if threshold is not None:
            check_heads(self.plan)
        start = perf_counter()
        arrays = self._run(images)
        middle = perf_counter()
        answer: Sequence[Any] = tuple(arrays[: len(self.plan.outputs)])
        if threshold is not None:
            answer = self._candidates(arrays, threshold, 0.5)
        end = perf_counter()
        return Stages(0.0, (middle - start) * 1e3, (end - middle) * 1e3), answer

    def profile(self, images: Array, *, repeats: int = 10) -> list[OpTime]:
        """Refuse: ONNX Runtime fuses ops, and its times are not those of the plan's ops."""
        raise InputError("ort: layers: cannot be timed one by one. Use another device")

    def reset(self) -> None:
        """Do nothing: networks with a state cannot be exported."""

    def close(self) -> None:
        with self._lock:
            self._session = None

    def _candidates(
        self, arrays: Sequence[Array], threshold: float, hierarchy: float
    ) -> list[Array]:
        return [
            candidates_of_all(self.plan.heads, values, threshold=threshold, hierarchy=hierarchy)
            for values in zip(*(arrays[place] for place in self._heads), strict=True)
        ]

    def _run(self, images: Array) -> list[Array]:
        check_images(self.plan, images, self.batch)
        with self._lock:
            session = self._session
        if session is None:
            raise EngineError("program: closed. Load the network again")
        if os.getpid() != self._process:  # the threads of ONNX Runtime do not survive a fork
            raise EngineError("ort: the network was loaded before a fork. Load it in each process")
        rows = np.ascontiguousarray(images, np.float32)
        with within_memory("ort"):
            try:
                found: list[Array] = session.run(None, {INPUT: rows})
            except Exception as error:  # ONNX Runtime has an exception class for each status
                reason = " ".join(str(error).split())
                raise EngineError(f"ort: the network failed: {reason[:300]}") from None
        return found
