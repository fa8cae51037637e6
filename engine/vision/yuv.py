"""The factors by which swscale converts videos to RGB, with 16-bit fixed-point products.

red = Y + V * red_v, and so on, with Y = (8 * y - y_offset) * y_factor, U = 8 * (u - 128) and
V = 8 * (v - 128); a product loses its lower 16 bits. Four pixels share a U and a V.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

_BT601 = 104597, 132201, 25675, 53279
# Factors of V for red, U for blue, and minus U and V for green, for limited range, in 1/65536, by
# the matrix's number in ITU-T H.273. A file that names none uses BT.601, whatever its size.
_MATRICES = {
    0: _BT601,
    1: (117489, 138438, 13975, 34925),  # BT.709
    2: _BT601,
    3: _BT601,
    4: (104448, 132798, 24759, 53109),  # FCC
    5: _BT601,
    6: _BT601,
    7: (117579, 136230, 16907, 35559),  # SMPTE 240M
    9: (110013, 140363, 12277, 42626),  # BT.2020
}
_ONE = 1 << 16


@lru_cache(maxsize=32)
def factors(matrix: int, *, is_full: bool) -> Mapping[str, int] | None:
    """Return the factors by name, or None for a matrix that swscale does not know either."""
    if matrix not in _MATRICES:
        return None
    scales = _MATRICES[matrix]
    red_v, blue_u, green_u, green_v = (each * 224 // 255 if is_full else each for each in scales)
    return {
        "y_factor": _rounded(_ONE if is_full else _ONE * 255 // 219),
        "y_offset": 0 if is_full else 16 * 8,
        "red_v": _rounded(red_v),
        "green_u": _rounded(-green_u),
        "green_v": _rounded(-green_v),
        "blue_u": _rounded(blue_u),
    }


def _rounded(value: int) -> int:
    """Return a factor for values that are multiplied by 8."""
    return (value * (1 << 13) + (1 << 15)) >> 16
