"""Textures of photographs that resemble codes: hedges, fur, facades, blinds, crowds."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from distractors import SIDE, Picture, Random, clouds, colour, ink_and_paper, tint


def _foliage(random: Random) -> Picture:
    """Draw leaves and branches."""
    picture = clouds(random)
    base = np.asarray(colour(random, 20, 180)) * (0.6, 1.2, 0.7)
    size = float(np.exp(random.uniform(np.log(3), np.log(26))))
    count = int(min(2500, random.uniform(0.15, 1.3) * SIDE * SIDE / (2 * size * size)))
    places = random.integers(0, SIDE, size=(count, 2))
    lights = random.uniform(0.3, 1.7, size=count)
    angles = random.uniform(0, 180, size=count)
    for place, light, angle in zip(places.tolist(), lights, angles, strict=True):
        paint = np.clip(base * light, 0, 255).tolist()
        axes = max(1, int(size * random.uniform(0.6, 1.2))), max(1, int(size * 0.45))
        cv2.ellipse(picture, place, axes, angle, 0, 360, paint, -1)
    for _ in range(random.integers(0, 12)):
        ends = random.integers(0, SIDE, size=(2, 2)).tolist()
        cv2.line(picture, *ends, (base * 0.35).tolist(), int(random.integers(1, 5)))
    return picture


def _fur(random: Random) -> Picture:
    """Draw streaks of slowly changing direction, like fur, grass or bark."""
    noise = random.standard_normal((SIDE, SIDE)).astype(np.float32)
    reach = int(random.integers(2, 22)) * 2 + 1
    first = random.uniform(0, np.pi)
    layers = []
    for turn in (0.0, random.uniform(0.1, 0.9)):
        kernel = np.zeros((reach, reach), np.float32)
        arm = np.array([np.cos(first + turn), np.sin(first + turn)]) * (reach // 2)
        start, end = (np.rint(reach // 2 + sign * arm).astype(int).tolist() for sign in (-1, 1))
        cv2.line(kernel, start, end, 1.0, 1)
        layers.append(cv2.filter2D(noise, -1, kernel / np.sqrt(kernel.sum())))
    share = cv2.resize(random.random((3, 3)).astype(np.float32), (SIDE, SIDE))
    streaks = layers[0] * share + layers[1] * (1 - share)
    spots = random.standard_normal((int(random.integers(3, 24)),) * 2).astype(np.float32)
    spots = cv2.resize(spots, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    grey = 128 + streaks * random.uniform(20, 80) + spots * random.uniform(0, 60)
    return tint(np.clip(grey, 0, 255).astype(np.uint8), *ink_and_paper(random))


def _facade(random: Random) -> Picture:
    """Draw rows of windows."""
    wall = np.asarray(colour(random, 40, 250))
    picture = np.full((SIDE, SIDE, 3), wall, np.uint8)
    across, down = (int(v) for v in random.integers(18, 120, size=2))
    share_x, share_y = random.uniform(0.3, 0.85, size=2)
    glass, frame = colour(random, 0, 140), colour(random, 120, 256)
    panes = random.integers(1, 4, size=2)
    for top in range(int(random.integers(-down, 0)), SIDE, down):
        for left in range(int(-across * 0.3), SIDE, across):
            width, height = int(across * share_x), int(down * share_y)
            corner = left + width, top + height
            light = random.uniform(0.5, 1.6)
            paint = np.clip(np.asarray(glass) * light, 0, 255).tolist()
            cv2.rectangle(picture, (left, top), corner, paint, -1)
            cv2.rectangle(picture, (left, top), corner, frame, max(1, across // 24))
            for part in range(1, int(panes[0]) + 1):
                at = left + width * part // (int(panes[0]) + 1)
                cv2.line(picture, (at, top), (at, top + height), frame, max(1, across // 40))
            for part in range(1, int(panes[1]) + 1):
                at = top + height * part // (int(panes[1]) + 1)
                cv2.line(picture, (left, at), (left + width, at), frame, max(1, across // 40))
        if random.random() < 0.4:
            cv2.line(picture, (0, top - 3), (SIDE, top - 3), (wall * 0.6).tolist(), 3)
    return picture


def _blinds(random: Random) -> Picture:
    """Draw slats and railings, which unlike barcodes are evenly spaced."""
    step = float(np.exp(random.uniform(np.log(3.5), np.log(50))))
    place = np.arange(SIDE) / step % 1
    duty = random.uniform(0.3, 0.8)
    row = np.where(place < duty, 255 * (1 - random.uniform(0, 0.6) * place / duty), 0)
    grey = np.broadcast_to(row.astype(np.uint8), (SIDE, SIDE)).copy()
    for at in random.integers(0, SIDE, size=int(random.integers(0, 5))):
        cv2.line(grey, (0, int(at)), (SIDE, int(at)), int(random.integers(0, 256)), 3)
    if random.random() < 0.6:
        grey = np.ascontiguousarray(grey.T)
    result = tint(grey, *ink_and_paper(random))
    if random.random() < 0.5:  # daylight between the slats
        light = clouds(random)
        result = np.where(grey[..., None] == 0, light, result)
    return result


def _crowd(random: Random) -> Picture:
    """Draw rows of heads and shoulders that occlude each other."""
    picture = clouds(random)
    step = int(random.integers(10, 70))
    for bottom in range(step // 2, SIDE + step, max(6, int(step * random.uniform(0.5, 0.9)))):
        for left in range(int(random.integers(-step, 0)), SIDE, step):
            x, y = left + int(random.normal(0, step / 6)), bottom + int(random.normal(0, step / 8))
            coat, skin = colour(random), np.array((150, 175, 225)) * random.uniform(0.3, 1)
            cv2.ellipse(picture, (x, y + step), (step // 2, step), 0, 0, 360, coat, -1)
            head = max(2, step // 4)
            cv2.circle(picture, (x, y), head, skin.tolist(), -1)
            hair = (np.array((60, 80, 110)) * random.uniform(0, 1.5)).tolist()
            cv2.ellipse(picture, (x, y - head // 3), (head, head), 0, 180, 360, hair, -1)
    return picture


def _knitwear(random: Random) -> Picture:
    """Draw V-shaped stitches, sometimes in two colours."""
    ink, paper = ink_and_paper(random)
    picture = np.full((SIDE, SIDE, 3), ink, np.uint8)
    step = int(random.integers(5, 24))
    count = SIDE // step + 2
    period = int(random.integers(2, 9))
    tile = random.random((period, period)) < 0.5
    second = colour(random)
    for row in range(count):
        for column in range(count):
            paint = second if tile[row % period, column % period] else paper
            x, y = column * step, row * step
            for way in (-1, 1):
                end = x + way * step // 2, y - step // 2
                cv2.line(picture, (x, y), end, paint, max(1, step // 3))
    return picture


TEXTURES: tuple[Callable[[Random], Picture], ...] = (
    _foliage,
    _fur,
    _facade,
    _blinds,
    _crowd,
    _knitwear,
)
