"""A network with its weights as a plan of plain ops, nothing fused."""

from __future__ import annotations

from collections.abc import Sequence

from engine.darknet.graph import Graph
from engine.darknet.layers.base import NETWORK_INPUT, Weights
from engine.darknet.layers.convolutional import Convolutional
from engine.darknet.parts import fold_statistics
from engine.plan.build import Plan, PlanBuilder
from engine.plan.ops import Tensor


def lower(graph: Graph, weights: Sequence[Weights]) -> Plan:
    """The plan whose outputs are the network's output and that of every detection layer."""
    plan = PlanBuilder(graph.net.shape, graph.net.time_steps)
    layers: list[Tensor] = []
    convolutions = [node.layer for node in graph.nodes if isinstance(node.layer, Convolutional)]
    # A sign turns the last digit of a value near zero into a difference of 2. So these networks
    # round as darknet does, which folds all convolutions before it takes the signs of weights.
    takes_signs = any(each.xnor for each in convolutions)
    for node, arrays in zip(graph.nodes, weights, strict=True):
        if takes_signs and isinstance(node.layer, Convolutional):
            arrays = fold_statistics(arrays)
        plan.scope = f"{node.index}.{node.kind}."
        sources = [plan.source if each == NETWORK_INPUT else layers[each] for each in node.sources]
        out = node.layer.lower(plan, arrays, *sources)
        assert out.shape == node.shape, f"layer {node.index} [{node.kind}]: {out.shape}"
        layers.append(out)
    outputs = dict.fromkeys((graph.output.index, *(node.index for node in graph.detections)))
    return plan.build(layers, [layers[index] for index in outputs], graph.titles)
