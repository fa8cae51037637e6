"""What a card could compute at most, from what its multiprocessors do in a clock."""

from __future__ import annotations

from engine.backends.cuda.context import Card

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
_COLUMNS = {"float32": 0, "tf32": 1, "float16": 2}


def operations_per_second(card: Card, precision: str) -> float | None:
    """None where it is not known."""
    rates = _RATES.get(card.capability)
    if rates is None or not card.clock:
        return None
    return 2.0 * rates[_COLUMNS[precision]] * card.multiprocessors * card.clock or None
