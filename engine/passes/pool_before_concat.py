"""MaxPool(Concat(a, b)) -> Concat(MaxPool(a), MaxPool(b)), as windows do not cross channels.

A convolution can then pool its own output and store a quarter of it, and a source that is also read
by another concatenation can be a view of that one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from engine.passes.fuse_pool import can_take
from engine.passes.usage import Intermediates
from engine.plan.build import Plan
from engine.plan.ops import Concat, ConcatPart, Conv2d, MaxPool, Op, Tensor

_MOST_PARTS = 2  # more parts may become many small pools that no convolution can fuse


def pool_before_concat(plan: Plan) -> Plan:
    intermediates = Intermediates(plan)
    writers: dict[Tensor, Op] = {op.out: op for op in plan.ops}
    concats = Counter(part.src for op in plan.ops if isinstance(op, Concat) for part in op.parts)
    index = max((tensor.index for tensor in plan.tensors), default=0)

    def gains(src: Tensor, pool: MaxPool) -> bool:
        conv = writers.get(src)
        is_taken = isinstance(conv, Conv2d) and src in intermediates and can_take(conv, pool)
        return is_taken or concats[src] > 1

    replaced: dict[Op, tuple[Op, ...]] = {}
    for op in plan.ops:
        concat = writers.get(op.src) if isinstance(op, MaxPool) else None
        if not isinstance(op, MaxPool) or not isinstance(concat, Concat):
            continue
        if op.src not in intermediates or not _are_whole(concat):
            continue
        if not any(gains(part.src, op) for part in concat.parts):
            continue
        pools: list[Op] = []
        parts = []
        for part in concat.parts:
            index += 1
            out = replace(op.out, index=index, shape=op.out.shape.with_channels(part.count))
            pools.append(replace(op, out=out, src=part.src))
            parts.append(replace(part, src=out))
        replaced[concat] = ()
        replaced[op] = (*pools, Concat(op.out, tuple(parts)))
    return replace(plan, ops=tuple(each for op in plan.ops for each in replaced.get(op, (op,))))


def _are_whole(concat: Concat) -> bool:
    def is_whole(part: ConcatPart) -> bool:
        return part.first == 0 and part.count == part.src.shape.channels

    sources = [part.src for part in concat.parts]
    return (
        1 < len(sources) <= _MOST_PARTS
        and len(set(sources)) == len(sources)
        and all(map(is_whole, concat.parts))
        and not any(src.is_state or src.steps != concat.out.steps for src in sources)
    )
