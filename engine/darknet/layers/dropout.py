"""[dropout]: drops values in training; lets all through, unscaled, otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import layer
from engine.darknet.layers.empty import Empty


@layer("dropout", training="probability dropblock dropblock_size_rel dropblock_size_abs")
@dataclass(frozen=True)
class Dropout(Empty):
    """Nothing to do outside training."""
