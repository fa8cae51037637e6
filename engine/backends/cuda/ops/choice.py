"""The choice of an algorithm for one convolution."""

from __future__ import annotations

from typing import NamedTuple

_SUFFIX = "+unfused"


class Choice(NamedTuple):
    """An algorithm, and whether what is fused into the convolution runs in kernels of its own."""

    algorithm: str
    unfused: bool = False

    @classmethod
    def parse(cls, text: str) -> Choice:
        """Return the choice that `str()` turned into this text."""
        return cls(text.removesuffix(_SUFFIX), text.endswith(_SUFFIX))

    def __str__(self) -> str:
        return f"{self.algorithm}{_SUFFIX}" if self.unfused else self.algorithm
