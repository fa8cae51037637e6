"""Convolutions as functions of arrays, without a network.

    from engine.ops import conv2d

    y = conv2d(x, w, padding="same")    # x (rows, channels, height, width), w (filters, ...)

A NumPy array gives a NumPy array; an array on a GPU (anything with `__cuda_array_interface__`)
gives an array on the same GPU. Arithmetic is float32.
"""

from __future__ import annotations

import atexit
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import repr as brief
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from engine.arguments import as_array, check_kind, whole
from engine.arrays import Array
from engine.backends import open_device
from engine.backends.base import Device, Program
from engine.concurrency import fork_safety
from engine.darknet import network_limits
from engine.errors import InputError, suggest
from engine.plan.activations import ACTIVATIONS
from engine.plan.build import Plan, PlanBuilder
from engine.plan.ops import Activate, Conv2d
from engine.plan.shapes import Shape

if TYPE_CHECKING:
    from engine.backends.cuda.device_arrays import CardArray

__all__ = ["conv1d", "conv2d", "release"]

Padding: TypeAlias = int | str | Sequence[int]
Pair: TypeAlias = int | Sequence[int]

PROGRAMS = 16  # kept for each device; the least recently used is dropped first


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    activation: str = "linear",
    algorithm: str | None = None,
    device: str | None = None,
) -> Any:
    """Return activation(x * w + bias).

    x is (rows, channels, height, width), w (filters, channels / groups, height, width).

    stride, dilation  one number, or (vertical, horizontal)
    padding           one number, (top, left, bottom, right), "valid" for none, or "same": as many
                      outputs as inputs divided by the stride, an odd cell of padding at the end
    activation        a name that a .cfg could use, such as leaky or mish
    algorithm   on a GPU: the name of an algorithm of engine/backends/cuda/conv/
    device            where to compute: cpu, cuda:0 …; None means where x is

    Weights may differ from call to call; repeated weights are prepared once.

    Examples:
        >>> x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
        >>> engine.ops.conv2d(x, w, padding="same")[0, 0].tolist()
        [[4.0, 6.0, 4.0], [6.0, 9.0, 6.0], [4.0, 6.0, 4.0]]
    """
    return _convolve(
        *(x, w, bias, 4),
        stride=_pair("stride", stride),
        padding=padding,
        dilation=_pair("dilation", dilation),
        groups=groups,
        activation=activation,
        algorithm=algorithm,
        device=device,
    )


def conv1d(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: int = 1,
    padding: Padding = 0,
    dilation: int = 1,
    groups: int = 1,
    activation: str = "linear",
    algorithm: str | None = None,
    device: str | None = None,
) -> Any:
    """Return conv2d() of x (rows, channels, length) and w (filters, channels / groups, size).

    padding is one number, (before, after), "valid" or "same".

    Examples:
        >>> x, w = np.arange(4, dtype=np.float32), np.ones(2, np.float32)
        >>> engine.ops.conv1d(x[None, None], w[None, None]).tolist()
        [[[1.0, 3.0, 5.0]]]
    """
    if not isinstance(padding, str):
        before, after = _numbers("padding", padding, "a number or (before, after)", 2, least=0)
        padding = (0, before, 0, after)
    (along,) = _numbers("stride", stride, "a number", 1)
    (apart,) = _numbers("dilation", dilation, "a number", 1)
    return _convolve(
        *(x, w, bias, 3),
        stride=(1, along),
        padding=padding,
        dilation=(1, apart),
        groups=groups,
        activation=activation,
        algorithm=algorithm,
        device=device,
    )


def release() -> None:
    """Release all devices and memory that the functions of this module hold.

    This waits for calls in other threads; the next call opens its device again.

    Examples:
        >>> engine.ops.release()
    """
    with _lock:
        caches = list(_caches.values())
    for each in caches:
        each.close()


# ---------------------------------------------------------------- one call


@dataclass(frozen=True)
class _Signature:
    """Everything that a program depends on, except the values of the weights."""

    rows: int
    source: Shape
    out: Shape
    weight: tuple[int, ...]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    activation: str
    algorithm: str | None

    def plan(self, weight: Array, bias: Array | None) -> Plan:
        builder = PlanBuilder(self.source)
        conv = Conv2d(
            builder.tensor(self.out),
            builder.source,
            builder.constant("weight", weight),
            None if bias is None else builder.constant("bias", bias),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )
        if self.activation != "linear":
            conv = conv.then(Activate(builder.tensor(self.out), conv.out, self.activation))
        out = builder.emit(conv)
        return builder.build([out], [out])


