"""engine.ops: textbook convolutions, kinds of arrays, errors."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine import ops
from engine.backends.cuda import device_arrays
from engine.errors import DeviceError, InputError
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice

Array = NDArray[Any]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostDevice]:
    """Replace cuda:0 by a device with the memory and kernels of the host."""
    ops.release()
    opened = HostDevice(name="cuda:0")
    open_cpu = ops.open_device
    monkeypatch.setattr(
        ops, "open_device", lambda name: opened if name == "cuda:0" else open_cpu(name)
    )
    monkeypatch.setattr(device_arrays, "card_of", lambda pointer: 0)
    yield opened
    ops.release()


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=needs_gxx)])
def name(request: pytest.FixtureRequest, card: HostDevice) -> str:
    return str(request.param)


class OnCard:
    """An array of another library on a GPU."""

    def __init__(self, values: Array, **facts: Any) -> None:
        self.values = np.ascontiguousarray(values)
        self.__cuda_array_interface__ = {
            "data": (self.values.ctypes.data, False),
            "shape": values.shape,
            "typestr": self.values.dtype.str,
            "version": 3,
            **facts,
        }


def seen(x: Any) -> Array:
    """Return the values behind `__cuda_array_interface__`, which are in host memory here."""
    return np.asarray(type("Host", (), {"__array_interface__": x.__cuda_array_interface__})())


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------- textbooks


def test_kernel_of_ones_counts_the_cells_of_a_map_of_ones(name: str) -> None:
    y = ops.conv2d(np.ones((1, 1, 5, 5)), np.ones((1, 1, 3, 3)), padding=1, device=name)
    expected = [
        [4, 6, 6, 6, 4],
        [6, 9, 9, 9, 6],
        [6, 9, 9, 9, 6],
        [6, 9, 9, 9, 6],
        [4, 6, 6, 6, 4],
    ]
    np.testing.assert_array_equal(y, [[expected]])
    assert y.dtype == np.float32


def test_conv1d_of_a_textbook_signal(name: str) -> None:
    signal, mask = np.arange(1.0, 17), np.array([3.0, 4, 5, 4, 3])
    y = ops.conv1d(signal[None, None], mask[None, None], padding="same", device=name)
    np.testing.assert_array_equal(y, [[np.convolve(signal, mask, mode="same")]])
    assert y.shape == (1, 1, 16)


@pytest.mark.parametrize(
    ("size", "extent", "stride", "expected"),
    [
        (2, 4, 1, [3, 5, 7, 4]),  # the odd cell of padding is at the end
        (4, 4, 1, [6, 10, 9, 7]),
        (3, 4, 1, [3, 6, 9, 7]),
        (3, 4, 2, [6, 7]),
        (2, 5, 2, [3, 7, 5]),
        (1, 5, 2, [1, 3, 5]),
    ],
)
def test_same_padding_puts_the_odd_cell_at_the_end(
    name: str, size: int, extent: int, stride: int, expected: list[int]
) -> None:
    x = np.arange(1.0, extent + 1)
    y = ops.conv1d(x[None, None], np.ones((1, 1, size)), stride=stride, padding="same", device=name)
    np.testing.assert_array_equal(y, [[expected]])
    tall = ops.conv2d(
        x[None, None, :, None],
        np.ones((1, 1, size, 1)),
        stride=(stride, 1),
        padding="same",
        device=name,
    )
    np.testing.assert_array_equal(tall[0, 0, :, 0], expected)


# ---------------------------------------------------------------- every option


def by_definition(
    x: Array,
    w: Array,
    stride: tuple[int, int],
    sides: tuple[int, ...],
    step: tuple[int, int],
    groups: int,
) -> Array:
    top, left, bottom, right = sides
    x = np.pad(x.astype(float), ((0, 0), (0, 0), (top, bottom), (left, right)))
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], step, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    windows = windows[:, :, :: stride[0], :: stride[1], :: step[0], :: step[1]]
    parts = zip(np.split(windows, groups, 1), np.split(w.astype(float), groups), strict=True)
    return np.concatenate([np.einsum("rcyxij,ncij->rnyx", a, b) for a, b in parts], 1)


OPTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], tuple[int, ...]]] = [
    ((2, 3, 7, 6), (4, 3, 3, 3), {}, (0, 0, 0, 0)),
    ((2, 3, 7, 6), (4, 3, 3, 3), {"padding": "valid"}, (0, 0, 0, 0)),
    ((1, 4, 7, 6), (6, 2, 3, 2), {"groups": 2, "padding": (1, 0, 2, 3)}, (1, 0, 2, 3)),
    ((1, 2, 9, 8), (3, 2, 3, 3), {"stride": (2, 3), "padding": 2}, (2, 2, 2, 2)),
    ((1, 2, 9, 8), (3, 2, 3, 3), {"dilation": (1, 2), "padding": "same"}, (1, 2, 1, 2)),
    ((3, 8, 5, 5), (8, 1, 3, 3), {"groups": 8, "padding": 1}, (1, 1, 1, 1)),
    ((2, 5, 4, 4), (7, 5, 1, 1), {}, (0, 0, 0, 0)),
]


@pytest.mark.parametrize(("shape", "weight", "options", "sides"), OPTIONS)
def test_every_option_agrees_with_the_definition(name, shape, weight, options, sides) -> None:
    x, w = random(*shape), random(*weight)
    step, stride = options.get("dilation", (1, 1)), options.get("stride", (1, 1))
    expected = by_definition(x, w, stride, sides, step, options.get("groups", 1))
    y = ops.conv2d(x, w, device=name, **options)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_numpy_numbers_are_accepted() -> None:
    x, w = random(1, 4, 5, 5), random(6, 2, 3, 3)
    options = {"groups": np.int64(2), "stride": np.int64(2), "padding": np.array([1, 0, 2, 3])}
    expected = ops.conv2d(x, w, groups=2, stride=2, padding=(1, 0, 2, 3))
    np.testing.assert_array_equal(ops.conv2d(x, w, **options), expected)


def test_stride_longer_than_the_map_leaves_one_window() -> None:
    y = ops.conv2d(X, W, stride=2**31 - 1, padding=1)
    np.testing.assert_array_equal(y, np.full((1, 6, 1, 1), 16, np.float32))


def test_float32_overflow_is_infinite() -> None:
    y = ops.conv2d(np.full((1, 1, 1, 1), 1e300), np.full((1, 1, 1, 1), 1e300))
    np.testing.assert_array_equal(y, [[[[np.inf]]]])


def test_bias_and_activation_are_applied(name: str) -> None:
    x, w, bias = random(1, 3, 4, 4), random(2, 3, 1, 1), np.array([10.0, -10.0], np.float32)
    y = ops.conv2d(x, w, bias, activation="relu", device=name)
    expected = np.maximum(np.einsum("rcyx,nc->rnyx", x, w[..., 0, 0]) + bias[:, None, None], 0)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@needs_gxx
@pytest.mark.parametrize("algorithm", ["direct", "tiled", "im2col_gemm"])
def test_cuda_algorithm_can_be_chosen(card: HostDevice, algorithm: str) -> None:
    x, w = random(1, 3, 6, 6), random(4, 3, 3, 3)
    y = ops.conv2d(x, w, padding=1, algorithm=algorithm, device="cuda")
    np.testing.assert_allclose(y, ops.conv2d(x, w, padding=1), rtol=1e-4, atol=1e-5)
    kernel = {"im2col_gemm": "im2col_elements"}
    assert kernel.get(algorithm, algorithm) in card.context.launched


# ---------------------------------------------------------------- arrays on a card


@needs_gxx
def test_array_on_a_gpu_gives_an_array_on_that_gpu(card: HostDevice) -> None:
    x, w, bias = random(2, 3, 6, 5), random(4, 3, 3, 3), random(4)
    y = ops.conv2d(OnCard(x), OnCard(w), OnCard(bias), padding=1)
    assert not isinstance(y, np.ndarray)
    np.testing.assert_allclose(seen(y), ops.conv2d(x, w, bias, padding=1), rtol=1e-5, atol=1e-5)
    before = len(card.context.driver.live)
    del y
    card.context.run(lambda: None)  # all earlier jobs are done
    assert len(card.context.driver.live) == before - 1


@needs_gxx
def test_conv1d_on_a_gpu_keeps_three_axes(card: HostDevice) -> None:
    y = ops.conv1d(OnCard(random(2, 3, 9)), random(4, 3, 3))
    assert seen(y).shape == y.shape == (2, 4, 7)


@needs_gxx
def test_result_is_of_the_callers_array_library(
    card: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        device_arrays._MAKERS, "tests", lambda like, shape: type(like)(np.empty(shape, np.float32))
    )
    monkeypatch.setattr(OnCard, "__module__", "tests.test_ops")
    y = ops.conv2d(OnCard(np.ones((1, 1, 2, 2), np.float32)), np.ones((1, 1, 2, 2)))
    assert isinstance(y, OnCard)
    np.testing.assert_array_equal(y.values, [[[[4]]]])


@pytest.mark.parametrize(
    ("x", "device", "message"),
    [
        (OnCard(np.ones((1, 1, 4, 4))), None, "x: expected float32, got float64"),
        (
            OnCard(np.ones((1, 1, 4, 4), np.float32), strides=(64, 64, 4, 16)),
            None,
            r"x: expected a contiguous array, got strides \(64, 64, 4, 16\)",
        ),
        (
            OnCard(np.ones((1, 1, 4, 4), np.float32)),
            "cpu",
            "device: expected cuda:0, where x lies, got 'cpu'",
        ),
    ],
)
def test_unusable_gpu_arrays_are_refused(card, x, device, message) -> None:
    with pytest.raises(InputError, match=message):
        ops.conv2d(x, np.ones((1, 1, 3, 3)), device=device)


def test_gpu_weights_with_a_host_array_are_refused(card: HostDevice) -> None:
    with pytest.raises(InputError, match="w: expected on cpu, got cuda:0"):
        ops.conv2d(random(1, 1, 4, 4), OnCard(random(1, 1, 3, 3)))


# ---------------------------------------------------------------- programs are kept


def test_programs_are_kept_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    ops.release()
    monkeypatch.setattr(ops, "PROGRAMS", 2)
    x, kernels = random(1, 1, 4, 4), [random(1, 1, 3, 3) * factor for factor in (1, 2, 3)]
    first = ops.conv2d(x, kernels[0])
    kept = ops._caches["cpu"]._programs
    (program,) = kept.values()
    ops.conv2d(x, kernels[0])
    assert list(kept.values()) == [program]
    for kernel in kernels:
        ops.conv2d(x, kernel)
    assert len(kept) == 2
    assert program not in kept.values()
    np.testing.assert_array_equal(ops.conv2d(x, kernels[0]), first)
    np.testing.assert_allclose(ops.conv2d(x, kernels[1]), 2 * first, rtol=1e-6)
    ops.release()


@pytest.mark.slow
def test_release_ends_no_call_of_another_thread() -> None:
    x, w = random(1, 3, 40, 40), random(8, 3, 3, 3)
    expected = ops.conv2d(x, w)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(ops.conv2d, x, w) for _ in range(1000)]
        while not all(each.done() for each in calls):
            ops.release()
        for each in calls:
            np.testing.assert_array_equal(each.result(), expected)
    ops.release()


def test_equal_bytes_of_another_shape_are_another_program() -> None:
    x = random(1, 1, 5, 5)
    w = np.arange(9, dtype=np.float32)
    lying = ops.conv2d(x, w.reshape(1, 1, 1, 9), padding=(0, 4, 0, 4))
    standing = ops.conv2d(x, w.reshape(1, 1, 9, 1), padding=(4, 0, 4, 0))
    assert lying.shape == standing.shape
    assert not np.allclose(lying, standing)


# ---------------------------------------------------------------- what is refused

X, W = np.ones((1, 4, 5, 5), np.float32), np.ones((6, 4, 3, 3), np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((X[0], W), {}, r"x: expected 4 dimensions, none of them 0, got \(4, 5, 5\)"),
        ((X[:0], W), {}, r"x: expected 4 dimensions, none of them 0, got \(0, 4, 5, 5\)"),
        ((X.astype(int), W), {}, r"x: expected float32, got int64. Try x.astype\(np.float32\)"),
        ((X, W[0]), {}, r"w: expected 4 dimensions, none of them 0, got \(4, 3, 3\)"),
        ((X, W[:, :3]), {}, r"w: expected 4 channels \(4 in 1 groups\), got 3"),
        ((X, W, np.ones(5)), {}, r"bias: expected 6 values, one for each filter, got \(5,\)"),
        (
            (X, W, np.ones((6, 1))),
            {},
            r"bias: expected one dimension, none of them 0, got \(6, 1\)",
        ),
        ((X, W), {"groups": 3}, "groups: expected a divisor of 4 channels and 6 filters, got 3"),
        ((X, W), {"groups": 0}, "groups: expected an integer of 1 or more, got 0"),
        (
            (X, W),
            {"stride": 0},
            r"stride: expected a number or \(vertical, horizontal\) of 1 or mo",
        ),
        ((X, W), {"stride": 1.5}, "stride: expected a number or"),
        ((X, W), {"dilation": (1, 2, 3)}, r"dilation: expected .*, got \(1, 2, 3\)"),
        ((X, W), {"padding": -1}, "padding: expected a number or .* of 0 or more, got -1"),
        (
            (X, W),
            {"padding": (1, 1)},
            r"padding: expected a number or \(top, left, bottom, right\)",
        ),
        ((X, W), {"padding": (float("inf"), 0, 0, 0)}, "padding: expected a number or"),
        ((X, W), {"padding": 10**30}, "padding: expected at most 2147483647, got 10"),
        ((X, W), {"stride": 10**30}, "stride: expected at most 2147483647, got 10"),
        (
            (X, W[:1]),
            {"padding": 10**9, "stride": 10**9},
            "padded map: expected at most 2147483647 values, got 4 x 2000000005 x 2000000005",
        ),
        (
            (X[:, :1], np.ones((4096, 1, 1, 1))),
            {"padding": 500},
            "output: expected at most 2147483647 values, got 4096 x 1005 x 1005",
        ),
        ((X, W), {"padding": "sane"}, "padding: .*, got 'sane'. Did you mean 'same'?"),
        (
            (X, W),
            {"dilation": 3},
            "w: expected a window that fits into a padded map of 5 x 5, got on",
        ),
        ((X, W), {"activation": "leeky"}, "activation: unknown 'leeky'. Did you mean 'leaky'?"),
        ((X, W), {"activation": None}, "activation: unknown None."),
        ((X, W), {"activation": ["leaky"]}, r"activation: unknown \['leaky'\]."),
        ((X, W), {"device": 5}, "device: expected a name such as 'cpu', got 5"),
        (
            (X, W),
            {"algorithm": "direct"},
            "algorithm: expected None on cpu, which chooses by itself",
        ),
        ((X, W), {"device": "cuda:0,cuda:1"}, "device: expected one device, got 'cuda:0,cuda:1'"),
        (
            (X, W),
            {"algorithm": "tield", "device": "cuda"},
            "algorithm: unknown 'tield'. Did you mean 'tiled'?",
        ),
        (
            (X, W),
            {"algorithm": "depthwise", "device": "cuda:0"},
            "algorithm: 'depthwise' cannot run this convolution. Try im2col_gemm, tiled",
        ),
    ],
)
def test_invalid_arguments_are_one_error_line(card, arguments, options, message) -> None:
    with pytest.raises(InputError, match=message):
        ops.conv2d(*arguments, **options)


def test_missing_device_is_a_device_error() -> None:
    with pytest.raises(DeviceError):
        ops.conv2d(X, W, device="tpu")
