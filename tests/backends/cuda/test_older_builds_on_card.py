"""What older cards are given, on the card there is: built for them, finished by its driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import compile_cache, compiler
from engine.plan import ops
from tests.backends.cases import Case, all_cases, missing_pass
from tests.backends.cuda.tiles_on_card import (
    PLANS,
    able,
    assert_near,
    check_against_the_matrix_product,
    compile_together,
    run,
)
from tests.backends.layouts import INSIDE_ALIGNED, laid_out, run_case
from tests.backends.loops import by_loops
from tests.backends.test_ops import EXACT
from tests.devices import open_or_skip

Array = NDArray[Any]

pytestmark = pytest.mark.cuda

BUILDS = {"sm_75": (7, 5), "sm_80": (8, 0)}
SEQUENCES = 2
# Largest error as a share of the largest value: operands of 11 bits and results of as many, and 24.
# cuBLAS may truncate operands to tf32 instead of rounding them.
TOLERANCES = {"float16": 4e-3, "tf32": 6e-3, "float32": 2e-5}
CONVOLUTIONS = [case for case in all_cases() if isinstance(case.op, ops.Conv2d)]
OTHERS = [case for case in all_cases() if not isinstance(case.op, ops.Conv2d)]

every_precision = pytest.mark.parametrize("precision", TOLERANCES)


@pytest.fixture(scope="module", params=BUILDS)
def older(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    """A device that takes its card for an older one, and gets PTX where that would get a cubin."""
    capability = BUILDS[request.param]
    compile_image = compiler.compile_image
    apart = compile_cache.Cache(compile_cache.folder() / "older builds")

    def in_ptx(
        source: str,
        options: tuple[str, ...],
        asked: tuple[int, int],
        tools: compiler.Toolkit,
    ) -> bytes:
        """No compiler knows 7.6 or 8.1: they get PTX of what was before them."""
        assert asked == capability
        made = compile_image(source, options, (asked[0], asked[1] + 1), tools)
        assert f".target {request.param}\n".encode() in made
        return made

    with closing(open_or_skip(lambda: CudaDevice(0))) as device, pytest.MonkeyPatch.context() as at:
        if device.card.capability < capability:
            pytest.skip(f"{device.card.model} is older than {request.param}")
        at.setattr(device._context, "card", replace(device.card, capability=capability))
        at.setattr(compiler, "compile_image", in_ptx)
        at.setattr(compiler, "_cache", lambda: apart)
        yield device


def needs_its_pass(case: Case, device: CudaDevice) -> None:
    if missing := missing_pass(case, device.passes):
        pytest.skip(f"{device.name} does without {missing}")


@every_precision
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_every_algorithm_agrees_with_loops(older: CudaDevice, case: Case, precision: str) -> None:
    needs_its_pass(case, older)
    plan, images = laid_out(case, sequences=SEQUENCES, layout=INSIDE_ALIGNED)
    expected = by_loops(case, sequences=SEQUENCES)
    names = older.algorithms(plan, case.op, batch=SEQUENCES, precision=precision)  # type: ignore[arg-type]
    compile_together(older, plan, names, batch=SEQUENCES, precision=precision)
    for name in names:
        got = run(older, plan, images, precision, name)
        assert_near(got, expected, TOLERANCES[precision], name)


@every_precision
@pytest.mark.parametrize("name", PLANS)
def test_every_tile_agrees_with_the_matrix_product(
    older: CudaDevice, name: str, precision: str
) -> None:
    """Maps large enough for large tiles and for sums that several blocks share."""
    names = able(older, name, precision)
    has_units = precision == "float16" or older.card.capability >= (8, 0)
    assert any(each.startswith("implicit_gemm") for each in names) == has_units
    check_against_the_matrix_product(older, name, precision, names, TOLERANCES[precision])


@pytest.mark.parametrize("case", OTHERS, ids=str)
def test_every_other_op_agrees_with_its_loops(older: CudaDevice, case: Case) -> None:
    needs_its_pass(case, older)
    got = run_case(older, case, sequences=SEQUENCES)
    expected = by_loops(case, sequences=SEQUENCES)
    if isinstance(case.op, EXACT):
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
