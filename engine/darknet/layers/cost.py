"""[cost]: a training loss; the identity in inference."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import layer
from engine.darknet.layers.empty import Empty


@layer("cost", training="type scale ratio noobj thresh")
@dataclass(frozen=True)
class Cost(Empty):
    is_cost = True
