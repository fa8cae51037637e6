"""Soak test of the CPU backend: memory must stay flat and threads must get their own answers.

    python -m tools.soak_cpu [PART ...] [--json rows.json] [--quick]

    images    100,000 pictures of many sizes: growth of memory
    loads     1,000 times load, first result, close: growth of memory
    threads   32 threads on one detector, 500 distinguishable pictures each

The network is the bundled one with a small input. The exit status is 1 if a figure misses its
target.
"""

from __future__ import annotations

import sys
from typing import Any

import engine
from tools.soak_base import SoakTest, main, memory_of_process

PARTS = ("images", "loads", "threads")
SIDE = 96
THRESHOLD = 0.0005  # leaves some boxes, although the pictures contain no codes


class SoakCpu(SoakTest):
    def load_small(self, **options: Any) -> engine.Detector:
        known = {"size": SIDE, "threshold": THRESHOLD, "precision": self.precision}
        return engine.load(device="cpu", **known, **options)

    def memory_in_use(self) -> dict[str, int]:
        return {"host": memory_of_process()}


if __name__ == "__main__":
    sys.exit(main(SoakCpu, PARTS, __doc__))
