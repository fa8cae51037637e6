"""[dropout]: the identity in inference, without scaling."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import layer
from engine.darknet.layers.empty import Empty


@layer("dropout", training="probability dropblock dropblock_size_rel dropblock_size_abs")
@dataclass(frozen=True)
class Dropout(Empty):
    """The identity, because darknet applies the scaling during training."""
