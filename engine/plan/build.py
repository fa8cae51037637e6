"""Plan, the ops of a network in order with its constants, and PlanBuilder, which collects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.plan.ops import Constant, Head, Op, Tensor
from engine.plan.shapes import Shape


@dataclass(frozen=True)
class View:
    """A tensor that is part of another: its channels begin at `channel` of `root`."""

    root: Tensor
    channel: int


@dataclass(frozen=True)
class Arena:
    """The offset of each tensor that owns memory, in values for each sequence of the batch."""

    offsets: Mapping[Tensor, int]
    size: int


@dataclass(frozen=True)
class Plan:
    source: Tensor
    ops: tuple[Op, ...]
    layers: tuple[Tensor, ...]  # output of each section, in the order of the .cfg
    outputs: tuple[Tensor, ...]  # returned by a program, so passes keep them
    heads: tuple[Head, ...] = ()
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    steps: int = 1
    views: Mapping[Tensor, View] = field(default_factory=dict)
    arena: Arena | None = None
    titles: tuple[str, ...] = ()  # the name of each section in messages
    scales: Mapping[Tensor, float] = field(default_factory=dict)  # for int8 tensors; see int8.py

    @property
    def kept(self) -> frozenset[Tensor]:
        """Tensors that have to hold their value after the last op."""
        return frozenset(self.outputs) | {head.src for head in self.heads}

    def keeping_layers(self) -> Plan:
        """Return the same plan with the output of every layer among its outputs."""
        return replace(self, outputs=tuple(dict.fromkeys(self.layers)))

    def layer_of(self, op: Op) -> int:
        """Return the section that an op comes from, the last one for a fused op.

        Tensors are numbered in the order in which layers are lowered.
        """
        numbers = (n for n, last in enumerate(self.layers) if last.index >= op.out.index)
        return next(numbers, len(self.layers) - 1)

    def title_of(self, op: Op) -> str:
        """Return the name of the section that an op comes from, for messages."""
        number = self.layer_of(op)
        return self.titles[number] if self.titles else f"layer {number}"

    def root(self, tensor: Tensor) -> Tensor:
        """Return the tensor that owns the memory of this one, perhaps itself."""
        return self.views[tensor].root if tensor in self.views else tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor, in the order of first use."""
        found = dict.fromkeys([self.source])
        for op in self.ops:
            found.update(dict.fromkeys([*op.reads, op.out]))
        return tuple(found)


class PlanBuilder:
    """Collects ops while the layers of a network are lowered in order."""

    def __init__(self, shape: Shape, steps: int = 1) -> None:
        self.steps = steps
        self.scope = ""  # prefix of the names of constants, set for each layer
        self._count = 0
        self._ops: list[Op] = []
        self._heads: list[Head] = []
        self._constants: dict[str, NDArray[Any]] = {}
        self.source = self.tensor(shape)

    def tensor(self, shape: Shape, *, steps: int | None = None, is_state: bool = False) -> Tensor:
        self._count += 1
        return Tensor(self._count, shape, self.steps if steps is None else steps, is_state)

    def constant(self, name: str, values: NDArray[Any]) -> Constant:
        full = f"{self.scope}{name}"
        assert full not in self._constants, full
        self._constants[full] = np.ascontiguousarray(values, dtype=np.float32)
        return Constant(full, tuple(values.shape))

    def emit(self, op: Op) -> Tensor:
        self._ops.append(op)
        return op.out

    def head(self, head: Head) -> None:
        self._heads.append(head)

    def build(
        self, layers: Sequence[Tensor], outputs: Sequence[Tensor], titles: Sequence[str] = ()
    ) -> Plan:
        return Plan(
            source=self.source,
            ops=tuple(self._ops),
            layers=tuple(layers),
            outputs=tuple(dict.fromkeys(outputs)),
            heads=tuple(self._heads),
            constants=self._constants,
            steps=self.steps,
            titles=tuple(titles),
        )
