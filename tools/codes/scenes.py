"""Scenes with machine-readable codes as phones see them, and where the codes are.

`Studio(seed).scene(number)` is the same picture whenever and wherever it is made.
Run as a program it writes a contact sheet: python tools/codes/scenes.py sheet.png
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from labels import Flat, Mark, Press, coloured
from lens import Lens
from look_alikes import SURFACES, THINGS, Picture, colour, photo_crop, photos, stripes
from numpy.typing import NDArray
from surroundings import SURROUNDINGS
from symbols import NAMES, Symbol, bank

Random = np.random.Generator
Points = NDArray[np.float64]

_SHARES = (0.23, 0.18, 0.16, 0.17, 0.26)  # of the classes
_EMPTY = 0.26  # of the scenes have no code
_MAKERS = (*THINGS, *SURROUNDINGS)
_SMALLEST_MODULE = (1.0, 1.0, 1.0, 0.75, 0.55)  # pixels, by class
_SHORTEST_SIDE = 9.0  # pixels of a box
_LEAST_VISIBLE = 0.7  # of a code's box, when the frame cuts it
_SHAPES = (1.0, 4 / 3, 3 / 4, 16 / 9, 9 / 16)  # of photographs that a square network sees
_LEAST_CONTRAST = 4.0  # standard deviation of the grey values in a code's box
_COARSE = 4  # pixels of a cell in the map of what is taken
_ATTEMPTS = 5


@dataclass(frozen=True)
class Code:
    """Where a code is, in pixels, and what makes it hard."""

    kind: int
    box: tuple[float, float, float, float]  # left, top, right, bottom
    corners: tuple[tuple[float, float], ...]
    angle: float  # degrees off the nearest upright position, 0 to 45
    module: float  # pixels a module
    blur: float = 0.0  # reach of the blur in modules


@dataclass(frozen=True)
class Scene:
    picture: Picture  # BGR
    codes: tuple[Code, ...]

    def rows(self) -> NDArray[np.float32]:
        """A row a code: class, centre x, y, width, height; relative, as darknet's labels."""
        height, width = self.picture.shape[:2]
        rows = np.zeros((len(self.codes), 5), np.float32)
        for row, code in zip(rows, self.codes, strict=True):
            left, top, right, bottom = code.box
            row[:] = (
                code.kind,
                (left + right) / 2 / width,
                (top + bottom) / 2 / height,
                (right - left) / width,
                (bottom - top) / height,
            )
        return rows


@dataclass(frozen=True)
class _Pose:
    """How flat matter lies before the camera: `matrix` after a bend around a cylinder."""

    matrix: Points
    middle: float  # of the bend, across
    radius: float  # of the cylinder in flat pixels, 0 when not bent
    bow: float

    def project(self, points: Points) -> Points:
        bent = points.copy()
        if self.radius:
            turn = (points[:, 0] - self.middle) / self.radius
            bent[:, 0] = self.middle + self.radius * np.sin(turn)
            bent[:, 1] = points[:, 1] + self.bow * self.radius * (1 - np.cos(turn))
        return cv2.perspectiveTransform(bent[None], self.matrix)[0]

    def bend(self, picture: Picture) -> Picture:
        if not self.radius:
            return picture
        height, width = picture.shape[:2]
        across = np.arange(width, dtype=np.float32)
        sine = np.clip((across - self.middle) / self.radius, -0.999, 0.999)
        turn = np.arcsin(sine)
        from_x = (self.middle + self.radius * turn).astype(np.float32)
        lift = (self.bow * self.radius * (1 - np.cos(turn))).astype(np.float32)
        from_y = np.arange(height, dtype=np.float32)[:, None] - lift
        maps = np.broadcast_to(from_x, (height, width)).copy(), from_y
        return cv2.remap(picture, *maps, cv2.INTER_LINEAR, borderValue=(0, 0, 0, 0))


