"""[shortcut]: add earlier layers to the previous one, weighted if weights_type is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.darknet.blocks import activate
from engine.darknet.layers.base import Layer, Parameter, Weights, layer
from engine.darknet.options import activation_option, option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("shortcut")
@dataclass(frozen=True)
class Shortcut(Layer):
    from_layers: tuple[int, ...] = option(key="from")
    activation: str = activation_option("linear")
    weights_type: str = option("none", choices=("none", "per_feature", "per_layer", "per_channel"))
    weights_normalization: str = option("none", choices=("none", "relu", "avg_relu", "softmax"))

    def sources(self) -> tuple[int, ...]:
        others = (self.absolute("from", index) for index in self.from_layers)
        return (self.context.index - 1, *others)

    def infer(self, *shapes: Shape) -> Shape:
        if self.weights_type != "none" and self.weights_normalization == "none":
            raise self.error(
                "weights_normalization", "expected relu or softmax with weights_type, got none"
            )
        return shapes[0]

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        if self.weights_type == "none":
            return ()
        columns = shapes[0].channels if self.weights_type == "per_channel" else 1
        return (Parameter("weight", (len(shapes), columns)),)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        factors = None
        if self.weights_type != "none":
            factors = plan.constant("weight", self._normalised(weights["weight"]))
        out = plan.tensor(tensors[0].shape)
        return activate(plan, plan.emit(ops.Add(out, tensors, factors)), self.activation)

    def _normalised(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Normalise the weights; darknet adds 1e-4 to their sum, so they add up to less than 1."""
        wide = weight.astype(np.float64)
        if self.weights_normalization == "softmax":
            positive = np.exp(wide - wide.max(axis=0))
        else:
            positive = np.maximum(wide, 0.001)
        return np.asarray(positive / (positive.sum(axis=0) + 1e-4), np.float32)
