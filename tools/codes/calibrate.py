"""Shift the scores of trained weights so that chosen thresholds become darknet's default 0.25.

python tools/codes/calibrate.py codes.weights --threshold 0.5 0.6 0.65 0.5 --output FILE

Only the bias of objectness changes, so boxes stay the same, and the default threshold becomes right
for every program that reads the weights. Heads may have thresholds of their own, because false
alarms have other sizes than codes.
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--cfg", type=Path, default=_REPOSITORY / "cfg/codes.cfg")
    parser.add_argument(
        *("--threshold", "--thresholds"),
        type=float,
        nargs="+",
        required=True,
        help="the score to move to 0.25, for all heads or for each in the order of the .cfg",
    )
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    for each in options.threshold:
        if not 0 < each < 1:
            parser.error(f"--threshold: expected a score above 0 and below 1, got {each:g}")
    network = graph.build(cfg.read(options.cfg))
    heads = [node for node in network.nodes if node.kind == "yolo"]
    thresholds = options.threshold * (len(heads) if len(options.threshold) == 1 else 1)
    if len(thresholds) != len(heads):
        parser.error(f"--threshold: expected 1 or {len(heads)} values, got {len(thresholds)}")
    arrays = list(weights.load(options.weights, network))
    for node, threshold in zip(heads, thresholds, strict=True):
        bias = arrays[node.index - 1]["bias"].copy()
        rows = bias.reshape(len(node.layer.selected_anchors()), -1)
        rows[:, 4] += _logit(_DEFAULT) - _logit(threshold)
        arrays[node.index - 1] = {**arrays[node.index - 1], "bias": bias}
    seen = weights.read_header(options.weights).seen
    weights.save(options.output, network, arrays, seen=seen, overwrite=True)
    return 0


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))


if __name__ == "__main__":
    sys.exit(main())
