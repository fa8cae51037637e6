"""[contrastive]: the training loss of embeddings; the identity in inference."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import layer
from engine.darknet.layers.empty import Empty


@layer(
    "contrastive",
    training="classes temperature yolo_layer cls_normalizer max_delta contrastive_neg_max",
)
@dataclass(frozen=True)
class Contrastive(Empty):
    is_cost = True
