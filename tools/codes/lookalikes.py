"""Things that are taken for codes at one size: small print, square markers, captions, wheels.

Unlike other patterns they are drawn so that their lines or cells get the size that misleads.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from distractors import Picture, Random, TextRenderer, clouds, colour, ink_and_paper, tint
from keys import keyboard

_SIDE = 400  # pixels of the longer side of most of them, about


@dataclass(frozen=True)
class LookAlike:
    """A picture, the pixels of one of its details, and how small and large they may become."""

    picture: Picture
    detail: float
    reach: tuple[float, float]  # pixels of a detail in the scene


class LookAlikes:
    """Things that resemble codes, drawn once, because text is slow to draw."""

    def __init__(self, random: Random, each: int) -> None:
        self._renderer = TextRenderer()
        self._makers: dict[str, Callable[[Random], LookAlike]] = {
            "paragraph": self._paragraph,
            "newspaper": self._newspaper,
            "figures": self._figures,
            "caption": self._caption,
            "screen": self._screen,
            "marker": _marker,
            "markers": _markers,
            "board": _marker_board,
            "crossword": _crossword,
            "calibration": _calibration,
            "wheel": _wheel,
            "keyboard": _keyboard,
        }
        self._shares = np.array([SHARES[name] for name in self._makers])
        self._shares /= self._shares.sum()
        self._kept = {
            name: [make(random) for _ in range(max(1, round(each * SHARES[name])))]
            for name, make in self._makers.items()
        }

    def pick(self, random: Random, name: str | None = None) -> LookAlike:
        """Return one of those that are kept, of the kind `name` or else of a random kind."""
        names = list(self._makers)
        kept = self._kept[name or names[random.choice(len(names), p=self._shares)]]
        return kept[random.integers(len(kept))]

    def _paragraph(self, random: Random) -> LookAlike:
        """Draw a few lines of text, often about as wide as high, on a plain sheet or on none."""
        rows = int(random.integers(2, 14))
        words = max(1, round(rows * float(np.exp(random.uniform(np.log(0.2), np.log(1.2))))))
        grey, pitch = self._lines(random, rows, min(words, 12), is_even=random.random() < 0.6)
        aside = [int(pitch * v) for v in random.uniform(0.3, 4, size=4)]
        grey = cv2.copyMakeBorder(grey, *aside, cv2.BORDER_CONSTANT, value=255)
        return LookAlike(_inked(random, grey), pitch, (3, 15))

    def _newspaper(self, random: Random) -> LookAlike:
        """Draw columns of text with headlines, rules and pictures."""
        pitch_drawn = 9.0
        side = _SIDE + int(random.integers(0, 200))
        grey = np.full((side, side), 255, np.uint8)
        columns = int(random.integers(2, 6))
        wide = side // columns
        for column in range(columns):
            left, top = column * wide + 4, int(random.integers(2, 50))
            while top < side - 12:
                kind = random.random()
                if kind < 0.14:
                    text = self._renderer.words(random, 1, 3)
                    tall = int(random.integers(12, 40))
                elif kind < 0.24:
                    tall = int(random.integers(20, 110))
                    text = cv2.cvtColor(clouds(random)[:tall, :wide], cv2.COLOR_BGR2GRAY)
                else:
                    rows = int(random.integers(3, 16))
                    text = self._lines(random, rows, max(2, 16 // columns), is_even=True)[0]
                    tall = int(rows * pitch_drawn)
                text = cv2.resize(text, (wide - 8, tall), interpolation=cv2.INTER_AREA)
                part = grey[top : top + tall, left : left + wide - 8]
                part[:] = text[: part.shape[0], : part.shape[1]]
                top += tall + int(random.integers(3, 14))
            if random.random() < 0.3:
                cv2.line(grey, (left - 4, 0), (left - 4, side), 0, 1)
        if random.random() < 0.5:
            head = self._renderer.words(random, 1, 3)
            tall = int(random.integers(20, 80))
            grey[:tall] = cv2.resize(head, (side, tall), interpolation=cv2.INTER_AREA)
        return LookAlike(_inked(random, grey), pitch_drawn, (2.5, 13))

    def _figures(self, random: Random) -> LookAlike:
        """Draw a dense table of figures, with or without rules."""
        digits, columns, rows = (int(v) for v in random.integers((1, 2, 3), (8, 9, 20)))
        gap = " " * int(random.integers(1, 5))
        texts = [
            gap.join(f"{random.integers(10**digits):{digits}d}" for _ in range(columns))
            for _ in range(rows)
        ]
        grey = self._renderer.lines(random, texts)
        pitch = grey.shape[0] / rows
        grey = _limited(grey)
        pitch *= grey.shape[0] / (pitch * rows)
        if random.random() < 0.35:
            for row in range(rows + 1):
                at = int(row * grey.shape[0] / rows)
                cv2.line(grey, (0, at), (grey.shape[1], at), 0, 1)
            for column in range(columns + 1):
                at = int(column * grey.shape[1] / columns)
                cv2.line(grey, (at, 0), (at, grey.shape[0]), 0, 1)
        aside = [int(v) for v in random.uniform(2, 20, size=4)]
        grey = cv2.copyMakeBorder(grey, *aside, cv2.BORDER_CONSTANT, value=255)
        return LookAlike(_inked(random, grey), pitch, (3, 15))

    def _caption(self, random: Random) -> LookAlike:
        """Draw a word or a number alone in a bar, a button, a tab or a field, perhaps squeezed."""
        grey = self._renderer.lines(random, [_short_text(random)])
        tall = int(random.integers(8, 28))  # coarse ones are enlarged, as in small pictures
        width = max(4, int(grey.shape[1] * tall / grey.shape[0] * random.uniform(0.45, 1.1)))
        grey = cv2.resize(grey, (width, tall), interpolation=cv2.INTER_AREA)
        aside = [int(tall * v) for v in random.uniform(0.1, (0.9, 0.9, 5, 5))]
        grey = cv2.copyMakeBorder(grey, *aside, cv2.BORDER_CONSTANT, value=255)
        picture = _inked(random, grey)
        if random.random() < 0.5:  # edges of a button or a bar
            lit, dark = colour(random, 150), colour(random, 0, 120)
            picture[:1], picture[-1:] = lit, dark
            if random.random() < 0.6:
                picture[:, :1], picture[:, -1:] = lit, dark
        return LookAlike(picture, tall, (8, 48))

    def _screen(self, random: Random) -> LookAlike:
        """Draw a part of a program's window or a chart, of few pixels: bars, buttons and words."""
        height, width = (int(v) for v in random.integers(60, 260, size=2))
        is_light = random.random() < 0.75
        paper = _grey(random, 180, 256) if is_light else _grey(random, 0, 70)
        ink = _grey(random, 0, 130) if is_light else _grey(random, 150, 256)
        picture = np.full((height, width, 3), paper, np.uint8)
        tall = int(random.integers(8, 15))
        top = 2
        while top < height - tall - 4:
            band = int(tall * random.uniform(1.2, 3))
            far = top + band
            kind = random.random()
            back = paper
            if kind < 0.35:  # a bar, often with a darker edge
                back = colour(random, 120) if random.random() < 0.4 else _grey(random, 140, 256)
                cv2.rectangle(picture, (0, top), (width, far), back, -1)
                cv2.line(
                    picture, (0, far), (width, far), colour(random), int(random.integers(1, 3))
                )
            at = int(random.integers(0, max(1, width // 2)))
            while at < width - tall and random.random() < 0.75:
                grey = self._renderer.lines(random, [_short_text(random)])
                across = int(grey.shape[1] * tall / grey.shape[0] * random.uniform(0.6, 1.1))
                grey = cv2.resize(grey, (max(3, across), tall), interpolation=cv2.INTER_AREA)
                near = at, top + (band - tall) // 2
                if random.random() < 0.3:  # a button, a tab or a field
                    corner = at + across + 5, near[1] + tall + 2
                    cv2.rectangle(picture, (at - 5, near[1] - 2), corner, _grey(random, 90, 200), 1)
                part = picture[near[1] : near[1] + tall, at : at + across]
                part[:] = tint(grey, ink, back)[: part.shape[0], : part.shape[1]]
                at += across + int(random.integers(8, 60))
            top = far + int(random.integers(0, 4 * tall))
            if random.random() < 0.2 and top < height:  # a picture below its title
                part = picture[top : top + 4 * tall, : int(random.integers(width // 2, width))]
                part[:] = clouds(random)[: part.shape[0], : part.shape[1]]
                top += 4 * tall
        if random.random() < 0.6:  # shown in another aspect ratio
            narrow = max(20, int(width * random.uniform(0.5, 0.9)))
            picture = cv2.resize(picture, (narrow, height), interpolation=cv2.INTER_AREA)
        return LookAlike(picture, tall, (10, 46))

    def _lines(
        self, random: Random, rows: int, words: int, *, is_even: bool
    ) -> tuple[Picture, float]:
        """Return black text on white, with lines of about the same length, and their pitch."""
        grey = self._renderer.words(random, rows, words)
        if is_even:
            ends = [_text_end(part) for part in np.array_split(grey, rows)]
            grey = grey[:, : max(8, int(np.percentile(ends, 40)))]
        grey = _limited(grey)
        return grey, grey.shape[0] / rows


# Shares of the kinds: the larger, the more often a trained model mistook them for codes.
SHARES = {
    "paragraph": 0.16,
    "newspaper": 0.07,
    "figures": 0.09,
    "caption": 0.09,
    "screen": 0.06,
    "marker": 0.13,
    "markers": 0.09,
    "board": 0.09,
    "crossword": 0.05,
    "calibration": 0.06,
    "wheel": 0.06,
    "keyboard": 0.05,
}


def _short_text(random: Random) -> str:
    """Return a word or a number, as in titles, buttons and clocks."""
    if random.random() < 0.4:
        text = str(random.integers(10 ** int(random.integers(1, 7))))
        text = text[:-2] + random.choice([":", ".", " "]) + text[-2:] if len(text) > 3 else text
    else:
        letters = string.ascii_lowercase if random.random() < 0.7 else string.ascii_uppercase
        count = int(random.integers(2, 11))
        text = "".join(letters[i] for i in random.integers(26, size=count))
        text = text.capitalize() if random.random() < 0.5 else text
    return f"[{text}]" if random.random() < 0.15 else text


def _text_end(grey: Picture) -> int:
    columns = np.flatnonzero(grey.min(axis=0) < 128)
    return int(columns[-1]) + 2 if len(columns) else 0


def _limited(grey: Picture) -> Picture:
    """Return a picture of at most `_SIDE` pixels per side."""
    factor = min(1.0, _SIDE / max(grey.shape))
    size = max(4, int(grey.shape[1] * factor)), max(4, int(grey.shape[0] * factor))
    return cv2.resize(grey, size, interpolation=cv2.INTER_AREA)


def _grey(random: Random, low: int, high: int) -> tuple[int, int, int]:
    return (int(random.integers(low, high)),) * 3


def _inked(random: Random, grey: Picture) -> Picture:
    """Colour black on white, mostly dark on light; some are blurred."""
    ink, paper = ink_and_paper(random)
    if random.random() < 0.45:
        ink, paper = _grey(random, 0, 70), _grey(random, 190, 256)
        if random.random() < 0.15:
            ink, paper = paper, ink
    if random.random() < 0.3:
        grey = cv2.GaussianBlur(grey, (0, 0), random.uniform(0.5, 2.5))
    return tint(grey, ink, paper)


# ---------------------------------------------------------------- markers for cameras


def _cells(random: Random) -> Picture:
    """Return the cells of a square marker: random bits in a closed black border, 0 is black."""
    inner = int(random.choice([4, 5, 6, 7], p=(0.35, 0.25, 0.3, 0.1)))
    bits = (random.random((inner, inner)) < random.uniform(0.35, 0.65)).astype(np.uint8) * 255
    cells = np.pad(bits, 1 if random.random() < 0.93 else 2)
    if random.random() < 0.08:  # AprilTags of some families have bits around the border
        cells = np.pad(cells, 1, constant_values=255)
        ring = (random.random(cells.shape) < 0.5).astype(np.uint8) * 255
        ring = np.pad(ring, 1, constant_values=255)
        ring[1:-1, 1:-1] = np.where(np.pad(np.ones(np.subtract(cells.shape, 2)), 1), cells, 255)
        cells = ring
    return cells


def _enlarged(cells: Picture, scale: int) -> Picture:
    return cells.repeat(scale, axis=0).repeat(scale, axis=1)


def _marker(random: Random) -> LookAlike:
    """Draw a square marker on white."""
    scale = int(random.integers(5, 12))
    margin = int(scale * random.uniform(0.6, 4))
    grey = np.pad(_enlarged(_cells(random), scale), margin, constant_values=255)
    if random.random() < 0.1:
        grey = 255 - grey
    return LookAlike(_printed(random, grey), scale, (1.8, 22))


def _markers(random: Random) -> LookAlike:
    """Draw rows of square markers, evenly spaced on a sheet."""
    scale = int(random.integers(4, 8))
    columns, rows = (int(v) for v in random.integers(2, 7, size=2))
    side = 8 * scale
    step = side + int(side * random.uniform(0.12, 0.9))
    margin = int(side * random.uniform(0.1, 0.5))
    size = rows * step + margin, columns * step + margin
    grey = np.full(size, 255, np.uint8)
    for top in range(margin, size[0] - side, step):
        for left in range(margin, size[1] - side, step):
            if random.random() < 0.95:
                marker = cv2.resize(_cells(random), (side, side), interpolation=cv2.INTER_NEAREST)
                grey[top : top + side, left : left + side] = marker
    return LookAlike(_printed(random, grey), scale, (1.8, 14))


def _marker_board(random: Random) -> LookAlike:
    """Draw a chessboard with square markers in its white squares, or markers between black ones."""
    scale = int(random.integers(3, 7))
    side = 8 * scale
    square = int(side * random.uniform(1.15, 1.8))
    columns, rows = (int(v) for v in random.integers(3, 9, size=2))
    odd = int(random.integers(2))
    grey = np.full((rows * square, columns * square), 255, np.uint8)
    for row in range(rows):
        for column in range(columns):
            top, left = row * square, column * square
            if (row + column) % 2 == odd:
                grey[top : top + square, left : left + square] = 0
            else:
                inset = (square - side) // 2
                marker = cv2.resize(_cells(random), (side, side), interpolation=cv2.INTER_NEAREST)
                near = top + inset, left + inset
                grey[near[0] : near[0] + side, near[1] : near[1] + side] = marker
    margin = int(square * random.uniform(0, 0.8))
    grey = np.pad(grey, margin, constant_values=255)
    return LookAlike(_printed(random, grey), scale, (1.8, 12))


def _printed(random: Random, grey: Picture) -> Picture:
    """Colour a marker, mostly black on white; sometimes its outline is drawn over it."""
    if random.random() < 0.75:
        picture = tint(grey, _grey(random, 0, 60), _grey(random, 180, 256))
    else:
        picture = tint(grey, colour(random, 0, 110), colour(random, 150, 256))
    if random.random() < 0.15:  # as programs show what they found
        rows, columns = np.nonzero(grey < 128)
        paint = [(0, 255, 0), (0, 0, 255), (255, 0, 0)][random.integers(3)]
        near, far = (columns.min(), rows.min()), (columns.max(), rows.max())
        cv2.rectangle(picture, (int(near[0]), int(near[1])), (int(far[0]), int(far[1])), paint, 2)
        text = f"id={random.integers(1000)}"
        cv2.putText(picture, text, (8, picture.shape[0] // 2), 0, 0.8, (255, 0, 0), 2, cv2.LINE_AA)
    return picture


# ---------------------------------------------------------------- other


def _crossword(random: Random) -> LookAlike:
    """Draw a puzzle of black and white squares, mostly symmetric, some of them with letters."""
    count = int(random.integers(5, 18))
    step = int(np.clip(_SIDE // count, 14, 34))
    cells = random.random((count, count)) > random.uniform(0.0, 0.35)
    if random.random() < 0.7:
        cells &= cells[::-1, ::-1]
    grey = np.where(_enlarged(cells, step), 255, 0).astype(np.uint8)
    filled = random.uniform(0, 0.8)
    signs = string.ascii_uppercase if random.random() < 0.5 else string.digits[1:]
    for row, column in np.argwhere(cells):
        if random.random() < filled:
            place = int((column + 0.2) * step), int((row + 0.8) * step)
            sign = signs[random.integers(len(signs))]
            cv2.putText(grey, sign, place, 0, step / 38, 0, 1, cv2.LINE_AA)
    every = 3 if count % 3 == 0 and random.random() < 0.6 else 0  # as in a sudoku
    for line in range(count + 1):
        wide = 3 if every and line % every == 0 else 1
        at = min(line * step, count * step - 1)
        cv2.line(grey, (at, 0), (at, count * step), 0, wide)
        cv2.line(grey, (0, at), (count * step, at), 0, wide)
    grey = np.pad(grey, int(random.integers(2, 40)), constant_values=255)
    return LookAlike(_inked(random, grey), step, (4, 30))


def _calibration(random: Random) -> LookAlike:
    """Draw a board to calibrate cameras: dots in a grid, straight or shifted, or a chessboard."""
    columns, rows = (int(v) for v in random.integers(3, 13, size=2))
    step = int(np.clip(_SIDE // max(columns, rows), 14, 50))
    size = (rows + 1) * step, (columns + 1) * step
    if random.random() < 0.4:
        cells = np.indices((rows, columns)).sum(axis=0) % 2 == random.integers(2)
        grey = np.pad(
            np.where(_enlarged(cells, step), 255, 0),
            int(step * random.uniform(0, 1.5)),
            constant_values=255,
        ).astype(np.uint8)
    else:
        grey = np.full(size, 255, np.uint8)
        is_shifted = random.random() < 0.5
        radius = max(2, int(step * random.uniform(0.2, 0.45)))
        for row in range(rows):
            for column in range(columns):
                if is_shifted and (row + column) % 2:
                    continue
                place = (column + 1) * step, (row + 1) * step
                cv2.circle(grey, place, radius, 0, -1, cv2.LINE_AA)
        if random.random() < 0.4:
            grey = 255 - grey
    return LookAlike(_inked(random, grey), step, (4, 40))


def _wheel(random: Random) -> LookAlike:
    """Draw a wheel of a car, a round window, an eye or a whirl of strokes, on a plain ground."""
    side = 240
    half = side // 2
    ground = clouds(random)[:side, :side]
    fine = np.ascontiguousarray(ground)
    outer = int(half * random.uniform(0.7, 1.0))
    is_whirl = random.random() < 0.35
    if not is_whirl:
        cv2.circle(fine, (half, half), outer, colour(random, 0, 90), -1, cv2.LINE_AA)
        rim = int(outer * random.uniform(0.6, 0.98))
        metal = np.asarray(colour(random, 60, 256))
        hollow = (metal * random.uniform(0.1, 0.6)).tolist()
        cv2.circle(fine, (half, half), rim, hollow, -1, cv2.LINE_AA)
        count = int(random.integers(4, 25))
        first, twist = random.uniform(0, 6), random.uniform(0, 0.3)
        wide = max(1, int(rim * 2 * np.pi / count * random.uniform(0.1, 0.4)))
        for turn in first + np.arange(count) * 2 * np.pi / count:
            light = np.clip(metal * (1 + 0.3 * np.cos(turn)), 0, 255).tolist()
            for shift in (-twist, twist) if twist > 0.1 else (0.0,):
                end = half + rim * np.array([np.cos(turn + shift), np.sin(turn + shift)])
                cv2.line(fine, (half, half), end.astype(int).tolist(), light, wide, cv2.LINE_AA)
        cv2.circle(fine, (half, half), rim, metal.tolist(), max(1, rim // 12), cv2.LINE_AA)
        for share in random.uniform(0.1, 0.6, size=int(random.integers(0, 4))):
            cv2.circle(fine, (half, half), int(rim * share), colour(random), 2, cv2.LINE_AA)
        hub = max(2, int(rim * random.uniform(0.05, 0.35)))
        cv2.circle(fine, (half, half), hub, colour(random), -1, cv2.LINE_AA)
    else:
        inner, edge = (np.asarray(colour(random)) for _ in range(2))
        thick, length = int(random.integers(2, 9)), random.uniform(0.08, 0.7)
        for _ in range(int(2600 / thick)):
            away = outer * np.sqrt(random.random())
            turn = random.uniform(0, 360)
            mixed = inner + (edge - inner) * away / outer + random.normal(0, 35)
            span = float(np.degrees(length * 20 / (away + 4)))
            axes = (int(away),) * 2
            paint = np.clip(mixed, 0, 255).tolist()
            cv2.ellipse(fine, (half, half), axes, turn, 0, min(span, 200), paint, thick)
        cv2.circle(fine, (half, half), max(2, outer // 6), colour(random, 120), -1, cv2.LINE_AA)
    if random.random() < 0.4:
        fine = cv2.GaussianBlur(fine, (0, 0), random.uniform(0.5, 2))
    return LookAlike(fine, side, (14, 420))


def _keyboard(random: Random) -> LookAlike:
    picture = keyboard(random)
    if random.random() < 0.5:
        grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
        picture = cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR)
    return LookAlike(picture, max(picture.shape), (180, 800))
