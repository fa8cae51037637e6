"""The activations of plan/activations.py in ONNX, one row each."""

from __future__ import annotations

from collections.abc import Callable

from engine.export.writer import Writer

MISH_OPSET = 18  # has Mish as one node; before, it is written by its parts

_Form = Callable[[Writer, str], str]


def activate(onto: Writer, value: str, activation: str) -> str:
    return FORMS[activation](onto, value)


def _linear(onto: Writer, x: str) -> str:
    return x


def _node(kind: str, **attributes: float) -> _Form:
    return lambda onto, x: onto.node(kind, x, **attributes)


def _clip(low: float, high: float) -> _Form:
    return lambda onto, x: onto.node("Clip", x, onto.number(low), onto.number(high))


def _ramp(onto: Writer, x: str) -> str:
    return onto.node("Add", onto.node("Relu", x), onto.scaled(x, 0.1))


def _loggy(onto: Writer, x: str) -> str:
    return onto.scaled(onto.node("Sigmoid", x), 2, -1)


def _swish(onto: Writer, x: str) -> str:
    return onto.node("Mul", x, onto.node("Sigmoid", x))


def _mish(onto: Writer, x: str) -> str:
    if onto.opset >= MISH_OPSET:
        return onto.node("Mish", x)
    return onto.node("Mul", x, onto.node("Tanh", onto.node("Softplus", x)))


def _hard_mish(onto: Writer, x: str) -> str:
    curve = onto.node("Add", onto.scaled(onto.node("Mul", x, x), 0.5), x)
    inner = _above(onto, x, -2, curve, onto.number(0))
    return _above(onto, x, 0, x, inner)


def _gelu(onto: Writer, x: str) -> str:
    cube = onto.node("Mul", onto.node("Mul", x, x), x)
    inside = onto.node("Add", onto.scaled(x, 0.797885), onto.scaled(cube, 0.035677))
    return onto.node("Mul", onto.scaled(x, 0.5), onto.scaled(onto.node("Tanh", inside), 1, 1))


def _plse(onto: Writer, x: str) -> str:
    low, high = onto.scaled(x, 0.01, 0.04), onto.scaled(x, 0.01, 0.96)
    outer = _above(onto, x, 4, high, onto.scaled(x, 0.125, 0.5))
    return onto.node("Where", onto.node("Less", x, onto.number(-4)), low, outer)


def _stair(onto: Writer, x: str) -> str:
    floor, half = onto.node("Floor", x), onto.node("Floor", onto.scaled(x, 0.5))
    remainder = onto.node("Mod", floor, onto.number(2), fmod=1)
    is_even = onto.node("Equal", remainder, onto.number(0))
    return onto.node("Where", is_even, half, onto.node("Add", onto.node("Sub", x, floor), half))


def _lhtan(onto: Writer, x: str) -> str:
    outer = _above(onto, x, 1, onto.scaled(x, 0.001, 0.999), x)
    return onto.node("Where", onto.node("Less", x, onto.number(0)), onto.scaled(x, 0.001), outer)


def _above(onto: Writer, x: str, bound: float, yes: str, no: str) -> str:
    return onto.node("Where", onto.node("Greater", x, onto.number(bound)), yes, no)


FORMS: dict[str, _Form] = {
    "linear": _linear,
    "leaky": _node("LeakyRelu", alpha=0.1),
    "relu": _node("Relu"),
    "relu6": _clip(0, 6),
    "relie": _node("LeakyRelu", alpha=0.01),
    "ramp": _ramp,
    "revleaky": _node("LeakyRelu", alpha=0.1),
    "logistic": _node("Sigmoid"),
    "loggy": _loggy,
    "tanh": _node("Tanh"),
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