class Studio:
    """Prepared symbols, prints, surfaces and a camera; scenes are drawn from them by number."""

    def __init__(
        self,
        seed: int,
        *,
        each: int = 150,
        surfaces: int = 126,
        photographs: list[Picture] | None = None,
    ) -> None:
        self._seed = seed
        random = np.random.default_rng((seed, 1))
        self._symbols = bank(seed, each)
        self._press = Press(seed)
        self._lens = Lens(seed)
        self._photos = photographs or photos()
        self._surfaces = [SURFACES[i % len(SURFACES)](random) for i in range(surfaces // 2)]
        self._things = [_MAKERS[i % len(_MAKERS)](random) for i in range(surfaces)]
        # A short piece of stripes is a barcode to any eye: they serve as background alone.
        self._objects = [
            thing
            for index, thing in enumerate(self._things)
            if _MAKERS[index % len(_MAKERS)] is not stripes
        ]

    def scene(
        self, number: int, size: tuple[int, int] = (416, 416), *, stretched: bool = True
    ) -> Scene:
        """A scene of `size` (width, height). A stretched one is a photograph made square."""
        random = np.random.default_rng((self._seed, 2, number))
        shape = float(random.choice(_SHAPES)) if stretched else 1.0
        table = _Table(random, self._background(random, size), shape)
        kind = random.random()
        if kind < _EMPTY:
            if random.random() < 0.5:
                self._lay_things(table, int(random.integers(1, 6)))
        elif kind < _EMPTY + 0.36:
            self._lay_things(table, int(random.integers(0, 3)))
            self._lay_code(table, 0.92)
        else:
            self._lay_things(table, int(random.integers(0, 3)))
            for _ in range(random.integers(2, 7)):
                self._lay_code(table, 0.4)
        return self._photographed(table)

    def _background(self, random: Random, size: tuple[int, int]) -> Picture:
        choice = random.random()
        if choice < 0.5:
            return photo_crop(random, self._photos, size)
        if choice < 0.76:
            picture = self._surfaces[random.integers(len(self._surfaces))]
        else:
            picture = self._things[random.integers(len(self._things))]
        side = int(picture.shape[0] * random.uniform(0.4, 1))
        top, left = random.integers(0, picture.shape[0] - side + 1, size=2)
        return cv2.resize(picture[top : top + side, left : left + side], size)

    def _lay_things(self, table: _Table, count: int) -> None:
        """Objects without codes."""
        random = table.random
        for _ in range(count):
            if random.random() < 0.45:
                width, height = (int(v) for v in random.integers(60, 320, size=2))
                flat = self._press.text(random, width, height)
                flat = Flat(coloured(random, flat.picture, plain=False), ())
            else:
                height, width = (int(v) for v in random.integers(50, 448, size=2))
                choice = random.random()
                if choice < 0.25:
                    thing = photo_crop(random, self._photos, (width, height))
                elif choice < 0.85:
                    thing = self._objects[random.integers(len(self._objects))]
                else:
                    thing = self._surfaces[random.integers(len(self._surfaces))]
                flat = Flat(thing[:height, :width], ())
            reach = table.span * float(np.exp(random.uniform(np.log(0.06), np.log(0.8))))
            table.lay(flat, reach)

    def _lay_code(self, table: _Table, largest: float) -> None:
        random = table.random
        kind = int(random.choice(len(NAMES), p=_SHARES))
        symbols = [self._pick(random, kind)]
        if random.random() < 0.22:
            again = kind if random.random() < 0.5 else int(random.choice(len(NAMES), p=_SHARES))
            symbols += [self._pick(random, again) for _ in range(random.integers(1, 4))]
        modules = max(symbols[0].modules.shape)
        smallest = max(0.04 * table.span, 1.15 * modules * _SMALLEST_MODULE[kind])
        longest = max(largest * table.span, smallest * 1.2)
        if largest > 0.5 and random.random() < 0.35:  # held right before the camera
            smallest = max(smallest, 0.4 * table.span)
            longest = max(longest, smallest)
        reach = float(np.exp(random.uniform(np.log(smallest), np.log(longest))))
        sharpness = 2.2 if random.random() < 0.3 else 1.0  # above 1 the camera's pixels alias
        scale = int(np.clip(np.ceil(reach / modules * sharpness), 1 + symbols[0].is_linear, 24))
        lone = random.random() < 0.3
        print_one = self._press.bare if lone else self._press.label
        flat = _joined(random, [print_one(random, each, scale) for each in symbols])
        plain = symbols[0].kind == 4 and random.random() < 0.5
        flat = Flat(coloured(random, flat.picture, plain=plain), flat.marks)
        table.lay(flat, reach, as_ink=lone and random.random() < 0.5)

    def _pick(self, random: Random, kind: int) -> Symbol:
        symbols = self._symbols[kind]
        return symbols[random.integers(len(symbols))]

    def _photographed(self, table: _Table) -> Scene:
        random = table.random
        if table.codes and random.random() < 0.12:
            table.cover_a_little()
        finest = min((c.module * (2 if c.kind == 4 else 1) for c in table.codes), default=2.0)
        blur = min(random.random() ** 2 * (1.5 * finest + 0.25), 7)
        picture = self._lens.photograph(random, table.picture, blur)
        codes = (
            Code(c.kind, c.box, c.corners, c.angle, c.module, blur / c.module)
            for c in table.codes
            if _is_seen(picture, c)
        )
        return Scene(picture, tuple(codes))


class _Table:
    """A scene while things are laid on it."""

    def __init__(self, random: Random, picture: Picture, shape: float) -> None:
        self.random = random
        self.picture = picture
        self.codes: list[Code] = []
        self.height, self.width = picture.shape[:2]
        self.span = float(min(picture.shape[:2]))
        self._stretch = (min(1.0, 1 / shape), min(1.0, shape))
        coarse = (self.height // _COARSE + 1, self.width // _COARSE + 1)
        self._taken = np.zeros(coarse, np.uint8)

    def lay(self, flat: Flat, reach: float, *, as_ink: bool = False) -> None:
        """Lay it so that its first mark, or else its longer side, is `reach` pixels long.

        Where it would hide a code or show a small part of one, nothing is laid.
        """
        tries = _ATTEMPTS if flat.marks else 2
        for _ in range(tries):
            pose = self._pose(flat, reach)
            codes = self._codes_of(flat, pose)
            outline = pose.project(_outline((0, 0, flat.picture.shape[1], flat.picture.shape[0])))
            if codes is None or self._hides_codes(outline):
                continue
            if as_ink and not self._is_bright(codes):
                as_ink = False
            self._paste(flat, pose, outline, as_ink=as_ink)
            for code in codes:
                box = (np.asarray(code.box) / _COARSE).astype(int)
                self._taken[box[1] : box[3] + 1, box[0] : box[2] + 1] = 1
            self.codes += codes
            return

    def cover_a_little(self) -> None:
        """A finger, tape or a leaf over the edge of a code."""
        code = self.codes[self.random.integers(len(self.codes))]
        left, top, right, bottom = code.box
        width, height = right - left, bottom - top
        angle = self.random.uniform(0, 2 * np.pi)
        reach = self.random.uniform(0.42, 0.6)
        centre = (
            int((left + right) / 2 + np.cos(angle) * width * reach),
            int((top + bottom) / 2 + np.sin(angle) * height * reach),
        )
        axes = tuple(int(v) for v in self.random.uniform(0.1, 0.28, size=2) * (width, height) + 1)
        skin = tuple(int(v * self.random.uniform(0.5, 1)) for v in (150, 180, 230))
        paint = skin if self.random.random() < 0.5 else colour(self.random)
        cv2.ellipse(self.picture, centre, axes, self.random.uniform(0, 90), 0, 360, paint, -1)

    def _pose(self, flat: Flat, reach: float) -> _Pose:
        random = self.random
        height, width = flat.picture.shape[:2]
        left, top, right, bottom = flat.marks[0].box if flat.marks else (0, 0, width, height)
        scale = reach / max(right - left, bottom - top)
        roll = np.deg2rad(_roll(random))
        tilt = np.deg2rad(random.uniform(0, 55) * random.random())
        way = random.uniform(0, 2 * np.pi)
        axis = np.array([np.cos(way), np.sin(way), 0]) * tilt
        cosine, sine = np.cos(roll), np.sin(roll)
        turned = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
        rotation = turned @ cv2.Rodrigues(axis)[0]
        far = max(self.width, self.height, 1.2 * scale * np.hypot(width, height))
        far *= random.uniform(1.2, 3)
        plane = np.column_stack([rotation[:, 0], rotation[:, 1], [0, 0, far]])
        plane = np.diag([far, far, 1.0]) @ plane
        middle = np.array([[1, 0, -(left + right) / 2], [0, 1, -(top + bottom) / 2], [0, 0, 1]])
        stretch = np.diag([*self._stretch, 1.0])
        centre = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
        matrix = stretch @ plane @ np.diag([scale, scale, 1.0]) @ middle
        bend = 0.0
        if random.random() < 0.2:
            bend = width / random.uniform(0.5, 2.2)
        pose = _Pose(matrix, width / 2, bend, random.uniform(-0.4, 0.4))
        points = pose.project(_outline((left, top, right, bottom)))
        low, high = points.min(axis=0), points.max(axis=0)
        room = np.array([self.width, self.height]) - (high - low)
        slack = 0.0 if random.random() < 0.85 else 0.25
        target = [
            random.uniform(-slack * s, r + slack * s) if r > 0 else r / 2
            for r, s in zip(room, high - low, strict=True)
        ]
        centre[:2, 2] = np.asarray(target) - low
        return _Pose(centre @ matrix, pose.middle, pose.radius, pose.bow)

    def _codes_of(self, flat: Flat, pose: _Pose) -> list[Code] | None:
        """The codes as the frame shows them; None if any is too small or cut too far."""
        codes = []
        for mark in flat.marks:
            points = pose.project(_outline(mark.box))
            low, high = points.min(axis=0), points.max(axis=0)
            inner_low = np.clip(low, 0, (self.width, self.height))
            inner_high = np.clip(high, 0, (self.width, self.height))
            size, shown = high - low, inner_high - inner_low
            visible = shown.prod() / size.prod()
            if visible == 0:
                continue
            corners = points[:: len(points) // 4]
            module = _module_size(mark, corners)
            is_clear = module >= 0.85 * _SMALLEST_MODULE[mark.kind]
            if visible < _LEAST_VISIBLE or shown.min() < _SHORTEST_SIDE or not is_clear:
                return None
            direction = corners[1] - corners[0]
            angle = abs((np.degrees(np.arctan2(direction[1], direction[0])) + 45) % 90 - 45)
            box = (*inner_low.tolist(), *inner_high.tolist())
            codes.append(Code(mark.kind, box, tuple(map(tuple, corners)), float(angle), module))
        return codes if codes or not flat.marks else None

    def _hides_codes(self, outline: Points) -> bool:
        if not self.codes:
            return False
        cover = np.zeros_like(self._taken)
        cv2.fillPoly(cover, [np.rint(outline / _COARSE).astype(np.int32)], 1)
        return bool((cover & self._taken).any())

    def _is_bright(self, codes: Sequence[Code]) -> bool:
        for code in codes:
            left, top, right, bottom = (int(v) for v in code.box)
            part = self.picture[top : bottom + 1, left : right + 1]
            if part.mean() - part.std() < 95:
                return False
        return True

    def _paste(self, flat: Flat, pose: _Pose, outline: Points, *, as_ink: bool) -> None:
        low = np.floor(np.clip(outline.min(axis=0) - 2, 0, (self.width, self.height))).astype(int)
        high = np.ceil(np.clip(outline.max(axis=0) + 2, 0, (self.width, self.height))).astype(int)
        size = high - low
        if size.min() <= 0:
            return
        shift = np.array([[1, 0, -low[0]], [0, 1, -low[1]], [0, 0, 1.0]])
        matrix = shift @ pose.matrix
        part = self.picture[low[1] : high[1], low[0] : high[0]]
        sheet = cv2.cvtColor(np.ascontiguousarray(flat.picture), cv2.COLOR_BGR2BGRA)
        sheet = pose.bend(sheet)
        warped = cv2.warpPerspective(sheet, matrix, size.tolist(), flags=cv2.INTER_LINEAR)
        cover = warped[..., 3:].astype(np.uint16)
        paper = warped[..., :3]
        if as_ink:
            paper = cv2.multiply(part, np.ascontiguousarray(paper), scale=1 / 255)
        mixed = part * (255 - cover) + paper * cover
        part[:] = ((mixed + 127) // 255).astype(np.uint8)


def _is_seen(picture: Picture, code: Code) -> bool:
    """False where glare or darkness has left no trace of it."""
    left, top, right, bottom = (round(v) for v in code.box)
    part = cv2.cvtColor(picture[top:bottom, left:right], cv2.COLOR_BGR2GRAY)
    return bool(cv2.blur(part, (3, 3)).std() > _LEAST_CONTRAST)


def _roll(random: Random) -> float:
    """Degrees: phones are mostly held upright, in one of four ways."""
    if random.random() < 0.35:
        return float(random.uniform(0, 360))
    quarter = 90 * int(random.choice(4, p=(0.6, 0.16, 0.08, 0.16)))
    return quarter + float(random.normal(0, 8))


def _outline(box: tuple[int, int, int, int]) -> Points:
    """Eight points a side, clockwise from the upper left corner."""
    left, top, right, bottom = box
    corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float64)
    parts = np.arange(8)[:, None] / 8
    following = np.roll(corners, -1, axis=0)
    return np.concatenate([a + (b - a) * parts for a, b in zip(corners, following, strict=True)])


def _module_size(mark: Mark, corners: Points) -> float:
    """Pixels of a module along the side that shrinks most; of bars, across them."""
    left, top, right, bottom = mark.box
    across = np.linalg.norm(corners[1] - corners[0]) / (right - left)
    down = np.linalg.norm(corners[3] - corners[0]) / (bottom - top)
    if mark.kind >= 3:
        return float(across * mark.module)
    return float(min(across, down) * mark.module)


def _joined(random: Random, flats: list[Flat]) -> Flat:
    """Prints under or beside each other on one sheet."""
    if len(flats) == 1:
        return flats[0]
    is_row = random.random() < 0.5
    gap = int(random.integers(0, 14))
    sizes = [flat.picture.shape for flat in flats]
    height = max(s[0] for s in sizes) if is_row else sum(s[0] for s in sizes) + gap * len(sizes)
    width = sum(s[1] for s in sizes) + gap * len(sizes) if is_row else max(s[1] for s in sizes)
    sheet = np.full((height, width), 255, np.uint8)
    marks = []
    at = 0
    for flat, (tall, wide) in zip(flats, sizes, strict=True):
        aside = int(random.integers((height - tall if is_row else width - wide) + 1))
        left, top = (at, aside) if is_row else (aside, at)
        sheet[top : top + tall, left : left + wide] = flat.picture
        for mark in flat.marks:
            x, y, right, bottom = mark.box
            box = (x + left, y + top, right + left, bottom + top)
            marks.append(Mark(mark.kind, box, mark.module))
        at += (wide if is_row else tall) + gap
    return Flat(sheet, tuple(marks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheet", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--columns", type=int, default=6)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--photos", type=Path, help="a folder that photographs.py made")
    options = parser.parse_args()
    studio = Studio(options.seed, photographs=photos(options.photos))
    tiles = []
    for number in range(options.first, options.first + options.columns * options.rows):
        scene = studio.scene(number)
        picture = scene.picture.copy()
        for code in scene.codes:
            left, top, right, bottom = (round(v) for v in code.box)
            cv2.rectangle(picture, (left, top), (right, bottom), (0, 255, 0), 1)
            cv2.putText(
                picture, NAMES[code.kind], (left, top - 2), cv2.FONT_HERSHEY_PLAIN, 0.8, (0, 0, 255)
            )
        tiles.append(picture)
    bands = [
        np.hstack(tiles[i : i + options.columns]) for i in range(0, len(tiles), options.columns)
    ]
    cv2.imwrite(str(options.sheet), np.vstack(bands))


if __name__ == "__main__":
    main()
