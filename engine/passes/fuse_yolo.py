"""Conv2d, YoloOutput -> one Conv2d, which stores the output of the detection layer."""

from __future__ import annotations

from dataclasses import replace

from engine.passes.usage import join_pairs
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Op, YoloOutput


def fuse_yolo(plan: Plan) -> Plan:
    return replace(plan, ops=join_pairs(plan, _join))


def _join(conv: Op, yolo: Op) -> Op | None:
    if isinstance(conv, Conv2d) and isinstance(yolo, YoloOutput) and conv.is_bare:
        return conv.then(yolo)
    return None
