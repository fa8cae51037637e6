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
    kind = random.integers(4)
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
    longest = int(random.choice([8, 16, 30, 60, 160]))
    text = _payload(random, longest).replace("~", "-")
    if random.random() < 0.4:
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
    if random.random() < 0.45:  # a long symbol, of few rows
        codes = codes[: int(random.integers(3, 9))]
    rows = np.zeros((len(codes), barcode_size(codes)[0]), np.bool_)
    for row, words in zip(rows, codes, strict=True):
        bits = "".join(f"{word:b}" for word in words)
        row[:] = np.frombuffer(bits.encode(), np.uint8) == ord("1")
    if random.random() < 0.2:  # a compact symbol ends with a single bar
        rows = rows[:, : 1 - _PDF417_EDGE]
        rows[:, -1] = True
    return Symbol(3, rows.repeat(int(random.choice((2, 3, 3, 3, 4, 5))), axis=0))


def _stacked(random: np.random.Generator) -> Symbol:
    """Return bars that look like GS1 DataBar Stacked; they encode nothing.

    Rows of bars are separated by thin rows of the complement or of alternating modules.
    """
    is_expanded = random.random() < 0.4
    width = int(random.choice([53, 102])) if is_expanded else 50
    count = int(random.integers(2, 5)) if is_expanded else 2
    tall = 34 if is_expanded else int(random.choice([5, 7, 7, 12, 33]))
    alternating = np.arange(width) % 2 == 1
    rows: list[NDArray[np.bool_]] = []
    for number in range(count):
        widths = random.choice(8, size=width, p=_ELEMENTS) + 1
        bars = np.repeat((np.arange(width) + number) % 2 == 1, widths)[:width]
        if number:
            thin = [~rows[-1], alternating, ~bars] if tall > 12 else [~bars]
            rows += thin
        rows += [bars] * (tall if number or tall != 7 else 5)
    return Symbol(4, np.array(rows))


def _linear(random: np.random.Generator) -> Symbol:
    if random.random() < _STACKED_SHARE:
        return _stacked(random)
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
_STACKED_SHARE = 0.22
_ELEMENTS = (0.42, 0.23, 0.14, 0.09, 0.05, 0.03, 0.02, 0.02)  # widths of bars, 1 to 8 modules
_LINEAR_SHARES = (0.26, 0.06, 0.12, 0.2, 0.12, 0.11, 0.09, 0.04)
_MAKERS: tuple[Callable[[np.random.Generator], Symbol], ...] = (
    _qr,
    _datamatrix,
    _aztec,
    _pdf417,
    _linear,
)
