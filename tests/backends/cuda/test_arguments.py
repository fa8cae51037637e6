"""A name of a kernel's parameter means the same for every op."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engine.backends.cuda.ops.arguments import KINDS
from engine.backends.cuda.ops.gpu import Gpu, Place
from engine.backends.cuda.ops.target import Target
from engine.plan import ops
from engine.plan.ops import Constant
from engine.plan.shapes import Window
from tests.backends.cases import tensor

SRC, OUT, OTHER = tensor(6, 9, 7), tensor(4, 5, 3, steps=2), tensor(4, 5, 3)


def arguments(op: ops.Op, **given: Any) -> dict[str, Any]:
    gpu = Gpu(
        Target(3, "float32", (8, 6), 28),
        kernels=SimpleNamespace(),  # type: ignore[arg-type]
        blas=SimpleNamespace(),  # type: ignore[arg-type]
        stream=None,
        places={SRC: Place(256, 8), OUT: Place(512, 5), OTHER: Place(768, 4)},
        arrays={(op, "weight"): 1024},
        workspace=0,
        sequences=3,
        flag=1280,
    )
    return gpu.arguments(op, **given)


def named(found: dict[str, Any], names: str) -> list[Any]:
    return [found[name] for name in names.split()]


def test_what_is_read_and_what_is_written_have_names_of_their_own() -> None:
    pool = ops.MaxPool(OUT, SRC, Window((3, 2), (2, 1), (1, 0, 1, 0)))
    found = arguments(pool)
    assert named(found, "src src_pitch channels height width area") == [256, 8, 6, 9, 7, 63]
    assert named(found, "out out_pitch out_channels out_h out_w out_area") == [512, 5, 4, 5, 3, 15]
    assert named(found, "rows pixels flag") == [6, 90, 1280]
    assert named(found, "size_y size_x stride_y stride_x top left") == [3, 2, 2, 1, 1, 0]
    assert named(arguments(pool, src=OTHER), "src channels out") == [768, 4, 512]


def test_a_convolution_has_names_for_a_group_and_zeros_for_what_it_lacks() -> None:
    conv = ops.Conv2d(OUT, SRC, Constant("w", (4, 3, 2, 1)), groups=2, padding=(1, 2, 0, 0))
    found = arguments(conv)
    assert named(found, "groups group_channels filters kernel_y kernel_x") == [2, 3, 2, 2, 1]
    assert named(found, "top left weight bias residual residual_pitch") == [1, 2, 1024, 0, 0, 0]
    assert named(found, "kind last entries factor") == [KINDS["linear"], KINDS["linear"], 0, 0]


def test_fields_of_an_op_are_arguments() -> None:
    found = arguments(ops.Mix(OUT, OTHER, OTHER, SRC))
    assert named(found, "gate gate_pitch no no_pitch out src") == [768, 4, 256, 8, 512, 512]
    assert named(arguments(ops.Clip(OUT, SRC, 2.5)), "limit src") == [2.5, 256]