def _convolve(
    x: Any,
    w: Any,
    bias: Any,
    dimensions: int,
    *,
    stride: tuple[int, int],
    padding: Padding,
    dilation: tuple[int, int],
    groups: int,
    activation: str,
    algorithm: str | None,
    device: str | None,
) -> Any:
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise InputError(f"activation: unknown {activation!r}.{suggest(activation, ACTIVATIONS)}")
    images = _operand("x", x, dimensions)
    cache = _cache_for(_device_name(device, images, algorithm))
    weight = cache.values("w", _operand("w", w, dimensions))
    biases = None if bias is None else cache.values("bias", _operand("bias", bias, 1))
    shape = _deep(images.shape)
    weight = np.ascontiguousarray(weight.reshape(_deep(weight.shape)))
    _check(shape, weight.shape, biases, groups)
    sides = _sides(padding, shape[2:], weight.shape[2:], stride, dilation)
    reach = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilation, strict=True)]
    height = shape[2] + sides[0] + sides[2]
    width = shape[3] + sides[1] + sides[3]
    if height < reach[0] or width < reach[1]:
        raise InputError(
            f"w: expected a window that fits into a padded map of {height} x {width}, "
            f"got one of {reach[0]} x {reach[1]} cells"
        )
    out = Shape(
        len(weight), (height - reach[0]) // stride[0] + 1, (width - reach[1]) // stride[1] + 1
    )
    for what, extents in (("padded map", Shape(shape[1], height, width)), ("output", out)):
        if extents.size > network_limits.VALUES:
            most = network_limits.VALUES
            raise InputError(f"{what}: expected at most {most} values, got {extents}")
    signature = _Signature(
        rows=shape[0],
        source=Shape(*shape[1:]),
        weight=weight.shape,
        out=out,
        stride=stride,
        padding=sides,
        dilation=dilation,
        groups=int(groups),
        activation=activation,
        algorithm=algorithm,
    )
    out_shape = (shape[0], *out.sides) if dimensions == 4 else (shape[0], len(weight), out.width)
    return cache.run(signature, weight, biases, images, out_shape)


