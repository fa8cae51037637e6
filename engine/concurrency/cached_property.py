"""functools.cached_property without a lock.

Before Python 3.12 each property has a lock for all objects. If another thread holds it during a
fork, the child waits for it forever. Without it, two threads may both compute a value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property:  # noqa: N801
        def __init__(self, compute: Callable[[Any], Any]) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, _: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, _: type | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._compute(instance)
            return value


__all__ = ["cached_property"]
