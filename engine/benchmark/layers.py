"""What each op of a network takes, and how much it computes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from engine.benchmark.subject import Subject
from engine.plan import ops
from engine.plan.ops import Op


@dataclass(frozen=True)
class LayerTime:
    layer: int
    section: str
    op: str
    shape: str  # of its output
    milliseconds: float
    share: float  # of all ops together
    operations: int  # for the whole batch
    algorithm: str

    @property
    def rate(self) -> float:
        """Operations in a second."""
        return self.operations * 1e3 / self.milliseconds if self.milliseconds else 0.0


def measure(subject: Subject, batch: int, *, repeats: int = 10) -> list[LayerTime]:
    """One row for each op, in order; ops that passes have fused count to the last section."""
    program = subject.compile(batch)
    try:
        times = program.profile(subject.images(batch), repeats=repeats)
    finally:
        program.close()
    total = sum(each.milliseconds for each in times) or 1.0
    rows = []
    for each in times:
        layer = subject.plan.layer_of(each.op)
        rows.append(
            LayerTime(
                *(layer, subject.graph.nodes[layer].kind, type(each.op).__name__),
                *(str(each.op.out.shape), each.milliseconds, each.milliseconds / total),
                *(operations(each.op) * batch * each.op.out.steps, each.algorithm),
            )
        )
    return rows


def operations(op: Op) -> int:
    """Multiplications and additions of sums of products, for one row; the rest does not count."""
    if isinstance(op, ops.Conv2d):
        return 2 * op.grid.size * prod(op.weight.shape[1:])
    if isinstance(op, ops.Deconv2d):
        return 2 * op.src.shape.size * prod(op.weight.shape[1:])
    if isinstance(op, ops.LocalConv2d):
        return 2 * prod(op.weight.shape)
    if isinstance(op, ops.MatMul):
        return 2 * prod(op.weight.shape)
    return 0
