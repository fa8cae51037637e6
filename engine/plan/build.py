"""Plan: the ops of a network in order, with its constants. PlanBuilder: how lowering writes one."""

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
    """A tensor that lives inside another: from channel `channel` of `root` on."""

    root: Tensor
    channel: int


@dataclass(frozen=True)
class Arena:
    """Where each tensor that owns memory begins, in values for each sequence of the batch."""

    offsets: Mapping[Tensor, int]
    size: int


@dataclass(frozen=True)
class Plan:
    source: Tensor
    ops: tuple[Op, ...]
    layers: tuple[Tensor, ...]  # the output of each section, in the order of the .cfg
    outputs: tuple[Tensor, ...]  # what a program hands back; passes never remove these
    heads: tuple[Head, ...] = ()
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    steps: int = 1
    views: Mapping[Tensor, View] = field(default_factory=dict)
    arena: Arena | None = None
    titles: tuple[str, ...] = ()  # what messages call each section

    @property
    def kept(self) -> frozenset[Tensor]:
        """Tensors that must hold their final value when the last op has run."""
        return frozenset(self.outputs) | {head.src for head in self.heads}

    def keeping_layers(self) -> Plan:
        """The same plan with the output of every layer handed back."""
        return replace(self, outputs=tuple(dict.fromkeys(self.layers)))

    def layer_of(self, op: Op) -> int:
        """The section that an op comes from: tensors are numbered as layers are lowered.

        An op that passes have fused counts to the last of its sections.
        """
        numbers = (n for n, last in enumerate(self.layers) if last.index >= op.out.index)
        return next(numbers, len(self.layers) - 1)

    def title_of(self, op: Op) -> str:
        """What messages call the section that an op comes from."""
        number = self.layer_of(op)
        return self.titles[number] if self.titles else f"layer {number}"

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor inside which this one lies, or itself."""
        return self.views[tensor].root if tensor in self.views else tensor

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor, in the order in which each is first written."""
        found = dict.fromkeys([self.source])
        for op in self.ops:
            found.update(dict.fromkeys([*op.reads, op.out]))
        return tuple(found)


class PlanBuilder:
    """Collects ops while the layers of a network are lowered one after the other."""

    def __init__(self, shape: Shape, steps: int = 1) -> None:
        self.steps = steps
        self.scope = ""  # the prefix of constants' names: the layer being lowered
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
