"""Textures of photographs that resemble codes: hedges, fur, facades, blinds, crowds."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from distractors import SIDE, Picture, Random, clouds, colour, ink_and_paper, tint

Colour = tuple[int, int, int]


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


def _roof(random: Random) -> Picture:
    """Draw rows of tiles or shingles with shaded edges, each of another tint."""
    base = np.asarray(colour(random, 40, 200))
    picture = np.full((SIDE, SIDE, 3), base, np.uint8)
    down = int(np.exp(random.uniform(np.log(5), np.log(50))))
    across = max(3, int(down * random.uniform(0.5, 1.8)))
    is_round = random.random() < 0.5
    dark = (base * random.uniform(0.2, 0.6)).tolist()
    for row in range(SIDE // down + 2):
        top = SIDE - row * down  # the upper rows lie below those nearer to the eye
        for left in range(-(row % 2) * across // 2, SIDE, across):
            paint = np.clip(base * random.uniform(0.75, 1.25), 0, 255).tolist()
            cv2.rectangle(picture, (left, top), (left + across, top + down), paint, -1)
            if is_round:
                half = across // 2
                cv2.ellipse(
                    picture, (left + half, top + down), (half, down // 3), 0, 0, 180, paint, -1
                )
            cv2.line(picture, (left, top), (left, top + down), dark, max(1, across // 12))
        cv2.line(picture, (0, top + down), (SIDE, top + down), dark, max(1, down // 10))
    return picture


def _stones(random: Random) -> Picture:
    """Draw a wall or a patchwork of irregular cells, some of them with a pattern."""
    count = int(random.integers(5, 34))
    step = SIDE // count + 1
    seam, base = colour(random), np.asarray(colour(random, 40, 220))
    picture = np.full((SIDE, SIDE, 3), seam, np.uint8)
    spread = random.choice([15, 40, 90])
    jitter = step * random.uniform(0, 0.25)
    corners = np.stack(np.meshgrid(np.arange(count + 1), np.arange(count + 1)), -1) * step
    corners = corners + random.normal(0, jitter + 1e-6, size=corners.shape)
    gap = random.uniform(0.02, 0.16)
    for row in range(count):
        for column in range(count):
            cell = corners[[row, row, row + 1, row + 1], [column, column + 1] * 2][[0, 1, 3, 2]]
            cell = cell + gap * (cell.mean(axis=0) - cell)
            paint = np.clip(base + random.normal(0, spread, size=3), 0, 255).tolist()
            cv2.fillConvexPoly(picture, np.rint(cell).astype(np.int32), paint, cv2.LINE_AA)
            if random.random() < 0.15:
                x, y = np.rint(cell.mean(axis=0)).astype(int).tolist()
                cv2.circle(picture, (x, y), max(1, step // 4), seam, max(1, step // 9))
    return picture


def _railing(random: Random) -> Picture:
    """Draw thin posts with rails and their shadows in front of something."""
    picture = clouds(random) if random.random() < 0.5 else _foliage(random)
    step = float(np.exp(random.uniform(np.log(5), np.log(40))))
    width = max(1, int(step * random.uniform(0.12, 0.6)))
    paint = colour(random)
    dark = (np.asarray(paint) * 0.5).tolist()
    top, bottom = sorted(int(v) for v in random.integers(-60, SIDE + 60, size=2))
    slope = random.uniform(-0.3, 0.3)
    for number in range(int(SIDE / step) + 1):
        x = int(number * step + random.normal(0, 0.03 * step))
        ends = (x, int(top + slope * x)), (x, int(bottom + slope * x))
        cv2.line(picture, *ends, paint, width)
        if width > 2:
            cv2.line(picture, *(((x + width // 2, y) for x, y in ends)), dark, max(1, width // 3))
    for at in (top, bottom, (top + bottom) // 2)[: int(random.integers(1, 4))]:
        cv2.line(picture, (0, at), (SIDE, int(at + slope * SIDE)), paint, width + 2)
    return picture


def _figures(random: Random) -> Picture:
    """Draw columns of figures, as in timetables, receipts and lists of prices."""
    ink, paper = ink_and_paper(random)
    picture = np.full((SIDE, SIDE, 3), paper, np.uint8)
    size = float(np.exp(random.uniform(np.log(0.25), np.log(1.2))))
    font = int(random.choice([0, 1, 2, 3]))
    down = max(5, int(size * random.uniform(24, 44)))
    across = int(size * random.uniform(70, 200)) + 8
    digits = int(random.integers(2, 9))
    for top in range(down, SIDE + down, down):
        for left in range(int(random.integers(3, 20)), SIDE, across):
            if random.random() < 0.92:
                text = str(random.integers(10 ** (digits - 1), 10**digits))
                text = text[:-2] + "." + text[-2:] if digits > 4 else text
                cv2.putText(picture, text, (left, top), font, size, ink, 1, cv2.LINE_AA)
    if random.random() < 0.4:
        for left in range(0, SIDE, across):
            cv2.line(picture, (left, 0), (left, SIDE), ink, 1)
    return picture


def _grille(random: Random) -> Picture:
    """Draw slots or holes of vents, radiators, drains and sockets in a plate."""
    plate = np.asarray(colour(random, 30, 256))
    picture = np.full((SIDE, SIDE, 3), plate, np.uint8)
    hole = (plate * random.uniform(0, 0.5)).tolist()
    lit = np.clip(plate * 1.4, 0, 255).tolist()
    across, down = (int(v) for v in np.exp(random.uniform(np.log(5), np.log(60), size=2)))
    share = random.uniform(0.3, 0.8, size=2)
    margin = int(random.integers(0, 160))
    is_round = random.random() < 0.3
    for row, top in enumerate(range(margin, SIDE - margin, down)):
        for left in range(margin + (row % 2) * int(random.integers(0, 2)), SIDE - margin, across):
            size = max(1, int(across * share[0])), max(1, int(down * share[1]))
            far = left + size[0], top + size[1]
            if is_round:
                cv2.circle(picture, (left, top), max(1, min(size) // 2), hole, -1, cv2.LINE_AA)
            else:
                cv2.rectangle(picture, (left, top), far, hole, -1)
                cv2.line(picture, (left, far[1]), far, lit, 1)
    return picture


def _wheels(random: Random) -> Picture:
    """Draw discs with rings and teeth, like gears, dials, suns, flowers and hubs."""
    picture = _plain(random)
    for _ in range(random.integers(1, 12)):
        x, y = (int(v) for v in random.integers(0, SIDE, size=2))
        radius = float(np.exp(random.uniform(np.log(8), np.log(180))))
        ink = colour(random)
        for _ in range(random.integers(0, 4)):
            ring = max(1, int(radius * random.uniform(0.1, 0.9)))
            wide = -1 if random.random() < 0.4 else max(1, int(radius * random.uniform(0.02, 0.15)))
            cv2.circle(picture, (x, y), ring, colour(random), wide, cv2.LINE_AA)
        count = int(random.integers(6, 60))
        inner, outer = radius * random.uniform(0.3, 0.8), radius
        thick = max(1, int(outer * 2 * np.pi / count * random.uniform(0.2, 0.7)))
        for angle in np.arange(count) * 2 * np.pi / count:
            way = np.array([np.cos(angle), np.sin(angle)])
            start, end = ((way * reach + (x, y)).astype(int).tolist() for reach in (inner, outer))
            cv2.line(picture, start, end, ink, thick, cv2.LINE_AA)
    return picture


def _icons(random: Random) -> Picture:
    """Draw rows of small round icons with teeth, rays or scallops: cogs, suns, seals, stars."""
    ink, paper = ink_and_paper(random)
    picture = np.full((SIDE, SIDE, 3), paper, np.uint8) if random.random() < 0.6 else clouds(random)
    step = int(np.exp(random.uniform(np.log(20), np.log(150))))
    has_tiles = random.random() < 0.3
    for y in range(step // 2, SIDE + step, step):
        for x in range(step // 2, SIDE + step, step):
            if random.random() < 0.3:
                continue
            front, back = (ink, paper) if random.random() < 0.6 else ink_and_paper(random)
            half = step * random.uniform(0.25, 0.48)
            if has_tiles:
                edge = int(step * 0.48)
                cv2.rectangle(picture, (x - edge, y - edge), (x + edge, y + edge), back, -1)
            _toothed(random, picture, (x, y), half, front)
            if random.random() < 0.7:  # what is in it
                hole = max(1, int(half * random.uniform(0.15, 0.6)))
                cv2.circle(picture, (x, y), hole, back, -1, cv2.LINE_AA)
                if random.random() < 0.4:
                    cv2.circle(picture, (x, y), max(1, hole // 2), front, -1, cv2.LINE_AA)
    return picture


def _toothed(
    random: Random, picture: Picture, centre: tuple[int, int], radius: float, ink: Colour
) -> None:
    """Fill a disc whose edge goes in and out."""
    count = int(random.integers(5, 25))
    turn = np.linspace(0, 2 * np.pi, count * 12, endpoint=False)
    wave = np.cos(turn * count + random.uniform(0, 6))
    if random.random() < 0.6:  # teeth with flat ends
        wave = np.clip(wave * random.uniform(1.2, 4), -1, 1)
    reach = radius * (1 - random.uniform(0.06, 0.35) * (1 - wave) / 2 * min(1.0, 14 / count))
    edge = np.column_stack([np.cos(turn), np.sin(turn)]) * reach[:, None] + centre
    cv2.fillPoly(picture, [np.rint(edge * 16).astype(np.int32)], ink, cv2.LINE_AA, 4)


def _strokes(random: Random) -> Picture:
    """Draw short strokes that turn around a few points, like brushwork, hair and straw."""
    picture = _plain(random)
    middles = random.uniform(0, SIDE, size=(int(random.integers(1, 5)), 2))
    base = np.asarray(colour(random))
    length = float(np.exp(random.uniform(np.log(4), np.log(30))))
    for at in random.uniform(0, SIDE, size=(int(60_000 / length**1.5) + 200, 2)):
        away = at - middles[np.abs(at - middles).sum(axis=1).argmin()]
        way = np.array([-away[1], away[0]]) / (np.hypot(*away) + 1e-6)
        way = way + random.normal(0, 0.2, size=2)
        ink = np.clip(base + random.normal(0, 60) + random.normal(0, 15, size=3), 0, 255)
        start, end = (at - way * length / 2).astype(int), (at + way * length / 2).astype(int)
        thick = max(1, int(length * 0.2))
        cv2.line(picture, start.tolist(), end.tolist(), ink.tolist(), thick, cv2.LINE_AA)
    return picture


def _plain(random: Random) -> Picture:
    return np.full((SIDE, SIDE, 3), colour(random), np.uint8)


TEXTURES: tuple[Callable[[Random], Picture], ...] = (
    _foliage,
    _fur,
    _facade,
    _blinds,
    _crowd,
    _knitwear,
    _roof,
    _stones,
    _railing,
    _figures,
    _grille,
    _wheels,
    _icons,
    _strokes,
)
