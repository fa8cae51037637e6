"""Printed labels with codes and text, drawn flat and head-on."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from distractors import Picture, TextRenderer, ink_and_paper, tint
from numpy.typing import NDArray
from symbols import Symbol

Random = np.random.Generator

_TIGHT = 0.08  # share of bare codes without a quiet zone, as cut out closely


@dataclass(frozen=True)
class CodeMark:
    """A code on a flat object: its class and its box (left, top, right, bottom) in pixels."""

    kind: int
    box: tuple[int, int, int, int]
    module: float  # pixels per module


@dataclass(frozen=True)
class FlatObject:
    """A picture of a flat object with the codes on it."""

    picture: Picture
    marks: tuple[CodeMark, ...]


def draw(random: Random, symbol: Symbol, scale: int) -> Picture:
    """Draw black on white at `scale` pixels per module; sometimes with dots, a logo or thin ink."""
    modules = symbol.modules
    if symbol.is_linear:
        low = 0.05 if random.random() < 0.25 else 0.15
        share = float(np.exp(random.uniform(np.log(low), np.log(0.9))))
        height = max(6, int(modules.shape[1] * scale * share))
        row = np.repeat(np.where(modules[0], 0, 255).astype(np.uint8), scale)
        return np.broadcast_to(row, (height, row.size)).copy()
    if scale >= 3 and symbol.kind in (0, 1) and random.random() < 0.2:
        return _dotted(random, symbol, scale)
    grey = np.where(modules, 0, 255).astype(np.uint8).repeat(scale, axis=0).repeat(scale, axis=1)
    if scale >= 3 and random.random() < 0.15:
        grow = random.random() < 0.5
        kernel = np.ones((2, 2), np.uint8)
        grey = cv2.erode(grey, kernel) if grow else cv2.dilate(grey, kernel)
    if symbol.kind == 0 and len(modules) > 24 and random.random() < 0.15:
        _add_logo(random, grey)
    return grey


def _dotted(random: Random, symbol: Symbol, scale: int) -> Picture:
    dot = np.full((scale, scale), 255, np.uint8)
    radius = scale * random.uniform(0.36, 0.52)
    at = np.arange(scale) - (scale - 1) / 2
    dot[np.hypot(at[:, None], at[None]) <= radius] = 0
    grey = np.where(np.kron(symbol.modules, np.ones((scale, scale), np.bool_)), 0, 255)
    dots = np.where(grey == 0, np.tile(dot, symbol.modules.shape), 255).astype(np.uint8)
    if symbol.kind == 1 and random.random() < 0.5:  # marked with a needle: each dot is elsewhere
        shift = cv2.resize(
            random.normal(0, 0.12 * scale, size=(*symbol.modules.shape, 2)).astype(np.float32),
            dots.shape[::-1],
            interpolation=cv2.INTER_NEAREST,
        )
        rows, columns = np.indices(dots.shape, np.float32)
        maps = columns + shift[..., 0], rows + shift[..., 1]
        dots = cv2.remap(dots, *maps, cv2.INTER_LINEAR, borderValue=255)
    if symbol.kind == 0:
        end = len(symbol.modules)
        for row, column in ((0, 0), (0, end - 7), (end - 7, 0)):
            part = np.s_[row * scale : (row + 7) * scale, column * scale : (column + 7) * scale]
            dots[part] = grey[part]
    return dots


def _add_logo(random: Random, grey: Picture) -> None:
    side = grey.shape[0]
    half = int(side * random.uniform(0.07, 0.12))
    middle = side // 2
    corners = (middle - half, middle - half), (middle + half, middle + half)
    cv2.rectangle(grey, *corners, 255, -1)
    if random.random() < 0.5:
        cv2.circle(grey, (middle, middle), int(half * 0.8), int(random.integers(0, 160)), -1)
    else:
        letter = "ABDEGKMRSTX"[random.integers(11)]
        place = (middle - half // 2, middle + half // 2)
        cv2.putText(grey, letter, place, cv2.FONT_HERSHEY_DUPLEX, half / 18, 60, 2)


class LabelPrinter:
    """A printer of labels; it caches blocks of text, because rendering text is slow."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._renderer = TextRenderer()
        rows = random.integers(1, 7, size=160)
        self._blocks = [self._renderer.words(random, int(count)) for count in rows]
        rows = random.integers(4, 15, size=50)  # paragraphs
        self._blocks += [self._renderer.words(random, int(count), 10) for count in rows]

    def bare(
        self, random: Random, symbol: Symbol, scale: int, *, tight: float = _TIGHT
    ) -> FlatObject:
        """Draw the code in its quiet zone and nothing else; a share of `tight` has hardly any."""
        is_tight = random.random() < tight
        margin = random.uniform(0, 0.6) if is_tight else random.uniform(1.5, 5)
        return self._printed(random, symbol, scale, margin=margin, text=False)

    def label(self, random: Random, symbol: Symbol, scale: int) -> FlatObject:
        """Draw the code somewhere on a label with text, lines and frames."""
        code = self._printed(random, symbol, scale, margin=random.uniform(2, 6), text=True)
        height, width = code.picture.shape[:2]
        if random.random() < 0.35:
            return code
        sheet = np.full(
            (
                int(height * random.uniform(1.05, 2.2)),
                int(width * random.uniform(1.05, 1.5 + 0.8 * (height > width * 0.7))),
            ),
            255,
            np.uint8,
        )
        top = int(random.integers(sheet.shape[0] - height + 1))
        left = int(random.integers(sheet.shape[1] - width + 1))
        self._fill(random, sheet, (left, top, left + width, top + height))
        if random.random() < 0.4:
            cv2.rectangle(sheet, (1, 1), (sheet.shape[1] - 3, sheet.shape[0] - 3), 0, 2)
        sheet[top : top + height, left : left + width] = code.picture
        return FlatObject(sheet, tuple(moved(mark, left, top) for mark in code.marks))

    def text(self, random: Random, width: int, height: int) -> FlatObject:
        """Draw a label without a code."""
        sheet = np.full((height, width), 255, np.uint8)
        self._fill(random, sheet, (0, 0, 0, 0))
        return FlatObject(sheet, ())

    def _printed(
        self, random: Random, symbol: Symbol, scale: int, *, margin: float, text: bool
    ) -> FlatObject:
        code = draw(random, symbol, scale)
        height, width = code.shape
        module = scale * (2 if symbol.is_linear else 1)
        quiet = int(module * margin) if margin < 1 else max(2, int(module * margin))
        below = quiet
        digits = None
        has_guards = symbol.is_linear and width == 95 * scale and random.random() < 0.7
        if text and (symbol.is_linear or random.random() < 0.2):
            digits = self._renderer.lines(random, [symbol.text or f"{random.integers(10**8)}"])
            across = int(width * random.uniform(0.5, 0.95))
            tall = max(4, min(int(digits.shape[0] * across / digits.shape[1]), height // 2 + 4))
            digits = cv2.resize(digits, (across, tall), interpolation=cv2.INTER_AREA)
            below += tall + max(1, scale)
        sheet = np.full((height + quiet + below, width + 2 * quiet), 255, np.uint8)
        sheet[quiet : quiet + height, quiet : quiet + width] = code
        if has_guards:  # of EAN-13 and UPC-A, which are longer than the other bars
            longer = sheet[quiet + height : quiet + height + 6 * scale]
            for first, last in ((0, 3), (45, 50), (92, 95)):
                bars = code[-1, first * scale : last * scale]
                longer[:, quiet + first * scale : quiet + last * scale] = bars
        if digits is not None:
            top = quiet + height + max(1, scale)
            left = quiet + (width - digits.shape[1]) // 2
            part = sheet[top : top + digits.shape[0], left : left + digits.shape[1]]
            np.minimum(part, digits, out=part)
        if symbol.is_linear and width == 95 * scale and random.random() < 0.12:
            sheet = _with_add_on(random, sheet, scale, quiet, height)
        mark = CodeMark(symbol.kind, (quiet, quiet, quiet + width, quiet + height), scale)
        return FlatObject(sheet, (mark,))

    def _fill(self, random: Random, sheet: Picture, keep: tuple[int, int, int, int]) -> None:
        """Draw text, rules and bars around `keep`, which the code will cover."""
        height, width = sheet.shape
        for _ in range(random.integers(2, 9)):
            block = self._blocks[random.integers(len(self._blocks))]
            size = random.uniform(0.25, 0.9) * width / block.shape[1]
            size = min(size, 0.6 * height / block.shape[0])
            across, tall = int(block.shape[1] * size), int(block.shape[0] * size)
            if across < 6 or tall < 3:
                continue
            block = cv2.resize(block, (across, tall), interpolation=cv2.INTER_AREA)
            top = int(random.integers(max(1, height - tall)))
            left = int(random.integers(max(1, width - across)))
            sheet[top : top + tall, left : left + across] = block
        for _ in range(random.integers(0, 4)):
            at = int(random.integers(height))
            cv2.line(sheet, (0, at), (width, at), 0, int(random.integers(1, 4)))
        if random.random() < 0.2:
            top, left = int(random.integers(height)), int(random.integers(width))
            corner = (left + width // 4, top + height // 8)
            cv2.rectangle(sheet, (left, top), corner, int(random.integers(0, 120)), -1)


def _with_add_on(
    random: Random, sheet: Picture, scale: int, quiet: int, height: int
) -> NDArray[np.uint8]:
    """Append the bars of two or five further digits, as on periodicals and books."""
    count = int(random.choice([20, 47]))
    widths = random.integers(1, 4, size=count)
    bars = np.repeat(np.arange(count) % 2, widths)[:count].astype(np.uint8)
    row = np.where(bars == 0, 0, 255).astype(np.uint8).repeat(scale)
    gap = max(0, int(random.integers(7, 13)) * scale - quiet)
    added = np.full((sheet.shape[0], gap + len(row) + quiet), 255, np.uint8)
    top = quiet + int(height * random.uniform(0.05, 0.3))
    added[top : quiet + height, gap : gap + len(row)] = row
    return np.hstack([sheet, added])


def moved(mark: CodeMark, right: int, down: int) -> CodeMark:
    """Return a mark moved with its picture."""
    left, top, far, bottom = mark.box
    return CodeMark(mark.kind, (left + right, top + down, far + right, bottom + down), mark.module)


def _faint(random: Random) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return two similar colours, as of etched metal, thermal paper and printed cans."""
    base = random.integers(40, 216) + random.integers(-30, 31, size=3)
    step = np.exp(random.uniform(np.log(24), np.log(110)))
    other = base + int(random.choice([-1, 1])) * step
    other = other + random.integers(-12, 13, size=3)
    ink, paper = (np.clip(each, 0, 255).tolist() for each in (base, other))
    return tuple(ink), tuple(paper)


def colorize(random: Random, grey: Picture, *, plain: bool) -> NDArray[np.uint8]:
    """Colour a label, with defects of printers and screens."""
    is_faint = random.random() < 0.38
    if is_faint:
        ink, paper = _faint(random)
    elif plain or random.random() < 0.55:
        ink = tuple(int(v) for v in random.integers(0, 60, size=3))
        paper = tuple(int(v) for v in random.integers(205, 256) + random.integers(-12, 1, size=3))
    else:
        ink, paper = ink_and_paper(random)
    picture = tint(grey, ink, paper)
    kind = random.random()
    if kind < 0.08:  # lines of a worn thermal print head
        for _ in range(random.integers(1, 6)):
            at = int(random.integers(grey.shape[1]))
            picture[:, at : at + 1 + int(random.random() < 0.3)] = paper
    elif kind < 0.16:  # pixels of a screen
        step = int(random.integers(2, 5))
        dark = random.uniform(0.55, 0.9)
        picture[::step] = (picture[::step] * dark).astype(np.uint8)
        picture[:, ::step] = (picture[:, ::step] * dark).astype(np.uint8)
    elif kind < (0.4 if is_faint else 0.2):  # brushed metal
        length = int(random.integers(10, 80))
        brushed = cv2.blur(random.normal(0, 1, size=grey.shape).astype(np.float32), (length, 1))
        brushed *= random.uniform(5, 30) * np.sqrt(length)
        picture = np.clip(picture + brushed[..., None], 0, 255).astype(np.uint8)
    elif kind < (0.6 if is_faint else 0.28):  # rough paper and worn ink
        rough = random.normal(0, random.uniform(4, 22), size=(*grey.shape, 1)).astype(np.float32)
        picture = np.clip(picture + rough, 0, 255).astype(np.uint8)
    return picture