class _ProgramCache:
    """A device, opened on first use, and its compiled programs; calls are serialised."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._device: Device | None = None
        self._programs: OrderedDict[tuple[_Signature, bytes], Program] = OrderedDict()
        self._lock = fork_safety.lock(outer=True)  # acquired before the locks of programs

    def run(
        self,
        signature: _Signature,
        weight: Array,
        bias: Array | None,
        images: Array | CardArray,
        out_shape: tuple[int, ...],
    ) -> Any:
        with self._lock:
            device = self._opened()
            program = self._program(device, signature, weight, bias)
            if isinstance(images, np.ndarray):
                (result,) = program.forward(_float32(images).reshape(-1, *signature.source.sides))
                return result.reshape(out_shape)
            return images.through(device, program, out_shape)

    def values(self, name: str, operand: Array | CardArray) -> Array:
        """Convert to float32 on the host."""
        with self._lock:
            device = self._opened()
            if isinstance(operand, np.ndarray):
                array = operand
            elif operand.device == device.name:
                array = operand.read(device)
            else:
                raise InputError(f"{name}: expected on {device.name}, got {operand.device}")
        return np.ascontiguousarray(_float32(array))

    def _opened(self) -> Device:
        if self._device is None:
            self._device = open_device(self._name)
        return self._device

    def _program(
        self, device: Device, signature: _Signature, weight: Array, bias: Array | None
    ) -> Program:
        digest = hashlib.sha256(weight.tobytes())
        if bias is not None:
            digest.update(bias.tobytes())
        key = signature, digest.digest()
        if key in self._programs:
            self._programs.move_to_end(key)
            return self._programs[key]
        if len(self._programs) == PROGRAMS:
            self._programs.popitem(last=False)[1].close()
        plan = signature.plan(weight, bias)
        self._programs[key] = _compile(device, signature, plan)
        return self._programs[key]

    def close(self) -> None:
        with self._lock:
            self._programs.clear()
            if self._device is not None:
                self._device.close()
                self._device = None


def _compile(device: Device, signature: _Signature, plan: Plan) -> Program:
    if device.name.startswith("cpu"):
        return device.compile(plan, batch=signature.rows)
    from engine.backends.cuda.device_arrays import compile_one

    return compile_one(device, plan, signature.rows, signature.algorithm)


_caches: dict[str, _ProgramCache] = {}
_lock = fork_safety.lock(outer=True)
atexit.register(release)


def _cache_for(name: str) -> _ProgramCache:
    with _lock:
        return _caches.setdefault(name, _ProgramCache(name))


# ---------------------------------------------------------------- arguments


def _operand(name: str, value: Any, dimensions: int) -> Array | CardArray:
    """Check type and number of dimensions; the values stay where they are."""
    if hasattr(value, "__cuda_array_interface__"):
        from engine.backends.cuda.device_arrays import CardArray

        found: Array | CardArray = CardArray.of(name, value)
    else:
        array = as_array(name, value)
        if array.dtype.kind != "f":
            raise InputError(
                f"{name}: expected float32, got {array.dtype}. Try {name}.astype(np.float32)"
            )
        found = array
    if len(found.shape) != dimensions or not all(found.shape):
        expected = {1: "one dimension", 3: "3 dimensions", 4: "4 dimensions"}[dimensions]
        raise InputError(f"{name}: expected {expected}, none of them 0, got {found.shape}")
    return found


def _float32(array: Array) -> Array:
    with np.errstate(over="ignore"):  # values out of range become infinite, as on a GPU
        return array.astype(np.float32, copy=False)


def _deep(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Insert a height of 1 into a shape with only a length."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def _check(
    shape: tuple[int, ...], weight: tuple[int, ...], bias: Array | None, groups: int
) -> None:
    whole("groups", groups)
    channels, filters = shape[1], weight[0]
    if channels % groups or filters % groups:
        raise InputError(
            f"groups: expected a divisor of {channels} channels and {filters} filters, got {groups}"
        )
    if weight[1] * groups != channels:
        raise InputError(
            f"w: expected {channels // groups} channels ({channels} in {groups} groups), "
            f"got {weight[1]}"
        )
    if bias is not None and bias.shape != (filters,):
        raise InputError(f"bias: expected {filters} values, one for each filter, got {bias.shape}")


def _numbers(
    name: str, value: Any, expected: str, count: int, *, least: int = 1
) -> tuple[int, ...]:
    """Return `count` integers; a single number is repeated."""
    numbers = (value,) * count if isinstance(value, (int, np.integer)) else value
    try:
        made = tuple(map(int, numbers))
        is_right = made == tuple(numbers) and len(made) == count and min(made) >= least
    except (TypeError, ValueError, OverflowError):
        is_right = False
    if not is_right:
        raise InputError(f"{name}: expected {expected} of {least} or more, got {brief(value)}")
    if max(made) > network_limits.INTEGER:
        raise InputError(f"{name}: expected at most {network_limits.INTEGER}, got {brief(value)}")
    return made


def _pair(name: str, value: Pair) -> tuple[int, int]:
    vertical, horizontal = _numbers(name, value, "a number or (vertical, horizontal)", 2)
    return vertical, horizontal


def _sides(
    padding: Padding,
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[int, int, int, int]:
    """Return the padding as (top, left, bottom, right)."""
    if not isinstance(padding, str):
        expected = "a number or (top, left, bottom, right)"
        top, left, bottom, right = _numbers("padding", padding, expected, 4, least=0)
    elif padding == "same":
        (top, bottom), (left, right) = map(_same, extents, kernel, stride, dilation)
    elif padding == "valid":
        top = left = bottom = right = 0
    else:
        hint = suggest(padding, ("same", "valid"))
        raise InputError(f"padding: expected numbers, 'same' or 'valid', got {padding!r}.{hint}")
    return top, left, bottom, right


def _same(extent: int, size: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the padding before and after, so that ceil(extent / stride) windows fit."""
    total = max((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
    return total // 2, total - total // 2


def _device_name(device: str | None, images: Array | CardArray, algorithm: str | None) -> str:
    check_kind("device", device, (str, NoneType), "a name such as 'cpu'")
    home = "cpu" if isinstance(images, np.ndarray) else images.device
    name = device or home
    name = "cuda:0" if name == "cuda" else name
    if "," in name:
        raise InputError(f"device: expected one device, got {device!r}")
    if not isinstance(images, np.ndarray) and name != home:
        raise InputError(f"device: expected {home}, where x lies, got {device!r}")
    if algorithm is not None and name.startswith("cpu"):
        raise InputError(
            f"algorithm: expected None on {name}, which chooses by itself, got {algorithm!r}. "
            "Try device='cuda'"
        )
    return name
