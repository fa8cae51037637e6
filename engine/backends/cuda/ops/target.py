"""What a program is compiled for, and the choice of an algorithm for one convolution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from engine.plan.ops import Conv2d, Convert, Head, Op, Tensor

VALUE_BYTES = {"float32": 4, "tf32": 4, "float16": 2, "int8": 1}
COLOURS, COLOUR_PITCH = 3, 4  # channels of a picture, and values from one pixel to the next
_NARROW_SUM = 48  # most terms of a sum that counts as narrow

# Kilobytes of shared memory that a block may have.
_SHARED = {(7, 5): 64, (8, 0): 163, (8, 6): 99, (8, 7): 163, (8, 9): 99, (9, 0): 227, (10, 0): 227}
_LEAST_SHARED = 99  # on any other card
BLOCK_RESERVED = 1 << 10  # bytes of an SM that the system reserves for each block


def most_shared_bytes(capability: tuple[int, int]) -> int:
    """Return the shared memory that one block may have."""
    return _SHARED.get(capability, _LEAST_SHARED) << 10


def is_narrow(op: Op | Head) -> bool:
    """Return whether a convolution sums so few terms that the rounding of its weights would show.

    Such layers are memory-bound, so exact weights cost next to nothing.
    """
    if not isinstance(op, Conv2d) or op.is_depthwise or op.src.shape.area == 1:
        return False
    return math.prod(op.weight.shape[1:]) <= _NARROW_SUM


@dataclass(frozen=True)
class Target:
    """What a program is compiled for, known before anything is allocated."""

    batch: int  # sequences at most
    precision: str
    capability: tuple[int, int]
    multiprocessors: int
    algorithm: str | None = None  # forced on every convolution that it can run
    measured: Mapping[str, Choice] = field(default_factory=dict)  # by signature
    misaligned: frozenset[Tensor] = frozenset()  # see lower/memory_layout.py
    floats: frozenset[Tensor] = frozenset()  # float32 tensors; see lower/precision_policy.py
    scales: Mapping[Tensor, float] = field(default_factory=dict)  # of int8 tensors: Plan.scales

    @property
    def value_bytes(self) -> int:
        """The bytes of one value of an activation: of `real` in a kernel."""
        return VALUE_BYTES[self.precision]

    @property
    def pack(self) -> int:
        """The values of 16 bytes, which packed kernels move at once."""
        return 16 // self.value_bytes

    def bytes_of(self, tensor: Tensor) -> int:
        """Return the bytes of one value of this tensor."""
        if tensor in self.scales:
            return VALUE_BYTES["int8"]
        others = "float16" if self.precision == "int8" else self.precision
        return VALUE_BYTES["float32" if tensor in self.floats else others]

    def of(self, item: Op | Head) -> Target:
        """Return the target of one op or head: that of the precision in which it computes."""
        touched = {item.src} if isinstance(item, Head) else {*item.reads, item.out}
        if isinstance(item, Conv2d) and item.src in self.scales:
            return replace(self, precision="int8")
        if not isinstance(item, Convert) and self.scales.keys() >= touched:
            return replace(self, precision="int8")
        if touched <= self.floats or (self.precision == "tf32" and is_narrow(item)):
            return self.in_floats()
        return self

    def storing(self, tensor: Tensor) -> Target:
        """Return the target whose values are stored as those of this tensor."""
        if tensor in self.scales:
            return self if self.precision == "int8" else replace(self, precision="int8")
        if tensor in self.floats:
            return self.in_floats()
        return replace(self, precision="float16") if self.precision == "int8" else self

    def in_floats(self) -> Target:
        return replace(self, precision="float32", floats=frozenset())

    def rows(self, tensor: Tensor) -> int:
        """Return the rows of a tensor in a run of the whole batch."""
        return self.batch * tensor.steps


_SUFFIX = "+unfused"


class Choice(NamedTuple):
    """An algorithm, and whether the ops fused into the convolution run in kernels of their own."""

    algorithm: str
    unfused: bool = False

    @classmethod
    def parse(cls, text: str) -> Choice:
        """Return the choice that `str()` turned into this text."""
        return cls(text.removesuffix(_SUFFIX), text.endswith(_SUFFIX))

    @classmethod
    def from_json(cls, stored: Any) -> Choice:
        """Return the choice that JSON has as a list."""
        found = cls(*stored)
        if not (isinstance(found.algorithm, str) and isinstance(found.unfused, bool)):
            raise ValueError("expected an algorithm's name and whether it is unfused")
        return found

    def __str__(self) -> str:
        return f"{self.algorithm}{_SUFFIX}" if self.unfused else self.algorithm
