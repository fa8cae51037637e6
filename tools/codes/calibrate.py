"""Shift the scores of trained weights so that a chosen threshold becomes darknet's default 0.25.

python tools/codes/calibrate.py codes.weights --threshold 0.75 --large 0.4 --output FILE

Only the bias of objectness changes, so boxes stay the same, and the default threshold becomes right
for every program that reads the weights. Codes that fill the picture are rare in training and get
low scores, but hardly anything else of that size looks like a code, so they may have a threshold of
their own.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_REPOSITORY))

from engine.darknet import cfg, graph, weights  # noqa: E402

_DEFAULT = 0.25
_LARGE = 200  # pixels, longer side of an anchor


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--cfg", type=Path, default=_REPOSITORY / "cfg/codes.cfg")
    parser.add_argument("--threshold", type=float, required=True, help="the score to move to 0.25")
    parser.add_argument("--large", type=float, help=f"for anchors of more than {_LARGE} pixels")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    network = graph.build(cfg.read(options.cfg))
    arrays = list(weights.load(options.weights, network))
    large = options.large or options.threshold
    for node in network.nodes:
        if node.kind == "yolo":
            bias = arrays[node.index - 1]["bias"].copy()
            rows = bias.reshape(len(node.layer.selected_anchors()), -1)
            for row, anchor in zip(rows, node.layer.selected_anchors(), strict=True):
                threshold = large if max(anchor) > _LARGE else options.threshold
                row[4] += _logit(_DEFAULT) - _logit(threshold)
            arrays[node.index - 1] = {**arrays[node.index - 1], "bias": bias}
    seen = weights.read_header(options.weights).seen
    weights.save(options.output, network, arrays, seen=seen, overwrite=True)
    return 0


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


if __name__ == "__main__":
    sys.exit(main())
