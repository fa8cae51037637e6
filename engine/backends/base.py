"""What a backend is: a Device compiles plans, a Program runs one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from engine.plan.build import Plan

Array = NDArray[Any]


@dataclass(frozen=True)
class Memory:
    """Bytes a program holds until it is closed."""

    weights: int
    activations: int
    workspace: int

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.workspace


class Program(Protocol):
    """A plan made ready for one device and one number of rows (batch * time steps at most)."""

    @property
    def plan(self) -> Plan: ...

    @property
    def batch(self) -> int: ...

    @property
    def memory(self) -> Memory: ...

    def forward(self, images: Array) -> tuple[Array, ...]:
        """Run float32 (rows, c, h, w); return a copy of every tensor of `plan.outputs`."""
        ...

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        """Run, decode the heads; return for each row one array of candidates of all heads."""
        ...

    def reset(self) -> None:
        """Set recurrent state back to zero."""
        ...

    def close(self) -> None: ...


class Device(Protocol):
    """A machine that runs programs. Closing it closes what it compiled."""

    @property
    def name(self) -> str: ...

    @property
    def passes(self) -> Sequence[str]:
        """Names of the passes whose results this device can run."""
        ...

    def compile(self, plan: Plan, *, batch: int = 1, precision: str = "float32") -> Program: ...

    def close(self) -> None: ...
