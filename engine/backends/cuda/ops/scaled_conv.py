"""A convolution that multiplies its input by a factor for each channel; see fold_factors.py."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from engine.plan.ops import Conv2d, Multiply, Tensor


@dataclass(frozen=True)
class ScaledConv2d(Conv2d):
    """Conv2d of src * factor."""

    factor: Tensor = field(kw_only=True)  # (c,1,1)

    @classmethod
    def of(cls, multiply: Multiply, op: Conv2d) -> ScaledConv2d:
        return cls(**{**vars(op), "src": multiply.src}, factor=multiply.factor)

    @property
    def multiply(self) -> Multiply:
        """The product that comes first."""
        product = Tensor(self.factor.index, self.src.shape, self.src.steps)
        return Multiply(product, self.src, self.factor)

    @property
    def after_multiply(self) -> Conv2d:
        """The convolution of the product."""
        same = {each.name: getattr(self, each.name) for each in fields(Conv2d)}
        return Conv2d(**{**same, "src": self.multiply.out})
