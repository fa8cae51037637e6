"""Which values of a parametrised test run in the fast lane."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def slow_except(fast: Container[Any], values: Iterable[Any]) -> list[Any]:
    """Return `values` as parameters, of which all but those in `fast` are marked slow."""
    return [value if value in fast else slow(value) for value in values]


def slow(value: Any) -> Any:
    """Return one value, or a tuple of values, as a parameter that is marked slow."""
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
