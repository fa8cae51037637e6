"""Keys in rows, seen from the side: keyboards on desks, calculators, telephones, remote controls.

Far rows of keys shrink to a few pixels of light and dark, like bars or the rows of a PDF417.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from distractors import SIDE, Picture, Random, clouds, colour

_UNIT = 26  # pixels of a key on the flat picture
_LEGENDS = "QWERTZUIOPASDFGHJKLYXCVBNM1234567890+-*/=.,#<>?!"
# Keys of the five rows of a keyboard in quarters of a unit; the others are as wide as one.
_ROWS = (
    (*(4,) * 13, 8),
    (6, *(4,) * 12, 6),
    (7, *(4,) * 11, 9),
    (9, *(4,) * 10, 11),
    (5, 5, 5, 25, 5, 5, 5, 5),
)


def keyboard(random: Random) -> Picture:
    """Draw a keyboard on a desk, or a part of one, from where its user or somebody else sits."""
    look = _Look(random)
    wide = (15 + (4 if random.random() < 0.6 else 0) + (5 if random.random() < 0.6 else 0)) * _UNIT
    margin = int(random.integers(4, 30))
    height = int(_UNIT * 6.5)
    flat = np.full((height + 2 * margin, wide + 2 * margin, 3), look.case, np.uint8)
    _function_keys(random, flat, look, margin)
    for number, row in enumerate(_ROWS):
        top, at = margin + int((1.5 + number) * _UNIT), margin
        for quarters in row:
            look.is_second = quarters not in (4, 25)
            _draw_key(random, flat, look, (at, top, quarters * _UNIT // 4, _UNIT))
            at += quarters * _UNIT // 4
        look.is_second = random.random() < 0.5
        for column in range(int(15.5 * 4) * _UNIT // 4, wide - _UNIT + 1, _UNIT):
            if random.random() < 0.95:
                _draw_key(random, flat, look, (margin + column, top, _UNIT, _UNIT))
    return _seen_from_aside(random, flat)


def keypad(random: Random) -> Picture:
    """Draw a calculator, a telephone, a remote control or a panel, at a slant."""
    look = _Look(random)
    columns, rows = int(random.integers(3, 8)), int(random.integers(3, 10))
    across, down = (int(_UNIT * v) for v in random.uniform(0.9, 2, size=2))
    margin, head = int(random.integers(6, 40)), int(random.integers(0, 130))
    size = rows * down + 2 * margin + head, columns * across + 2 * margin
    flat = np.full((*size, 3), look.case, np.uint8)
    if head > 30:  # a display with figures
        far = size[1] - margin, head
        cv2.rectangle(flat, (margin, margin // 2), far, colour(random, 60, 220), -1)
        text = str(random.integers(10**7))
        cv2.putText(flat, text, (margin + 6, head - 8), 0, head / 60, (20, 30, 20), 2, cv2.LINE_AA)
    for row in range(rows):
        if random.random() < 0.2:
            look.key = colour(random)
        for column in range(columns):
            if random.random() < 0.97:
                place = margin + column * across, margin + head + row * down, across, down
                _draw_key(random, flat, look, place)
    return _seen_from_aside(random, flat)


class _Look:
    """Colours and shapes that the keys of a device share."""

    def __init__(self, random: Random) -> None:
        self.case = colour(random)
        self.key = colour(random) if random.random() < 0.6 else self.case
        is_office = random.random() < 0.3  # light keys with dark gaps, in a light case
        if is_office:
            self.case, self.key = colour(random, 120, 256), colour(random, 190, 256)
        # Wider keys often have another colour than the others.
        self.second = colour(random, 90, 200) if random.random() < 0.4 else self.key
        self.is_second = False
        is_dark = np.mean(self.key) < 120
        self.legend = colour(random, 190, 256) if is_dark else colour(random, 0, 70)
        self.legend_share = random.choice([0.0, 0.7, 1.0])
        self.gap = random.uniform(0.04, 0.3)
        self.slope = random.uniform(0, 0.22)  # of the sides of a key
        self.shade = random.uniform(0.1, 0.4 if is_office else 0.9)  # of the sides of keys
        self.ground = tuple(int(v * self.shade) for v in self.key) if is_office else self.case
        self.is_round = random.random() < 0.15
        self.size = random.uniform(0.28, 0.5)


def _function_keys(random: Random, flat: Picture, look: _Look, margin: int) -> None:
    for column in range(0, flat.shape[1] - 2 * margin - _UNIT + 1, _UNIT):
        if column // _UNIT % 5 != 1:
            _draw_key(random, flat, look, (margin + column, margin, _UNIT, _UNIT))


def _draw_key(random: Random, flat: Picture, look: _Look, place: tuple[int, int, int, int]) -> None:
    left, top, width, height = place
    gap = max(1, round(look.gap * _UNIT))
    near, far = (left + gap // 2, top + gap // 2), (left + width - gap, top + height - gap)
    paint = np.asarray(look.second if look.is_second else look.key)
    side = (paint * look.shade).tolist()
    if look.ground != look.case:
        corner = left + width - 1, top + height - 1
        cv2.rectangle(flat, (left, top), corner, look.ground, -1)
    face = np.clip(paint * random.uniform(0.93, 1.07), 0, 255).tolist()
    slope = round(look.slope * _UNIT)
    inner = (near[0] + slope, near[1] + slope // 3), (far[0] - slope, far[1] - slope)
    if look.is_round:
        middle = (near[0] + far[0]) // 2, (near[1] + far[1]) // 2
        axes = max(1, (far[0] - near[0]) // 2), max(1, (far[1] - near[1]) // 2)
        cv2.ellipse(flat, middle, axes, 0, 0, 360, side, -1, cv2.LINE_AA)
        axes = max(1, axes[0] - slope), max(1, axes[1] - slope)
        cv2.ellipse(flat, middle, axes, 0, 0, 360, face, -1, cv2.LINE_AA)
    else:
        cv2.rectangle(flat, near, far, side, -1)
        cv2.rectangle(flat, *inner, face, -1)
    if random.random() < look.legend_share:
        letter = _LEGENDS[random.integers(len(_LEGENDS))]
        foot = inner[0][0] + 2, inner[0][1] + int(height * 0.55)
        cv2.putText(flat, letter, foot, 0, look.size, look.legend, 1, cv2.LINE_AA)


def _seen_from_aside(random: Random, flat: Picture) -> Picture:
    """Return a photograph of a flat object on a desk, at a slant that foreshortens it."""
    height, width = flat.shape[:2]
    tilt, yaw = np.deg2rad(random.uniform(25, 78)), np.deg2rad(random.normal(0, 35))
    turn = np.array([[np.cos(yaw), -np.sin(yaw), 0], [np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])
    rotation = cv2.Rodrigues(np.array([-tilt, 0.0, 0.0]))[0] @ turn
    far = random.uniform(0.75, 2.5) * np.hypot(width, height)
    plane = np.column_stack([rotation[:, 0], rotation[:, 1], [0, 0, far]])
    middle = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1]])
    matrix = np.diag([far, far, 1.0]) @ plane @ middle
    ends = np.array([[[0, 0], [width, 0], [width, height], [0, height]]], np.float64)
    points = cv2.perspectiveTransform(ends, matrix)[0]
    low, high = points.min(axis=0), points.max(axis=0)
    fine = 2 * SIDE  # half of the pixels are averaged away
    scale = fine * random.uniform(0.6, 2.2) / (high - low).max()
    room = fine - scale * (high - low)
    shift = random.uniform(np.minimum(room, 0), np.maximum(room, 0)) - scale * low
    matrix = np.array([[scale, 0, shift[0]], [0, scale, shift[1]], [0, 0, 1]]) @ matrix
    picture = cv2.resize(clouds(random), (fine, fine))
    cv2.fillConvexPoly(picture, _shadow(random, matrix, ends), colour(random, 0, 60), cv2.LINE_AA)
    way = cv2.BORDER_TRANSPARENT
    cv2.warpPerspective(flat, matrix, (fine, fine), picture, cv2.INTER_LINEAR, way)
    picture = cv2.resize(picture, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    if random.random() < 0.35:
        grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
        picture = cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR)
    if random.random() < 0.4:
        picture = cv2.GaussianBlur(picture, (0, 0), random.uniform(0.4, 1.6))
    return picture


def _shadow(random: Random, matrix: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the outline of the case and its shadow in pixels."""
    points = cv2.perspectiveTransform(ends, matrix)[0] + random.normal(0, 8, size=2)
    return np.rint(points).astype(np.int32)


KEYS: tuple[Callable[[Random], Picture], ...] = (keyboard, keyboard, keyboard, keypad)
