"""Conv2d or MatMul, Normalise -> the same op with scaled filters and another bias."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from engine.passes.usage import Constants, join_pairs, with_ops
from engine.plan.build import Plan
from engine.plan.ops import Constant, Conv2d, MatMul, Normalise, Op

Linear = Conv2d | MatMul


def fold_batchnorm(plan: Plan) -> Plan:
    folder = _Folder(plan.constants)
    ops = join_pairs(plan, folder.join)
    return with_ops(plan, ops, folder.constants)


class _Folder:
    """Computes the new constants; ops that shared their constants share the new ones."""

    def __init__(self, constants: Constants) -> None:
        self.constants = dict(constants)
        self._done: dict[tuple[Constant, ...], tuple[Constant, Constant]] = {}

    def join(self, linear: Op, norm: Op) -> Op | None:
        if not isinstance(norm, Normalise) or not _is_plain(linear):
            return None
        if linear.weight.shape[0] != norm.out.shape.channels:
            return None  # a dense layer whose output has rows and columns
        key = (*linear.constants, *norm.constants)
        if key not in self._done:
            self._done[key] = self._fold(linear, norm)
        weight, bias = self._done[key]
        return replace(linear, out=norm.out, weight=weight, bias=bias)

    def _fold(self, linear: Linear, norm: Normalise) -> tuple[Constant, Constant]:
        mean, variance, scale, shift = (
            self.constants[constant.name].astype(np.float64)
            for constant in (norm.mean, norm.variance, norm.scale, norm.bias)
        )
        weight = self.constants[linear.weight.name]
        bias = self.constants[linear.bias.name] if linear.bias else np.zeros_like(mean)
        # broken weights give infinity and NaN, as without folding
        with np.errstate(all="ignore"):
            factor = scale / np.sqrt(variance + 1e-5)
            # multiply in float64 without a float64 copy of the weights
            scaled = np.empty(weight.shape, np.float32)
            factors = factor.reshape(-1, *(1,) * (weight.ndim - 1))
            np.multiply(weight, factors, out=scaled, casting="same_kind")
            bias = (bias - mean) * factor + shift
            return (
                self._add(f"{linear.weight.name} folded", scaled),
                self._add(f"{norm.bias.name} folded", bias.astype(np.float32)),
            )

    def _add(self, name: str, values: NDArray[Any]) -> Constant:
        number = 2
        unique = name
        while unique in self.constants:
            unique = f"{name} {number}"
            number += 1
        self.constants[unique] = values
        return Constant(unique, values.shape)


def _is_plain(op: Op) -> TypeGuard[Linear]:
    """Whether nothing follows the bias."""
    match op:
        case MatMul(activation="linear"):
            return True
        case Conv2d(tail=()):
            return True
    return False
