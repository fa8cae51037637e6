"""Machine-readable codes of all classes, encoded from random payloads as matrices of modules.

Encoders: segno (QR, Micro QR), ppf-datamatrix, aztec_code_generator, pdf417gen, python-barcode.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass

import aztec_code_generator
import barcode
import numpy as np
import pdf417gen
import segno
from numpy.typing import NDArray
from pdf417gen.rendering import barcode_size
from ppf.datamatrix import DataMatrix

NAMES = ("qr", "datamatrix", "aztec", "pdf417", "barcode")

_LETTERS = string.ascii_letters + string.digits
_UPPER = string.ascii_uppercase + string.digits
_PDF417_EDGE = 17 + 18  # modules of the right row indicator and the stop pattern
_LONG = (  # Data Matrix in rectangles: rows, columns, regions side by side
    *((8, 18, 1), (8, 32, 2), (12, 26, 1), (12, 36, 2), (16, 36, 2), (16, 48, 2)),
    *((8, 48, 2), (8, 64, 4), (8, 80, 4), (8, 96, 4), (8, 120, 6), (8, 144, 6), (12, 64, 4)),
    *((12, 88, 4), (16, 64, 4), (20, 36, 2), (20, 44, 2), (20, 64, 4), (22, 48, 2), (24, 48, 2)),
    *((24, 64, 4), (26, 40, 2), (26, 48, 2), (26, 64, 4)),
)


@dataclass(frozen=True)
class Symbol:
    """A code: `modules` is true for ink.

    A 1-D barcode has one row and a `text` below it; a stacked one has several rows.
    """

    kind: int
    modules: NDArray[np.bool_]
    text: str = ""

    @property
    def is_linear(self) -> bool:
        return self.modules.shape[0] == 1


def make_symbols(seed: int, count: int) -> list[list[Symbol]]:
    """Return `count` symbols of every class, in the order of NAMES."""
    random = np.random.default_rng(seed)
    return [[make(random) for _ in range(count)] for make in _MAKERS]


def _characters(random: np.random.Generator, alphabet: str, count: int) -> str:
    return "".join(alphabet[index] for index in random.integers(len(alphabet), size=count))


def _payload(random: np.random.Generator, longest: int, shortest: int = 4) -> str:
    """Return a URL, an identifier, digits or words."""
    kind = random.integers(4) if longest > 14 else random.integers(1, 4)  # a URL is longer
    length = int(random.integers(shortest, longest))
    if kind == 0:
        path = _characters(random, _LETTERS, max(length - 14, 2))
        return f"https://{_characters(random, string.ascii_lowercase, 5)}.com/{path}"
    alphabet = (_LETTERS, _UPPER, string.digits, _LETTERS + "  -.,;:=")[kind]
    return _characters(random, alphabet, length)


def _qr(random: np.random.Generator) -> Symbol:
    longest = int(random.choice([12, 30, 60, 120, 300]))
    if random.random() < 0.16:
        alphabet = string.digits if random.random() < 0.6 else _UPPER
        code = segno.make_micro(_characters(random, alphabet, int(random.integers(3, 21))))
    else:
        level = str(random.choice(["l", "m", "q", "h"]))
        code = segno.make(
            _payload(random, longest), micro=False, error=level, mask=int(random.integers(8))
        )
    return Symbol(0, np.array([list(row) for row in code.matrix], np.bool_))


def _datamatrix(random: np.random.Generator) -> Symbol:
    longest = int(random.choice([6, 8, 10, 14, 30, 60, 160], p=_LONGEST_SHARES))
    text = _payload(random, longest).replace("~", "-")
    if random.random() < 0.35:
        return _rectangle(random)
    return Symbol(1, np.array(DataMatrix(text).matrix, np.bool_))


def _rectangle(random: np.random.Generator) -> Symbol:
    """Return random modules in the frame of a rectangular Data Matrix; it encodes nothing."""
    rows, columns, regions = _LONG[random.integers(len(_LONG))]
    modules = random.random((rows, columns)) < 0.5
    width = columns // regions
    for left in range(0, columns, width):
        modules[0, left : left + width] = np.arange(width) % 2 == 0
        modules[:, left + width - 1] = np.arange(rows) % 2 == 1
        modules[:, left] = modules[-1, left : left + width] = True
    return Symbol(1, modules)


def _aztec(random: np.random.Generator) -> Symbol:
    longest = int(random.choice([8, 20, 50, 100]))
    text = _payload(random, longest).replace(" ", "-")  # the encoder fails on some ". " and ", "
    code = aztec_code_generator.AztecCode(text)
    return Symbol(2, np.array(code.matrix, np.bool_))


def _pdf417(random: np.random.Generator) -> Symbol:
    # The widest are on licences, the others on tickets and parcels.
    columns = int(random.integers(1, 9) if random.random() < 0.85 else random.integers(9, 19))
    text = _payload(random, longest=24 + 24 * columns, shortest=8 + 9 * columns)
    codes = pdf417gen.encode(text, columns=columns, security_level=int(random.integers(1, 4)))
    if random.random() < 0.5:  # a long symbol, of few rows
        codes = codes[: int(random.choice((3, 3, 4, 4, 5, 6, 7, 8)))]
    rows = np.zeros((len(codes), barcode_size(codes)[0]), np.bool_)
    for row, words in zip(rows, codes, strict=True):
        bits = "".join(f"{word:b}" for word in words)
        row[:] = np.frombuffer(bits.encode(), np.uint8) == ord("1")
    if random.random() < 0.2:  # a compact symbol ends with a single bar
        rows = rows[:, : 1 - _PDF417_EDGE]
        rows[:, -1] = True
    return Symbol(3, rows.repeat(int(random.choice((2, 3, 3, 3, 4, 5))), axis=0))


def _elements(random: np.random.Generator, count: int, total: int) -> list[int]:
    """Return `count` widths of bars and gaps whose sum is `total`, for characters of no meaning."""
    shares = random.dirichlet(np.full(count, 1.5))
    return (random.multinomial(total - count, shares) + 1).tolist()


def _bars(widths: list[int], *, ink_first: bool) -> NDArray[np.bool_]:
    return np.repeat((np.arange(len(widths)) + ink_first) % 2 == 1, widths)


def _data_bar(random: np.random.Generator, pairs: int, kind: int) -> list[int]:
    """Return widths of `pairs` of two characters with a finder pattern between them.

    `kind` is 15 for GS1 DataBar, whose inner characters have 15 modules, 17 for the expanded one.
    """
    widths = [1, 1]
    for number in range(pairs):
        finder = _FINDERS[kind][random.integers(len(_FINDERS[kind]))]
        pair = [*_elements(random, 8, max(16, kind)), *finder, *_elements(random, 8, kind)]
        widths += pair[::-1] if number % 2 else pair
    return [*widths, 1, 1]


def _unencoded(random: np.random.Generator) -> Symbol:
    """Return bars with the structure of GS1 DataBar, Code 93 or UPC-E; they encode nothing."""
    choice = random.random()
    if choice < 0.3:
        return Symbol(4, _bars(_data_bar(random, 2, 15), ink_first=False)[None])
    if choice < 0.4:
        pairs = int(random.integers(1, 5))
        return Symbol(4, _bars(_data_bar(random, pairs, 17), ink_first=False)[None])
    if choice < 0.8:  # Code 93
        text = _characters(random, _UPPER, int(random.integers(3, 13)))
        stop = [1, 1, 1, 1, 4, 1]
        data = [width for _ in range(len(text) + 2) for width in _elements(random, 6, 9)]
        return Symbol(4, _bars([*stop, *data, *stop, 1], ink_first=True)[None], text)
    text = _characters(random, string.digits, 8)
    data = [width for _ in range(6) for width in _elements(random, 4, 7)]
    return Symbol(4, _bars([1, 1, 1, *data, 1, 1, 1, 1, 1, 1], ink_first=True)[None], text)


def _stacked(random: np.random.Generator) -> Symbol:
    """Return bars that look like GS1 DataBar Stacked; they encode nothing.

    Rows of bars are separated by thin rows of the complement or of alternating modules.
    """
    is_expanded = random.random() < 0.4
    pairs = int(random.integers(1, 3)) if is_expanded else 1
    count = int(random.integers(2, 5)) if is_expanded else 2
    tall = 34 if is_expanded else int(random.choice([5, 7, 7, 12, 33]))
    rows: list[NDArray[np.bool_]] = []
    for number in range(count):
        widths = _data_bar(random, pairs, 17 if is_expanded else 15)
        bars = _bars(widths, ink_first=number % 2 == 1)
        alternating = np.arange(len(bars)) % 2 == 1
        if number:
            thin = [~rows[-1], alternating, ~bars] if tall > 12 else [~bars]
            rows += thin
        rows += [bars] * (tall if number or tall != 7 else 5)
    return Symbol(4, np.array(rows))


def _linear(random: np.random.Generator) -> Symbol:
    if random.random() < _STACKED_SHARE:
        return _stacked(random)
    if random.random() < _UNENCODED_SHARE:
        return _unencoded(random)
    kind, alphabet, lengths = _LINEAR[int(random.choice(len(_LINEAR), p=_LINEAR_SHARES))]
    length = int(random.integers(lengths[0], lengths[1] + 1))
    length += length % 2 if kind == "itf" else 0
    text = _characters(random, alphabet, length)
    if kind == "codabar":
        text = f"A{text}B"
    code = barcode.get_barcode_class(kind)(text)
    bits = "".join(code.build()).strip("0")
    return Symbol(4, np.array([[bit == "1" for bit in bits]], np.bool_), code.get_fullcode())


_LINEAR = (
    ("ean13", string.digits, (12, 12)),
    ("ean8", string.digits, (7, 7)),
    ("upca", string.digits, (11, 11)),
    ("code128", _LETTERS, (5, 18)),
    ("code128", string.digits, (8, 22)),
    ("code39", _UPPER, (4, 10)),
    ("itf", string.digits, (6, 14)),
    ("codabar", string.digits, (5, 12)),
)
_STACKED_SHARE, _UNENCODED_SHARE = 0.32, 0.2
# Shares of the lengths of Data Matrix: half of the symbols have 10 to 16 modules, as on parts.
_LONGEST_SHARES = (0.1, 0.18, 0.18, 0.18, 0.14, 0.14, 0.08)
_FINDERS = {
    15: (
        *((3, 8, 2, 1, 1), (3, 5, 5, 1, 1), (3, 3, 7, 1, 1), (3, 1, 9, 1, 1), (2, 7, 4, 1, 1)),
        *((2, 5, 6, 1, 1), (2, 3, 8, 1, 1), (1, 5, 7, 1, 1), (1, 3, 9, 1, 1)),
    ),
    17: (
        *((1, 8, 4, 1, 1), (3, 6, 4, 1, 1), (3, 4, 6, 1, 1)),
        *((3, 2, 8, 1, 1), (2, 6, 5, 1, 1), (2, 2, 9, 1, 1)),
    ),
}
_LINEAR_SHARES = (0.26, 0.06, 0.12, 0.2, 0.12, 0.11, 0.09, 0.04)
_MAKERS: tuple[Callable[[np.random.Generator], Symbol], ...] = (
    _qr,
    _datamatrix,
    _aztec,
    _pdf417,
    _linear,
)
