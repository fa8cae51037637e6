"""Peak rates of a card, from what its multiprocessors and its memory do in a clock."""

from __future__ import annotations

from engine.backends.base import Peaks
from engine.backends.cuda.driver.context import Card
from engine.backends.cuda.ops.target import VALUE_BYTES

# Fused multiply-adds of one multiprocessor in a clock: float32 without matrix units, tf32, float16
# on matrix units with dense operands. NVIDIA's architecture papers state them.
_RATES: dict[tuple[int, int], tuple[int, int, int]] = {
    (7, 5): (64, 0, 512),
    (8, 0): (64, 512, 1024),
    (8, 6): (128, 128, 512),
    (8, 7): (128, 256, 1024),
    (8, 9): (128, 256, 512),
    (9, 0): (128, 1024, 2048),
}
_SPLIT = 3  # tf32 multiplications for one of float32


def peaks(card: Card, precision: str) -> Peaks | None:
    """Return the peak rates, or None if they are unknown; what is not int8 is float16 there."""
    plain, tf32, float16 = _RATES.get(card.capability, (0, 0, 0))
    best = {"float32": max(plain, tf32 / _SPLIT), "tf32": tf32, "float16": float16}
    floats = "float16" if precision == "int8" else precision
    cycles = 2.0 * card.multiprocessors * card.clock  # with two operations each
    operations = cycles * best[floats]
    if not (operations and card.bandwidth):
        return None
    size, int8 = VALUE_BYTES[floats], cycles * 2 * float16
    return Peaks(operations, card.bandwidth, size, card.multiprocessors, int8)
