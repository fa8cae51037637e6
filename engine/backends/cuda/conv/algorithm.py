"""The interface of a convolution algorithm: what it can fuse, as data, and how it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields

from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.gpu import Arrays, Gpu, PartialSums
from engine.backends.cuda.ops.target import Target, is_narrow
from engine.plan import ops


@dataclass(frozen=True)
class ScaledConv2d(ops.Conv2d):
    """Conv2d of src * factor, which lower/fusion.py makes."""

    factor: ops.Tensor = field(kw_only=True)  # (c,1,1)

    @classmethod
    def of(cls, multiply: ops.Multiply, op: ops.Conv2d) -> ScaledConv2d:
        return cls(**{**ops.values_of(op), "src": multiply.src}, factor=multiply.factor)

    @property
    def multiply(self) -> ops.Multiply:
        """The multiplication that comes first."""
        product = ops.Tensor(self.factor.index, self.src.shape, self.src.steps)
        return ops.Multiply(product, self.src, self.factor)

    @property
    def after_multiply(self) -> ops.Conv2d:
        """The convolution that follows it."""
        return _plain(self, src=self.multiply.out)


@dataclass(frozen=True)
class KeepingConv2d(ops.Conv2d):
    """Conv2d with a pool, whose input is stored as well; lower/fusion.py makes it.

    That input is `kept`. The op writes it, although its fields list it among what it reads.
    """

    kept: ops.Tensor = field(kw_only=True)

    @classmethod
    def of(cls, op: ops.Conv2d, pool: ops.MaxPool) -> KeepingConv2d:
        return cls(**ops.values_of(op.then(pool)), kept=pool.src)

    @property
    def fused(self) -> ops.Conv2d:
        """The convolution with its pool, without storing the pool's input."""
        return _plain(self)


def adds_quarters(op: ops.Conv2d) -> bool:
    """Return whether the residual has four times the area, as where a network halves its maps.

    It is added in flat order: a channel of it becomes four channels of the result.
    """
    added = (step for step in op.tail if isinstance(step, ops.Add))
    return any(step.sources[1].shape.area != step.out.shape.area for step in added)


def _plain(op: ops.Conv2d, **changes: ops.Tensor) -> ops.Conv2d:
    same = {each.name: getattr(op, each.name) for each in fields(ops.Conv2d)}
    return ops.Conv2d(**{**same, **changes})


class Algorithm(ABC):
    """One way to compute a convolution with its bias, activations and residual.

    A module of this folder lists its algorithms in `ALGORITHMS`, which is all that registers them.
    """

    # Ops that the kernel can fuse.
    pool = False  # a 2 x 2 max pool of stride 2
    keep = False  # such a pool, whose input is stored as well: KeepingConv2d
    yolo = False  # the output of a [yolo] layer
    upsample = False
    scale = False  # the multiplication by a factor per channel: ScaledConv2d
    quarters = False  # the addition of a map with four times the area: adds_quarters()

    # Which tensors of a float16 program may be float32, and whether weights keep all their bits.
    reads_float = False
    writes_float = False
    exact = False

    int8 = False  # whether it can multiply integers: see Target.scales
    writes_int8 = False  # whether it can round sums of floats to integers
    large = False  # whether the autotuner tries many of its variants
    saves_power = False  # whether to prefer it where the power limit lowers the clock
    priority = 0  # order in which the rule of thumb considers the families, highest first

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    def family(self) -> str:
        """The name that the variants of an algorithm share."""
        return self.name

    @property
    def work(self) -> object:
        """What a thread block computes; variants of equal work differ in buffering only."""
        return self.name

    def can_run(self, target: Target, op: ops.Conv2d) -> bool:
        """Return whether it runs this convolution with all that is fused into it."""
        return (
            (self.scale or not isinstance(op, ScaledConv2d))
            and (self.yolo or op.yolo is None)
            and (self.upsample or op.upsample is None)
            and (self.quarters or not adds_quarters(op))
            and (op.pool is None or (self.pool and op.pools_quads))
            and (self.keep or not isinstance(op, KeepingConv2d))
            and (self.int8 or op.src not in target.scales)
            and (self.reads_float or op.src not in target.floats)
            and (self.writes_float or op.out not in target.floats)
            and (self.writes_int8 or op.out not in target.scales or op.src in target.scales)
            and (self.exact or target.bytes_of(op.src) != 2 or not is_narrow(op))
            and self.supports(target, op)
        )

    @abstractmethod
    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        """Return whether it computes this convolution, apart from the capabilities above."""

    @abstractmethod
    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Return the arrays to upload."""

    @abstractmethod
    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        """Enqueue the kernels."""

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        """Return the bytes of workspace that it needs."""
        return 0

    def tile(self, target: Target, op: ops.Conv2d) -> Tile | None:
        """Return the kernel that has to be compiled for this convolution, if any."""
        return None

    def estimate(self, target: Target, op: ops.Conv2d) -> float | None:
        """Return about how many cycles it takes; None if the algorithm has no variants."""
        return None

    def rule_of_thumb(self, target: Target, op: ops.Conv2d) -> float | None:
        """Return a cost to compare with other variants; None if it must be measured to be used."""
        return 0.0

    def partial_sums(self, target: Target, op: ops.Conv2d, gate: ops.Gate) -> PartialSums | None:
        """Return what it can compute for the squeeze-and-excite block that follows."""
        return None
