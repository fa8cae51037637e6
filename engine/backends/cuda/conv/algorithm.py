"""What an algorithm offers."""

from __future__ import annotations

from typing import Protocol

from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.plan import ops


class Algorithm(Protocol):
    def supports(self, target: Target, op: ops.Conv2d) -> bool: ...

    def workspace(self, target: Target, op: ops.Conv2d) -> int: ...

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays: ...

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None: ...
