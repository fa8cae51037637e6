"""The activations of plan/activations.py as ONNX nodes."""

from __future__ import annotations

from collections.abc import Callable

from engine.export.graph_builder import GraphBuilder

MISH_OPSET = 18  # the first with the op Mish; earlier ones use Softplus and Tanh

_Exporter = Callable[[GraphBuilder, str], str]


def activate(graph: GraphBuilder, value: str, activation: str) -> str:
    return EXPORTERS[activation](graph, value)


def _linear(graph: GraphBuilder, x: str) -> str:
    return x


def _node(kind: str, **attributes: float) -> _Exporter:
    return lambda graph, x: graph.node(kind, x, **attributes)


def _clip(low: float, high: float) -> _Exporter:
    return lambda graph, x: graph.node("Clip", x, graph.number(low), graph.number(high))


def _tanh(graph: GraphBuilder, x: str) -> str:
    # From 10 on, tanh is 1 to the last digit; OpenCV 5 returns NaN for a few hundred.
    return graph.node("Tanh", graph.node("Clip", x, graph.number(-15), graph.number(15)))


def _ramp(graph: GraphBuilder, x: str) -> str:
    return graph.node("Add", graph.node("Relu", x), graph.scale(x, 0.1))


def _loggy(graph: GraphBuilder, x: str) -> str:
    return graph.scale(graph.node("Sigmoid", x), 2, -1)


def _swish(graph: GraphBuilder, x: str) -> str:
    return graph.node("Mul", x, graph.node("Sigmoid", x))


def _mish(graph: GraphBuilder, x: str) -> str:
    if graph.opset >= MISH_OPSET:
        return graph.node("Mish", x)
    return graph.node("Mul", x, _tanh(graph, graph.node("Softplus", x)))


def _hard_mish(graph: GraphBuilder, x: str) -> str:
    curve = graph.node("Add", graph.scale(graph.node("Mul", x, x), 0.5), x)
    inner = _above(graph, x, -2, curve, graph.number(0))
    return _above(graph, x, 0, x, inner)


def _gelu(graph: GraphBuilder, x: str) -> str:
    cube = graph.node("Mul", graph.node("Mul", x, x), x)
    inside = graph.node("Add", graph.scale(x, 0.797885), graph.scale(cube, 0.035677))
    return graph.node("Mul", graph.scale(x, 0.5), graph.scale(_tanh(graph, inside), 1, 1))


def _plse(graph: GraphBuilder, x: str) -> str:
    low, high = graph.scale(x, 0.01, 0.04), graph.scale(x, 0.01, 0.96)
    outer = _above(graph, x, 4, high, graph.scale(x, 0.125, 0.5))
    return graph.node("Where", graph.node("Less", x, graph.number(-4)), low, outer)


def _stair(graph: GraphBuilder, x: str) -> str:
    floor, half = graph.node("Floor", x), graph.node("Floor", graph.scale(x, 0.5))
    remainder = graph.node("Mod", floor, graph.number(2), fmod=1)
    is_even = graph.node("Equal", remainder, graph.number(0))
    return graph.node("Where", is_even, half, graph.node("Add", graph.node("Sub", x, floor), half))


def _lhtan(graph: GraphBuilder, x: str) -> str:
    outer = _above(graph, x, 1, graph.scale(x, 0.001, 0.999), x)
    return graph.node("Where", graph.node("Less", x, graph.number(0)), graph.scale(x, 0.001), outer)


def _above(graph: GraphBuilder, x: str, bound: float, yes: str, no: str) -> str:
    return graph.node("Where", graph.node("Greater", x, graph.number(bound)), yes, no)


EXPORTERS: dict[str, _Exporter] = {
    "linear": _linear,
    "leaky": _node("LeakyRelu", alpha=0.1),
    "relu": _node("Relu"),
    "relu6": _clip(0, 6),
    "relie": _node("LeakyRelu", alpha=0.01),
    "ramp": _ramp,
    "revleaky": _node("LeakyRelu", alpha=0.1),
    "logistic": _node("Sigmoid"),
    "loggy": _loggy,
    "tanh": _tanh,
    "swish": _swish,
    "mish": _mish,
    "hard_mish": _hard_mish,
    "gelu": _gelu,
    "elu": _node("Elu", alpha=1.0),
    "selu": _node("Selu", alpha=1.6732, gamma=1.0507),
    "plse": _plse,
    "stair": _stair,
    "hardtan": _clip(-1, 1),
    "lhtan": _lhtan,
}
