"""Synthetic photographs of machine-readable codes, with their boxes.

`SceneGenerator(seed).scene(number)` is deterministic. As a program it writes a contact sheet:
python tools/codes/scenes.py sheet.png
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from camera import Camera
from distractors import (
    DISTRACTORS,
    SURFACES,
    Picture,
    colour,
    load_photographs,
    random_crop,
    stripes,
)
from keys import KEYS
from label_printer import CodeMark, FlatObject, LabelPrinter, colorize, moved
from lookalikes import LookAlikes
from numpy.typing import NDArray
from symbols import NAMES, Symbol, make_symbols
from textures import TEXTURES

Random = np.random.Generator
Points = NDArray[np.float64]
Maker = Callable[[Random], Picture]

_CLASS_SHARES = (0.16, 0.23, 0.1, 0.22, 0.29)
# Shares of scenes: without codes, clean renderings, close-ups, one code of any size; else several.
_EMPTY, _CLEAN, _CLOSE, _SINGLE = 0.32, 0.11, 0.21, 0.14
_TRAY = 0.14  # share of the scenes with several codes that show a tray or a sheet of labels
_TRAY_SHARES = (0.2, 0.4, 0.1, 0.1, 0.2)  # of the classes in it
_MAKERS = (*DISTRACTORS, *TEXTURES, *KEYS)
# A short piece of stripes cannot be told from a barcode, so stripes are backgrounds only.
_OBJECTS = tuple(maker for maker in _MAKERS if maker is not stripes)
_MIN_MODULE = (0.5, 0.55, 0.5, 0.3, 0.25)  # pixels, by class
# Pixels of modules that are clear, by class. For half of the codes the size is drawn first, then
# a symbol that is clear at this size: most small codes have few modules.
_CLEAR_MODULE = (0.9, 0.9, 0.9, 0.55, 0.45)
_CLEAR_SHARE, _SMALL_SHARE, _SMALL = 0.55, 0.3, (0.018, 0.08)  # of scenes with several codes
_MIN_SIDE = 5.5  # pixels of a box
_MIN_VISIBLE = 0.7  # share of a box that is inside the frame
_ASPECT_RATIOS = (1.0, 4 / 3, 3 / 4, 16 / 9, 9 / 16)  # of photographs, stretched to a square
_MIN_CONTRAST = 3.2  # standard deviation of grey values in the box of a code,
_FULL_SIDE = 70  # if its longer side has this many pixels or more; a smaller one needs more
_SEVERAL = 1 - _EMPTY - _CLEAN - _CLOSE - _SINGLE
_LARGE = 170  # pixels; larger codes hardly alias
_MOST_IN_TRAY = 20
_MAX_SHEET = 3.0  # pixels of an object for each of the picture
_LOOK_ALIKES = 128  # drawn once
_ALIKE_EMPTY, _ALIKE_SHARE = 0.5, 0.3  # of scenes without and with codes: those with look-alikes
_FRESH = 0.15  # share of patterns that are drawn anew, which takes time
_CELL = 4  # pixels of a cell in the occupancy map
_ATTEMPTS = 6


@dataclass(frozen=True)
class Code:
    """The position of a code in pixels, and properties that make it hard to detect."""

    kind: int
    box: tuple[float, float, float, float]  # left, top, right, bottom
    corners: tuple[tuple[float, float], ...]
    angle: float  # degrees from the nearest quarter turn, 0 to 45
    module: float  # pixels per module
    blur: float = 0.0  # blur radius in modules


@dataclass(frozen=True)
class Scene:
    picture: Picture  # BGR
    codes: tuple[Code, ...]
    faint: tuple[Code, ...] = ()  # too faint to be asked for, but no mistake if found

    def rows(self) -> NDArray[np.float32]:
        """Return darknet labels: rows of class and relative centre x, y, width and height."""
        return self._rows(self.codes)

    def faint_rows(self) -> NDArray[np.float32]:
        return self._rows(self.faint)

    def _rows(self, codes: tuple[Code, ...]) -> NDArray[np.float32]:
        height, width = self.picture.shape[:2]
        rows = np.zeros((len(codes), 5), np.float32)
        for row, code in zip(rows, codes, strict=True):
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
    """The pose of a flat object: a bend around a cylinder, then the projection `matrix`."""

    matrix: Points
    middle: float  # x of the axis of the cylinder
    radius: float  # of the cylinder in pixels of the flat object; 0 without a bend
    bow: float
    light: tuple[float, float, float] = (0.0, 0.0, 0.0)  # angle, share of shading, gloss

    def project(self, points: Points) -> Points:
        bent = points.copy()
        if self.radius:
            turn = (points[:, 0] - self.middle) / self.radius
            bent[:, 0] = self.middle + self.radius * np.sin(turn)
            bent[:, 1] = points[:, 1] + self.bow * self.radius * (1 - np.cos(turn))
        return cv2.perspectiveTransform(bent[None], self.matrix)[0]

    def bend(self, picture: Picture) -> Picture:
        """Bend a BGRA picture, with light from one side and perhaps a bright line."""
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
        bent = cv2.remap(picture, *maps, cv2.INTER_LINEAR, borderValue=(0, 0, 0, 0))
        angle, share, gloss = self.light
        shade = (1 - share + share * np.cos(turn - angle).clip(0)).astype(np.float32)
        shine = gloss * np.exp(-(((turn - angle) / 0.12) ** 2))
        factors = np.ones((1, width, 4), np.float32)
        factors[..., :3] = shade[None, :, None]
        bent = cv2.multiply(bent, cv2.repeat(factors, height, 1), dtype=cv2.CV_8U)
        if gloss:
            spot = np.zeros((1, width, 4), np.uint8)
            spot[..., :3] = shine.astype(np.uint8)[None, :, None]
            bent = cv2.add(bent, cv2.repeat(spot, height, 1))
        return bent


class SceneGenerator:
    """A generator of numbered scenes from prepared symbols, labels, surfaces and a camera."""

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
        self._symbols = make_symbols(seed, each)
        self._sizes = [[max(s.modules.shape) for s in symbols] for symbols in self._symbols]
        self._fewest = [min(sizes) for sizes in self._sizes]
        self._printer = LabelPrinter(seed)
        self._camera = Camera(seed)
        self._look_alikes = LookAlikes(np.random.default_rng((seed, 3)), _LOOK_ALIKES)
        self._photographs = photographs or load_photographs()
        self._surfaces = [SURFACES[i % len(SURFACES)](random) for i in range(surfaces // 2)]
        self._patterns = [_MAKERS[i % len(_MAKERS)](random) for i in range(surfaces)]
        self._objects = [_OBJECTS[i % len(_OBJECTS)](random) for i in range(surfaces)]

    def scene(
        self, number: int, size: tuple[int, int] = (416, 416), *, stretched: bool = True
    ) -> Scene:
        """Return a scene of `size` (width, height), as if stretched from another aspect ratio."""
        random = np.random.default_rng((self._seed, 2, number))
        ratio = float(random.choice(_ASPECT_RATIOS)) if stretched else 1.0
        builder = _SceneBuilder(random, self._background(random, size), ratio)
        kind = random.choice(5, p=(_EMPTY, _CLEAN, _CLOSE, _SINGLE, _SEVERAL))
        if kind == 0:
            if random.random() < 0.12:
                builder.picture = self._paper(random, size)
            elif random.random() < 0.6:
                builder.picture = random_crop(random, self._photographs, size)
            if random.random() < 0.4:
                self._add_distractors(builder, int(random.integers(1, 6)))
            if random.random() < _ALIKE_EMPTY:
                self._add_look_alikes(builder, int(random.integers(2, 12)))
        elif kind == 1:
            return self._rendering(random, size)
        elif kind == 2:
            is_paper = random.random() < 0.5
            if is_paper:
                builder.picture = self._paper(random, size)
            elif random.random() < 0.3:
                self._add_distractors(builder, 1)
            self._add_code(builder, 0.3, 1.3, as_ink=is_paper)
        elif kind == 3:
            self._add_distractors(builder, int(random.integers(0, 3)))
            if random.random() < _ALIKE_SHARE:
                self._add_look_alikes(builder, int(random.integers(1, 5)))
            self._add_code(builder, 0.02, 1.0)
        elif random.random() < _TRAY:
            self._add_tray(builder)
        else:
            self._add_distractors(builder, int(random.integers(0, 3)))
            if random.random() < _ALIKE_SHARE:
                self._add_look_alikes(builder, int(random.integers(1, 5)))
            low, high = _SMALL if random.random() < _SMALL_SHARE else (0.02, 0.45)
            for _ in range(random.integers(2, 7)):
                self._add_code(builder, low, high)
        return self._photograph(builder)

    def _paper(self, random: Random, size: tuple[int, int]) -> Picture:
        """Return paper that fills the picture, sometimes with print on it."""
        width, height = size
        cells = random.integers(150, 256) + random.normal(0, random.choice([1, 8]), size=(4, 4, 3))
        cells = (cells + random.normal(0, 8, size=3)).clip(0, 255).astype(np.uint8)
        picture = cv2.resize(cells, size, interpolation=cv2.INTER_CUBIC)
        if random.random() < 0.5:
            scale = random.uniform(0.4, 1.0)
            text = self._printer.text(random, int(width * scale), int(height * scale)).picture
            text = cv2.resize(colorize(random, text, plain=True), size)
            picture = cv2.multiply(picture, text, scale=1 / 255)
        return picture

    def _rendering(self, random: Random, size: tuple[int, int]) -> Scene:
        """Return a rendered code or a page of them, without a camera.

        Half of the time the sheet of a single code becomes the whole picture.
        """
        kind = int(random.choice(len(NAMES), p=_CLASS_SHARES))
        symbol = self._pick(random, kind)
        reach = max(size) * random.uniform(0.3, 1)
        scale = int(np.clip(np.ceil(reach / max(symbol.modules.shape)), 2, 24))
        is_label = random.random() < 0.4
        if random.random() < 0.5:
            if is_label:
                flat = self._printer.label(random, symbol, scale)
            else:
                flat = self._printer.bare(random, symbol, scale, tight=0.6)
            plain = random.random() < 0.85
            sheet = colorize(random, flat.picture, plain=True) if plain else flat.picture
            if not plain:
                sheet = cv2.merge([255 - sheet if random.random() < 0.2 else sheet] * 3)
            turn = int(random.choice(4, p=(0.7, 0.1, 0.1, 0.1)))
            flat = _turned(FlatObject(np.ascontiguousarray(sheet), flat.marks), turn)
            builder = _SceneBuilder(random, np.full((size[1], size[0], 3), 255, np.uint8), 1.0)
            builder.fill(flat)
        else:
            paper = (255, 255, 255) if random.random() < 0.7 else colour(random, 120)
            page = np.full((size[1], size[0], 3), paper, np.uint8)
            builder = _SceneBuilder(random, page, float(random.choice(_ASPECT_RATIOS)))
            builder.is_flat = True
            if is_label:
                self._add_code(builder, 0.1, 1.0, as_ink=True)
            for _ in range(random.integers(1, 6)):
                self._add_code(builder, 0.03, 0.5, as_ink=True)
        picture = self._camera.copy_digitally(random, builder.picture)
        return _labelled(picture, builder.codes)

    def _background(self, random: Random, size: tuple[int, int]) -> Picture:
        choice = random.random()
        if choice < 0.5:
            return random_crop(random, self._photographs, size)
        if choice < 0.76:
            picture = self._surfaces[random.integers(len(self._surfaces))]
        else:
            picture = _pattern(random, self._patterns, _MAKERS)
        if max(size) > picture.shape[0] and random.random() < 0.6:  # else details are coarse
            picture = np.pad(
                picture, ((0, picture.shape[0]), (0, picture.shape[1]), (0, 0)), "symmetric"
            )
        side = int(picture.shape[0] * random.uniform(0.4, 1))
        top, left = random.integers(0, picture.shape[0] - side + 1, size=2)
        return cv2.resize(picture[top : top + side, left : left + side], size)

    def _add_distractors(self, builder: _SceneBuilder, count: int) -> None:
        """Add objects without codes."""
        random = builder.random
        for _ in range(count):
            if random.random() < 0.45:
                width, height = (int(v) for v in random.integers(60, 320, size=2))
                flat = self._printer.text(random, width, height)
                flat = FlatObject(colorize(random, flat.picture, plain=False), ())
            else:
                height, width = (int(v) for v in random.integers(50, 448, size=2))
                choice = random.random()
                if choice < 0.25:
                    thing = random_crop(random, self._photographs, (width, height))
                elif choice < 0.85:
                    thing = _pattern(random, self._objects, _OBJECTS)
                else:
                    thing = self._surfaces[random.integers(len(self._surfaces))]
                flat = FlatObject(thing[:height, :width], ())
                if random.random() < 0.3:
                    flat = _framed(random, flat)
            reach = builder.span * float(np.exp(random.uniform(np.log(0.06), np.log(1.2))))
            builder.add(flat, reach)

    def _add_look_alikes(self, builder: _SceneBuilder, count: int) -> None:
        """Add things whose details have the size at which they resemble codes."""
        random = builder.random
        for _ in range(count):
            thing = self._look_alikes.pick(random)
            low, high = np.log(thing.reach)
            detail = float(np.exp(random.uniform(low, high)))
            longer = max(thing.picture.shape[:2])
            reach = min(longer * detail / thing.detail, 1.2 * builder.span)
            flat = FlatObject(thing.picture, ())
            finer = longer / reach / random.uniform(1, 1.6)
            if finer > 1 and random.random() < 0.8:  # else the camera aliases
                flat = _shrunk(flat, thing.picture.shape[0] * thing.picture.shape[1] / finer**2)
            is_ink = thing.picture.mean() > 150 and random.random() < 0.35
            builder.is_flat = random.random() < 0.3
            builder.add(flat, reach, as_ink=is_ink)
        builder.is_flat = False

    def _add_code(
        self, builder: _SceneBuilder, low: float, high: float, *, as_ink: bool = False
    ) -> None:
        """Add a code, or a few next to each other, whose longer side is `low` to `high` spans."""
        random = builder.random
        kind = int(random.choice(len(NAMES), p=_CLASS_SHARES))
        reach = float(np.exp(random.uniform(np.log(low), np.log(high)))) * builder.span
        is_clear = random.random() < _CLEAR_SHARE
        symbols = [self._pick_clear(random, kind, reach) if is_clear else self._pick(random, kind)]
        if random.random() < 0.22:
            again = (
                kind if random.random() < 0.5 else int(random.choice(len(NAMES), p=_CLASS_SHARES))
            )
            symbols += [self._pick(random, again) for _ in range(random.integers(1, 4))]
        modules = max(symbols[0].modules.shape)
        smallest = max(low * builder.span, modules * _MIN_MODULE[kind])
        longest = max(high * builder.span, smallest * 1.2)
        if not is_clear or reach < smallest:
            reach = float(np.exp(random.uniform(np.log(smallest), np.log(longest))))
        # Above 1 the camera aliases.
        sharpness = 2.2 if reach < _LARGE and random.random() < 0.3 else 1.0
        scale = int(np.clip(np.ceil(reach / modules * sharpness), 1 + symbols[0].is_linear, 30))
        lone = random.random() < 0.3
        print_one = self._printer.bare if lone else self._printer.label
        flat = _arrange(random, [print_one(random, each, scale) for each in symbols])
        most = _MAX_SHEET * builder.span**2
        minified = reach / (modules * scale) * random.uniform(1, 1.6)
        if minified < 1 and random.random() < 0.6:  # the camera resolves no more
            most = min(most, flat.picture.size * minified**2)
        flat = _shrunk(flat, most)
        plain = symbols[0].kind == 4 and random.random() < 0.5
        flat = FlatObject(colorize(random, flat.picture, plain=plain), flat.marks)
        if random.random() < 0.07:
            flat = _crumpled(random, flat)
        if random.random() < 0.08:
            flat = _framed(random, flat)
        if random.random() < 0.2:
            flat = _turned(flat, int(random.integers(1, 4)))  # bends are around a vertical axis
        builder.add(flat, reach, as_ink=as_ink or (lone and random.random() < 0.5))

    def _add_tray(self, builder: _SceneBuilder) -> None:
        """Add rows of codes of one class, as on parts in a tray or on a sheet of labels."""
        random = builder.random
        kind = int(random.choice(len(NAMES), p=_TRAY_SHARES))
        rows, columns = (int(v) for v in random.integers(2, 6, size=2))
        rows = min(rows, _MOST_IN_TRAY // columns)
        most = builder.span / columns * random.uniform(0.3, 0.75)
        shape = self._pick_clear(random, kind, most).modules.shape
        equal = [each for each in self._symbols[kind] if each.modules.shape == shape]
        symbols = [equal[random.integers(len(equal))] for _ in range(rows * columns)]
        scale = 1 + int(np.ceil(1.5 * most / max(shape)))
        lone = random.random() < 0.7
        print_one = self._printer.bare if lone else self._printer.label
        flats = [print_one(random, each, scale) for each in symbols]
        flat = _tiled(random, flats, columns)
        left, top, right, bottom = flat.marks[0].box
        longer = max(right - left, bottom - top)
        reach = builder.span * random.uniform(0.6, 1.1) * longer / max(flat.picture.shape)
        flat = _shrunk(flat, _MAX_SHEET * builder.span**2)
        builder.add(FlatObject(colorize(random, flat.picture, plain=False), flat.marks), reach)

    def _pick(self, random: Random, kind: int) -> Symbol:
        symbols = self._symbols[kind]
        return symbols[random.integers(len(symbols))]

    def _pick_clear(self, random: Random, kind: int, reach: float) -> Symbol:
        """Return a symbol whose modules are clear if its longer side is `reach` pixels long."""
        most = max(reach / _CLEAR_MODULE[kind], self._fewest[kind])
        symbols = zip(self._symbols[kind], self._sizes[kind], strict=True)
        fitting = [symbol for symbol, size in symbols if size <= most]
        return fitting[random.integers(len(fitting))]

    def _photograph(self, builder: _SceneBuilder) -> Scene:
        random = builder.random
        if builder.codes and random.random() < 0.12:
            builder.occlude_one_code()
        finest = min((c.module * (2 if c.kind == 4 else 1) for c in builder.codes), default=2.0)
        blur = min(random.random() ** 2 * (1.5 * finest + 0.25), 7)
        picture = self._camera.photograph(random, builder.picture, blur)
        codes = [
            Code(c.kind, c.box, c.corners, c.angle, c.module, blur / c.module)
            for c in builder.codes
        ]
        return _labelled(picture, codes)


class _SceneBuilder:
    """A scene to which objects are added."""

    def __init__(self, random: Random, picture: Picture, ratio: float) -> None:
        self.random = random
        self.picture = picture
        self.codes: list[Code] = []
        self.is_flat = False  # objects lie straight in the plane of the picture
        self.height, self.width = picture.shape[:2]
        self.span = float(min(picture.shape[:2]))
        self._stretch = (min(1.0, 1 / ratio), min(1.0, ratio))
        coarse = (self.height // _CELL + 1, self.width // _CELL + 1)
        self._occupied = np.zeros(coarse, np.uint8)

    def add(self, flat: FlatObject, reach: float, *, as_ink: bool = False) -> None:
        """Add an object so that its first code, or else its longer side, is `reach` pixels long.

        It is not added where it would hide a code or show too little of one.
        """
        tries = _ATTEMPTS if flat.marks else 2
        for _ in range(tries):
            pose = self._pose(flat, reach)
            codes = self._visible_codes(flat, pose)
            outline = pose.project(_outline((0, 0, flat.picture.shape[1], flat.picture.shape[0])))
            if codes is None or self._hides_codes(outline):
                if reach > 0.5 * self.span:
                    reach *= 0.93
                continue
            if as_ink and not self._is_bright(codes):
                as_ink = False
            self._paste(flat, pose, outline, as_ink=as_ink)
            for code in codes:
                box = (np.asarray(code.box) / _CELL).astype(int)
                self._occupied[box[1] : box[3] + 1, box[0] : box[2] + 1] = 1
            self.codes += codes
            return

    def fill(self, flat: FlatObject) -> None:
        """Stretch an object to the whole picture, less a random margin."""
        height, width = flat.picture.shape[:2]
        margin = self.random.uniform(0, 0.15, size=4) * (self.random.random() < 0.4)
        left, top = margin[0] * self.width, margin[1] * self.height
        scale_x = (self.width * (1 - margin[2]) - left) / width
        scale_y = (self.height * (1 - margin[3]) - top) / height
        matrix = np.array([[scale_x, 0, left], [0, scale_y, top], [0, 0, 1.0]])
        pose = _Pose(matrix, width / 2, 0.0, 0.0)
        codes = self._visible_codes(flat, pose)
        if codes:
            low = round(left), round(top)
            size = max(1, round(scale_x * width)), max(1, round(scale_y * height))
            way = cv2.INTER_AREA if self.random.random() < 0.5 else cv2.INTER_LINEAR
            sheet = cv2.resize(flat.picture, size, interpolation=way)
            part = self.picture[low[1] : low[1] + size[1], low[0] : low[0] + size[0]]
            part[:] = sheet[: part.shape[0], : part.shape[1]]
            self.codes += codes

    def occlude_one_code(self) -> None:
        """Cover the edge of a code, as by a finger, tape or a leaf."""
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

    def _pose(self, flat: FlatObject, reach: float) -> _Pose:
        random = self.random
        height, width = flat.picture.shape[:2]
        left, top, right, bottom = flat.marks[0].box if flat.marks else (0, 0, width, height)
        scale = reach / max(right - left, bottom - top)
        roll = np.deg2rad(_roll(random))
        tilt = np.deg2rad(random.uniform(0, 64) * random.random() ** 0.75)
        if self.is_flat:
            roll, tilt = np.deg2rad(90.0 * random.choice(4, p=(0.7, 0.1, 0.1, 0.1))), 0.0
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
        if random.random() < 0.27 and not self.is_flat:
            bend = width / random.uniform(0.5, 2.2)
        gloss = random.uniform(0, 220) if random.random() < 0.4 else 0.0
        light = random.normal(0, 0.5), random.uniform(0, 0.8), gloss
        pose = _Pose(matrix, width / 2, bend, random.uniform(-0.4, 0.4), light)
        points = pose.project(_outline((left, top, right, bottom)))
        low, high = points.min(axis=0), points.max(axis=0)
        room = np.array([self.width, self.height]) - (high - low)
        slack = 0.0 if random.random() < 0.8 else 0.3
        target = [
            random.uniform(-slack * s, r + slack * s) if r > 0 else random.uniform(r, 0)
            for r, s in zip(room, high - low, strict=True)
        ]
        centre[:2, 2] = np.asarray(target) - low
        return _Pose(centre @ matrix, pose.middle, pose.radius, pose.bow, light)

    def _visible_codes(self, flat: FlatObject, pose: _Pose) -> list[Code] | None:
        """Return the codes inside the frame; None if one is too small or cut off too much."""
        codes = []
        for mark in flat.marks:
            points = pose.project(_outline(mark.box))
            low, high = points.min(axis=0), points.max(axis=0)
            inner_low = np.clip(low, 0, (self.width, self.height))
            inner_high = np.clip(high, 0, (self.width, self.height))
            size, inner = high - low, inner_high - inner_low
            visible = inner.prod() / size.prod()
            if visible == 0:
                continue
            corners = points[:: len(points) // 4]
            module = _module_size(mark, corners)
            is_clear = module >= 0.85 * _MIN_MODULE[mark.kind]
            if visible < _MIN_VISIBLE or inner.min() < _MIN_SIDE or not is_clear:
                return None
            direction = corners[1] - corners[0]
            angle = abs((np.degrees(np.arctan2(direction[1], direction[0])) + 45) % 90 - 45)
            box = (*inner_low.tolist(), *inner_high.tolist())
            codes.append(Code(mark.kind, box, tuple(map(tuple, corners)), float(angle), module))
        return codes if codes or not flat.marks else None

    def _hides_codes(self, outline: Points) -> bool:
        if not self.codes:
            return False
        cover = np.zeros_like(self._occupied)
        cv2.fillPoly(cover, [np.rint(outline / _CELL).astype(np.int32)], 1)
        return bool((cover & self._occupied).any())

    def _is_bright(self, codes: Sequence[Code]) -> bool:
        for code in codes:
            left, top, right, bottom = (int(v) for v in code.box)
            part = self.picture[top : bottom + 1, left : right + 1]
            if part.mean() - part.std() < 95:
                return False
        return True

    def _paste(self, flat: FlatObject, pose: _Pose, outline: Points, *, as_ink: bool) -> None:
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


def _pattern(random: Random, drawn: list[Picture], makers: Sequence[Maker]) -> Picture:
    """Return one of the patterns that are `drawn`, or draw another one."""
    if random.random() < _FRESH:
        return makers[random.integers(len(makers))](random)
    return drawn[random.integers(len(drawn))]


def _labelled(picture: Picture, codes: Sequence[Code]) -> Scene:
    clear = [_has_contrast(picture, code) for code in codes]
    pairs = list(zip(codes, clear, strict=True))
    return Scene(picture, tuple(c for c, ok in pairs if ok), tuple(c for c, ok in pairs if not ok))


def _has_contrast(picture: Picture, code: Code) -> bool:
    """Return False if glare, darkness or distance has made the middle of the code faint."""
    left, top, right, bottom = code.box
    least = _MIN_CONTRAST * max(1.0, _FULL_SIDE / max(right - left, bottom - top)) ** 0.6
    aside, down = (right - left) / 4, (bottom - top) / 4
    left, right = int(left + aside), round(right - aside) + 1
    top, bottom = int(top + down), round(bottom - down) + 1
    part = cv2.cvtColor(picture[top:bottom, left:right], cv2.COLOR_BGR2GRAY)
    return bool(cv2.blur(part, (3, 3)).std() > least)


def _roll(random: Random) -> float:
    """Return a rotation in degrees, mostly near a quarter turn."""
    if random.random() < 0.4:
        return float(random.uniform(0, 360))
    quarter = 90 * int(random.choice(4, p=(0.6, 0.16, 0.08, 0.16)))
    return quarter + float(random.normal(0, 10))


def _outline(box: tuple[int, int, int, int]) -> Points:
    """Return eight points per side, clockwise from the upper left corner."""
    left, top, right, bottom = box
    corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float64)
    parts = np.arange(8)[:, None] / 8
    following = np.roll(corners, -1, axis=0)
    return np.concatenate([a + (b - a) * parts for a, b in zip(corners, following, strict=True)])


def _module_size(mark: CodeMark, corners: Points) -> float:
    """Return pixels per module along the shorter axis; for barcodes, across the bars."""
    left, top, right, bottom = mark.box
    across = np.linalg.norm(corners[1] - corners[0]) / (right - left)
    down = np.linalg.norm(corners[3] - corners[0]) / (bottom - top)
    if mark.kind >= 3:
        return float(across * mark.module)
    return float(min(across, down) * mark.module)


def _shrunk(flat: FlatObject, most: float) -> FlatObject:
    """Return an object of at most `most` pixels."""
    height, width = flat.picture.shape[:2]
    factor = float(np.sqrt(most / (height * width)))
    if factor >= 1:
        return flat
    size = max(1, round(width * factor)), max(1, round(height * factor))
    picture = cv2.resize(flat.picture, size, interpolation=cv2.INTER_AREA)
    scale = np.array([size[0] / width, size[1] / height] * 2)
    marks = []
    for mark in flat.marks:
        left, top, right, bottom = np.rint(np.asarray(mark.box) * scale).astype(int).tolist()
        # A short barcode that is six pixels high would lose its height, and its modules their size.
        box = (left, top, max(right, left + 1), max(bottom, top + 1))
        marks.append(CodeMark(mark.kind, box, mark.module * factor))
    return FlatObject(picture, tuple(marks))


def _turned(flat: FlatObject, turn: int) -> FlatObject:
    """Return an object turned by `turn` quarter turns clockwise."""
    for _ in range(turn):
        height = flat.picture.shape[0]
        marks = tuple(
            CodeMark(m.kind, (height - m.box[3], m.box[0], height - m.box[1], m.box[2]), m.module)
            for m in flat.marks
        )
        flat = FlatObject(cv2.rotate(flat.picture, cv2.ROTATE_90_CLOCKWISE), marks)
    return flat


def _framed(random: Random, flat: FlatObject) -> FlatObject:
    """Return an object in a frame, like a screen, a card or a tape; or two, one in the other."""
    picture, marks = np.ascontiguousarray(flat.picture), flat.marks
    for _ in range(random.integers(1, 3)):
        most = 0.12 * max(picture.shape[:2])
        top, bottom, left, right = (int(v) for v in random.uniform(0, most, size=4) + 2)
        paint = colour(random, 0, 90) if random.random() < 0.6 else colour(random)
        picture = cv2.copyMakeBorder(
            picture, top, bottom, left, right, cv2.BORDER_CONSTANT, value=paint
        )
        marks = tuple(moved(mark, left, top) for mark in marks)
    return FlatObject(picture, marks)


def _crumpled(random: Random, flat: FlatObject) -> FlatObject:
    """Return an object with folds: small shifts, and light that follows them."""
    height, width = flat.picture.shape[:2]
    count = int(random.integers(3, 10))
    folds = random.normal(0, 1, size=(count, count, 2)).astype(np.float32)
    shift = cv2.resize(folds, (width, height), interpolation=cv2.INTER_LINEAR)
    across = np.arange(width, dtype=np.float32)[None] + np.zeros((height, 1), np.float32)
    down = np.arange(height, dtype=np.float32)[:, None] + np.zeros((1, width), np.float32)
    reach = random.uniform(0.003, 0.012) * max(height, width)
    maps = across + shift[..., 0] * reach, down + shift[..., 1] * reach
    picture = cv2.remap(flat.picture, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    angle = random.uniform(0, 2 * np.pi)
    slope = np.diff(folds[..., 0], axis=1, append=0) * np.cos(angle)
    slope += np.diff(folds[..., 1], axis=0, append=0) * np.sin(angle)
    light = (1 + slope * random.uniform(0.05, 0.25)).clip(0.3, 1.6).astype(np.float32)
    way = cv2.INTER_NEAREST if random.random() < 0.3 else cv2.INTER_LINEAR
    light = cv2.resize(light, (width, height), interpolation=way)
    return FlatObject(cv2.multiply(picture, cv2.merge([light] * 3), dtype=cv2.CV_8U), flat.marks)


def _arrange(random: Random, flats: list[FlatObject]) -> FlatObject:
    """Arrange objects in a row or a column on one sheet."""
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
        marks += [moved(mark, left, top) for mark in flat.marks]
        at += (wide if is_row else tall) + gap
    return FlatObject(sheet, tuple(marks))


def _tiled(random: Random, flats: list[FlatObject], columns: int) -> FlatObject:
    """Arrange objects in rows on one sheet, each in the middle of its cell."""
    height = max(flat.picture.shape[0] for flat in flats)
    width = max(flat.picture.shape[1] for flat in flats)
    height, width = (int(v * random.uniform(1.02, 1.5)) for v in (height, width))
    sheet = np.full((height * (len(flats) // columns), width * columns), 255, np.uint8)
    marks = []
    for index, flat in enumerate(flats):
        tall, wide = flat.picture.shape
        top = index // columns * height + (height - tall) // 2
        left = index % columns * width + (width - wide) // 2
        sheet[top : top + tall, left : left + wide] = flat.picture
        marks += [moved(mark, left, top) for mark in flat.marks]
    return FlatObject(sheet, tuple(marks))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheet", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--columns", type=int, default=6)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--photos", type=Path, help="a folder that photographs.py made")
    options = parser.parse_args()
    generator = SceneGenerator(options.seed, photographs=load_photographs(options.photos))
    tiles = []
    for number in range(options.first, options.first + options.columns * options.rows):
        scene = generator.scene(number)
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
