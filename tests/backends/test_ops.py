"""Every op on every device against loops, with tensors that own memory and with views."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import Device
from engine.plan import ops
from tests.backends.cases import CASES, Case, all_cases, missing_pass
from tests.backends.layouts import ALONE, INSIDE, Layout, run_case
from tests.backends.loops import LOOPS, by_loops

SEQUENCES = 2
EXACT = (
    ops.MaxPool,
    ops.MaxPoolDepth,
    ops.Concat,
    ops.Reshape,
    ops.Reorg,
    ops.TakeStep,
    ops.JoinSteps,
    ops.Store,
    ops.Clip,
)


def test_every_op_has_cases_and_loops() -> None:
    vocabulary = {
        each for each in vars(ops).values() if isinstance(each, type) and issubclass(each, ops.Op)
    } - {ops.Op, ops.Load, ops.Convert}
    # Load reads no tensor: the layout "inside" runs it. Convert is tested with int8 tensors.
    assert set(CASES) == set(LOOPS) == vocabulary


@pytest.mark.parametrize("layout", [ALONE, INSIDE], ids=str)
@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_agrees_with_its_loops(device: Device, case: Case, layout: Layout) -> None:
    if missing := missing_pass(case, device.passes):
        pytest.skip(f"{device.name} does without {missing}")
    result = run_case(device, case, sequences=SEQUENCES, layout=layout)
    expected = by_loops(case, sequences=SEQUENCES)
    if isinstance(case.op, EXACT):
        np.testing.assert_array_equal(result, expected)
    else:
        least = 1e-5
        if isinstance(case.op, ops.Conv2d | ops.Chain):
            # a sum of cancelling terms has their rounding errors, which depend on the order
            least = max(least, 1e-6 * float(abs(expected).max()))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=least)
