"""Wears the CPU out: whether memory stays flat and answers find their askers.

    python -m tools.soak_cpu [PART ...] [--json rows.json] [--quick]

    images    100,000 pictures of many sizes: slope of memory
    loads     1,000 loads, first results and closes: the same
    threads   32 threads on one detector, 500 tagged pictures each

The network is the one in the box, on small inputs. The exit status is 1 when a number is not what
it should be.
"""

from __future__ import annotations

import sys
from typing import Any

import engine
from tools.wearing import Wear, main, memory_of_process

PARTS = ("images", "loads", "threads")
SIDE = 96
THRESHOLD = 0.0005  # pictures of blocks hold no codes: this leaves some boxes of each


class SoakCpu(Wear):
    def load_small(self, **options: Any) -> engine.Detector:
        return engine.load(device="cpu", size=SIDE, threshold=THRESHOLD, **options)

    def memory_in_use(self) -> dict[str, int]:
        return {"host": memory_of_process()}


if __name__ == "__main__":
    sys.exit(main(SoakCpu, PARTS, __doc__))
