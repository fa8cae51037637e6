"""Lower a network and its weights to a plan of primitive ops, without any fusion."""

from __future__ import annotations

from collections.abc import Sequence

from engine.darknet.blocks import fold_batch_norm
from engine.darknet.graph import Graph
from engine.darknet.layers.base import NETWORK_INPUT, Weights
from engine.darknet.layers.convolutional import Convolutional
from engine.plan.build import Plan, PlanBuilder
from engine.plan.ops import Tensor


def lower(graph: Graph, weights: Sequence[Weights]) -> Plan:
    """Return the plan; its outputs are those of the network and of every detection layer."""
    plan = PlanBuilder(graph.net.shape, graph.net.time_steps)
    layers: list[Tensor] = []
    convolutions = [node.layer for node in graph.nodes if isinstance(node.layer, Convolutional)]
    # Binarised inputs amplify rounding: an error in the last digit near zero flips a sign. Darknet
    # folds all batch norms before it binarises the weights, so do the same here.
    has_xnor = any(each.xnor for each in convolutions)
    for node, arrays in zip(graph.nodes, weights, strict=True):
        if has_xnor and isinstance(node.layer, Convolutional):
            arrays = fold_batch_norm(arrays)
        plan.scope = f"{node.index}.{node.kind}."
        sources = [plan.source if each == NETWORK_INPUT else layers[each] for each in node.sources]
        out = node.layer.lower(plan, arrays, *sources)
        assert out.shape == node.shape, f"layer {node.index} [{node.kind}]: {out.shape}"
        layers.append(out)
    outputs = dict.fromkeys((graph.output.index, *(node.index for node in graph.detections)))
    return plan.build(layers, [layers[index] for index in outputs], graph.titles)
