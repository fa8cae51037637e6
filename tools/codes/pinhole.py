"""Photographs for measuring only, made in another way than the scenes for training.

zxing-cpp draws the symbols; a pinhole camera with lens distortion looks at a plane, a cylinder or
a wavy sheet, ray by ray; light, sensor noise and sharpening are computed in linear light. Nothing
here is imported from the training's modules. `PinholeScenes(seed).scene(number)` is deterministic.

python tools/codes/pinhole.py sheet.png writes a contact sheet.
"""

from __future__ import annotations

import argparse
import io
import string
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import zxingcpp
from numpy.typing import NDArray
from photograph import Photograph, PictureError, Target, find_pictures
from PIL import Image, ImageDraw, ImageFont

Floats = NDArray[np.float64]
Grey = NDArray[np.uint8]
Random = np.random.Generator

LONGER_SIDE = 960  # of every picture
_INPUT = 512  # pixels of the network, in which modules and blur are given
_SIDES = ((960, 720), (720, 960), (960, 540), (540, 960), (960, 960))
_MIN_MODULE = (1.0, 1.0, 1.0, 0.6, 0.5)  # pixels of the picture
_MIN_VISIBLE = 0.7
_FORMATS = (
    ("QRCode", "QRCode", "QRCode", "MicroQRCode"),
    ("DataMatrix",),
    ("Aztec",),
    ("PDF417", "PDF417", "CompactPDF417"),
    (
        *("EAN13", "EAN13", "EAN13", "UPCA", "EAN8", "UPCE", "Code128", "Code128", "Code39"),
        *("Code93", "ITF", "Codabar", "DataBarOmni", "DataBarStk", "DataBarExpStk"),
    ),
)


@dataclass(frozen=True)
class _Symbol:
    kind: int
    image: Grey  # with quiet zone
    box: tuple[int, int, int, int]  # of the code in `image`
    modules: int  # along the longer side


class PinholeScenes:
    def __init__(self, seed: int, backgrounds: list[Path] | None = None) -> None:
        self._seed = seed
        self._backgrounds = backgrounds or []

    def scene(self, number: int) -> Photograph:
        random = np.random.default_rng((self._seed, number))
        if random.random() < 0.15:
            return _rendering(random)
        width, height = _SIDES[random.integers(len(_SIDES))]
        canvas = self.background(random, width, height)
        if random.random() < 0.7:
            sizes = [float(np.exp(random.uniform(np.log(0.02), 0.0)))]
        else:
            count = random.integers(2, 5)
            sizes = np.exp(random.uniform(np.log(0.02), np.log(0.3), size=count)).tolist()
        return self.photograph(random, canvas, sizes)

    def photograph(self, random: Random, canvas: Floats, sizes: Sequence[float]) -> Photograph:
        """Return a photograph with codes in front of a background, which changes.

        The sizes of the codes' longer sides are in units of LONGER_SIDE.
        """
        targets: list[Target] = []
        lens = random.uniform(-0.12, 0.12)
        for size in sizes:
            for _ in range(8):
                target = _place(random, canvas, size, lens, targets)
                if target:
                    targets.append(target)
                    break
        return _expose(random, canvas, targets)

    def background(self, random: Random, width: int, height: int) -> Floats:
        """Return a background in linear light."""
        if self._backgrounds and random.random() < 0.6:
            path = self._backgrounds[random.integers(len(self._backgrounds))]
            with Image.open(path) as image:
                picture = np.asarray(image.convert("RGB"), np.float32) / 255
            picture = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
            return (picture**2.2).astype(np.float64)
        noise = np.zeros((height, width))
        for octave in range(1, 8):
            cells = random.normal(size=(2**octave + 1, 2**octave + 1))
            layer = cv2.resize(cells, (width, height), interpolation=cv2.INTER_CUBIC)
            noise += layer * random.uniform(0.2, 1) ** octave
        noise = (noise - noise.min()) / (np.ptp(noise) + 1e-9)
        if random.random() < 0.3:  # grain of wood, or layers
            noise = np.abs(np.sin(noise * random.uniform(10, 60)))
        ends = random.uniform(0.02, 0.8, size=(2, 3))
        return ends[0] + (ends[1] - ends[0]) * noise[..., None] * random.uniform(0.1, 1)


# ---------------------------------------------------------------- symbols


def _text(random: Random, alphabet: str, low: int, high: int) -> str:
    count = int(random.integers(low, high + 1))
    return "".join(alphabet[i] for i in random.integers(len(alphabet), size=count))


def _content(random: Random, kind: str, modules: float) -> str:
    """Return contents for a format; short if only few modules can be resolved."""
    digits, upper = string.digits, string.ascii_uppercase + string.digits
    lengths = {"EAN13": 12, "UPCA": 11, "EAN8": 7, "UPCE": 7, "DataBarOmni": 13, "DataBarStk": 13}
    if kind in lengths:
        text = _text(random, digits, lengths[kind], lengths[kind])
        return "0" + text[1:] if kind == "UPCE" else text
    if kind == "DataBarExpStk":
        return "(01)" + "0950600013435" + "2" + "(10)" + _text(random, digits, 4, 10)
    if kind == "ITF":
        return _text(random, digits, 3, 7) * 2
    if kind == "MicroQRCode":
        return _text(random, digits, 3, 12)
    if kind in ("Code39", "Code93"):
        return _text(random, upper, 4, 10)
    if kind == "Codabar":
        return "A" + _text(random, digits, 5, 12) + "A"
    if kind == "Code128":
        return _text(random, string.ascii_letters + digits, 5, 16)
    longest = int(np.clip((modules / 4) ** 2 / 8, 5, random.choice([12, 40, 120])))
    return _text(random, string.ascii_letters + digits + "-./:", 4, longest)


def _symbol(random: Random, kind: int, pixels: float) -> _Symbol | None:
    """Return a symbol whose longer side has at most as many modules as `pixels` can show."""
    modules = pixels / _MIN_MODULE[kind]
    for _ in range(6):
        name = str(random.choice(_FORMATS[kind]))
        content = _content(random, name, modules)
        options = {"columns": int(random.integers(1, 7))} if "417" in name else {}
        format_ = getattr(zxingcpp.BarcodeFormat, name)
        try:
            code = zxingcpp.create_barcode(content, format_, **options)
        except (ValueError, RuntimeError):  # some digits of a UPC-E, for example
            continue
        plain = np.array(zxingcpp.write_barcode_to_image(code, scale=1))
        rows, columns = (np.flatnonzero((plain < 128).any(axis=axis)) for axis in (1, 0))
        box = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
        count = int(max(box[2] - box[0], box[3] - box[1]))
        if count > modules:
            continue
        scale = int(np.clip(np.ceil(2 * pixels / count), 1, 40))
        has_text = kind == 4 and random.random() < 0.6
        image = np.array(zxingcpp.write_barcode_to_image(code, scale=scale, add_hrt=has_text))
        image = image.reshape(image.shape[:2])
        bare = np.array(zxingcpp.write_barcode_to_image(code, scale=scale)).reshape(-1)
        bare = bare.reshape(-1, image.shape[1])
        rows, columns = (np.flatnonzero((bare < 128).any(axis=axis)) for axis in (1, 0))
        box = int(columns[0]), int(rows[0]), int(columns[-1] + 1), int(rows[-1] + 1)
        if kind == 4 and name[:4] not in ("Data",):  # bars of another height
            tall = box[3] - box[1]
            cut = int(tall * random.uniform(0, 0.6))
            image = np.delete(image, slice(box[1] + 1, box[1] + 1 + cut), axis=0)
            box = (box[0], box[1], box[2], box[3] - cut)
        return _Symbol(kind, image, box, count)
    return None


def _sheet(random: Random, symbol: _Symbol) -> tuple[Floats, tuple[int, int, int, int], float]:
    """Return a label in linear light with the code on it, the code's box, and its contrast."""
    height, width = symbol.image.shape
    left, top, right, bottom = (
        int(part * random.uniform(0, 0.6) * (random.random() < 0.7))
        for part in (width, height, width, height)
    )
    sheet = np.pad(symbol.image, ((top, bottom), (left, right)), constant_values=255)
    box = tuple(edge + (left, top)[i % 2] for i, edge in enumerate(symbol.box))
    image = Image.fromarray(sheet)
    draw = ImageDraw.Draw(image)
    for _ in range(random.integers(0, 8)):
        size = float(max(6, random.uniform(0.03, 0.2) * height))
        place = random.uniform(0, sheet.shape[1]), random.uniform(0, sheet.shape[0])
        draw.text(
            place, _text(random, string.ascii_letters + " ", 3, 20), 0, ImageFont.load_default(size)
        )
    image.paste(Image.fromarray(symbol.image), (left, top))
    share = np.asarray(image, np.float64)[..., None] / 255
    paper = random.uniform(0.35, 0.95) * np.clip(random.normal(1, 0.08, size=3), 0, 1.05)
    ink = paper * np.clip(random.uniform(0.02, 0.55) + random.normal(0, 0.04, size=3), 0.01, 1)
    contrast = float((paper**0.45 - ink**0.45).mean())
    if random.random() < 0.08:
        ink, paper = paper, ink
    return ink + (paper - ink) * share, box, contrast  # type: ignore[return-value]


# ---------------------------------------------------------------- geometry


@dataclass(frozen=True)
class _View:
    """A camera that looks at a bent sheet; lengths are in pixels of the sheet."""

    rotation: Floats  # of the sheet
    centre: Floats  # (3,) of the code, in camera coordinates
    focal: float
    radius: float  # of the cylinder; 0 for a plane
    lens: float
    principal: tuple[float, float]
    reach: float  # half of the picture's diagonal

    def project(self, points: Floats) -> Floats:
        """Return the pixels of points (n, 2) of the sheet, relative to the code's centre."""
        solid = np.column_stack([points, np.zeros(len(points))])
        if self.radius:
            turn = points[:, 0] / self.radius
            solid[:, 0] = self.radius * np.sin(turn)
            solid[:, 2] = self.radius * (1 - np.cos(turn))
        solid = solid @ self.rotation.T + self.centre
        flat = solid[:, :2] / solid[:, 2:] * self.focal / self.reach
        bent = flat.copy()
        for _ in range(12):  # the inverse of `rays`
            bent = flat / (1 + self.lens * (bent**2).sum(axis=1, keepdims=True))
        return bent * self.reach + self.principal

    def sheet_points(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return where the rays through pixels meet the sheet; NaN where they miss it."""
        bent = np.stack([x - self.principal[0], y - self.principal[1]], -1) / self.reach
        flat = bent * (1 + self.lens * (bent**2).sum(axis=-1, keepdims=True)) * self.reach
        ray = np.concatenate([flat / self.focal, np.ones((*flat.shape[:-1], 1))], -1)
        ray, origin = ray @ self.rotation, -self.centre @ self.rotation  # in the sheet's axes
        if not self.radius:
            time = -origin[2] / ray[..., 2]
            return origin[0] + time * ray[..., 0], origin[1] + time * ray[..., 1]
        middle = origin - np.array([0, 0, self.radius])
        a = ray[..., 0] ** 2 + ray[..., 2] ** 2
        b = ray[..., 0] * middle[0] + ray[..., 2] * middle[2]
        c = middle[0] ** 2 + middle[2] ** 2 - self.radius**2
        with np.errstate(invalid="ignore"):
            time = (-b - np.sqrt(b * b - a * c)) / a
        turn = np.arctan2(middle[0] + time * ray[..., 0], -(middle[2] + time * ray[..., 2]))
        return turn * self.radius, origin[1] + time * ray[..., 1]


def _rotation(random: Random) -> tuple[Floats, float]:
    """Return a rotation of the sheet, and its tilt in degrees."""
    tilt = np.deg2rad(min(abs(random.normal(0, 22)), 60))
    way = random.uniform(0, 2 * np.pi)
    axis = np.array([np.cos(way), np.sin(way), 0.0]) * tilt
    quarter = 90 * random.choice(4, p=(0.55, 0.2, 0.05, 0.2))
    roll = np.deg2rad(quarter + random.normal(0, 12 if random.random() < 0.7 else 40))
    turn = np.array([[np.cos(roll), -np.sin(roll), 0], [np.sin(roll), np.cos(roll), 0], [0, 0, 1]])
    return cv2.Rodrigues(axis)[0] @ turn, float(np.degrees(tilt))


def _outline(box: tuple[float, float, float, float]) -> Floats:
    left, top, right, bottom = box
    corners = np.array([(left, top), (right, top), (right, bottom), (left, bottom)], np.float64)
    parts = np.linspace(0, 1, 16, endpoint=False)[:, None]
    return np.concatenate(
        [a + (b - a) * parts for a, b in zip(corners, np.roll(corners, -1, 0), strict=True)]
    )


def _place(
    random: Random, canvas: Floats, size: float, lens: float, others: list[Target]
) -> Target | None:
    """Draw a code of about `size` of the longer side into the canvas, unless it does not fit."""
    height, width = canvas.shape[:2]
    symbol = _symbol(
        random, int(random.choice(5, p=(0.2, 0.2, 0.15, 0.17, 0.28))), size * LONGER_SIDE
    )
    if symbol is None:
        return None
    sheet, box, contrast = _sheet(random, symbol)
    middle = np.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2])
    across = box[2] - box[0]
    rotation, tilt = _rotation(random)
    curvature = random.uniform(15, 130) if random.random() < 0.3 else 0.0
    radius = across / np.deg2rad(curvature) if curvature else 0.0
    reach = float(np.hypot(width, height) / 2)
    focal = LONGER_SIDE * random.uniform(0.7, 1.6)
    outline = _outline(tuple(box[i] - middle[i % 2] for i in range(4)))
    far = focal * max(across, box[3] - box[1]) / (size * LONGER_SIDE)
    view = _View(
        rotation, np.array([0, 0, far]), focal, radius, 0.0, (width / 2, height / 2), reach
    )
    for _ in range(3):
        span = np.ptp(view.project(outline), axis=0).max() / LONGER_SIDE
        far *= span / size
        if far < 0.75 * max(across, box[3] - box[1]) or not np.isfinite(far):
            return None
        view = replace(view, centre=np.array([0, 0, far]))
    extent = np.ptp(view.project(outline), axis=0)
    cut = 0.25 if random.random() < 0.15 else 0.0
    room = np.array([width, height]) - extent
    slack = np.where(room > 0, room / 2 + cut * extent, np.maximum(-room / 2, cut * extent))
    shift = random.uniform(-slack, slack)
    view = replace(view, lens=lens, centre=np.array([*(shift * far / focal), far]))
    points = view.project(outline)
    low, high = points.min(axis=0), points.max(axis=0)
    inner_low, inner_high = np.clip(low, 0, (width, height)), np.clip(high, 0, (width, height))
    if (inner_high - inner_low).prod() < _MIN_VISIBLE * (high - low).prod():
        return None
    edges = _outline(
        (-middle[0], -middle[1], sheet.shape[1] - middle[0], sheet.shape[0] - middle[1])
    )
    if radius:
        edges[:, 0] = edges[:, 0].clip(-1.45 * radius, 1.45 * radius)
    cover = view.project(edges)
    start = np.floor(np.clip(cover.min(axis=0) - 1, 0, (width, height))).astype(int)
    stop = np.ceil(np.clip(cover.max(axis=0) + 1, 0, (width, height))).astype(int)
    for other in others:
        if min(stop[0], other.box[2]) > max(start[0], other.box[0]) and min(
            stop[1], other.box[3]
        ) > max(start[1], other.box[1]):
            return None
    _draw(random, canvas, sheet, view, middle, start, stop)
    inner = (inner_high - inner_low).max() / LONGER_SIDE
    direction = points[16] - points[0]
    angle = abs((np.degrees(np.arctan2(direction[1], direction[0])) + 45) % 90 - 45)
    place = (*inner_low.tolist(), *inner_high.tolist())
    first, second = (16, 0) if across >= box[3] - box[1] else (32, 16)
    module = np.linalg.norm(points[first] - points[second]) / symbol.modules * _INPUT / LONGER_SIDE
    return Target(
        *(symbol.kind, place, float(inner), float(angle)),
        *(tilt, 0.0, contrast, curvature, float(module)),
    )


def _draw(
    random: Random,
    canvas: Floats,
    sheet: Floats,
    view: _View,
    middle: Floats,
    start: NDArray[np.int_],
    stop: NDArray[np.int_],
) -> None:
    """Trace four rays per pixel between `start` and `stop`, and shade what they meet."""
    width, height = stop - start
    if width < 1 or height < 1:
        return
    x, y = np.meshgrid(
        start[0] + (np.arange(2 * width) + 0.5) / 2, start[1] + (np.arange(2 * height) + 0.5) / 2
    )
    u, v = view.sheet_points(x, y)
    if random.random() < 0.1:  # a wavy sheet
        period = random.uniform(0.3, 1) * max(sheet.shape)
        u = u + 0.01 * max(sheet.shape) * np.sin(2 * np.pi * v / period)
    inside = np.isfinite(u)
    maps = (
        np.where(inside, each, -1e6).astype(np.float32)
        for each in (u + middle[0] - 0.5, v + middle[1] - 0.5)
    )
    layered = np.dstack([sheet, np.ones(sheet.shape[:2])]).astype(np.float32)
    seen = cv2.remap(layered, *maps, cv2.INTER_LINEAR, borderValue=(0, 0, 0, 0)).astype(np.float64)
    if view.radius:
        turn = np.nan_to_num(u) / view.radius
        light = random.normal(0, 0.5)
        seen[..., :3] *= 0.3 + 0.7 * np.clip(np.cos(turn - light), 0, 1)[..., None]
        if random.random() < 0.4:
            shine = np.exp(-(((turn - light / 2) / 0.1) ** 2)) * random.uniform(0.1, 0.7)
            seen[..., :3] += shine[..., None] * seen[..., 3:]
    seen = seen.reshape(height, 2, width, 2, 4).mean(axis=(1, 3))
    part = canvas[start[1] : stop[1], start[0] : stop[0]]
    part[:] = part * (1 - seen[..., 3:]) + seen[..., :3] * (seen[..., 3:] > 0)


# ---------------------------------------------------------------- light and sensor


def _expose(random: Random, light: Floats, targets: list[Target]) -> Photograph:
    """Return the picture that a phone would store of a scene in linear light."""
    height, width = light.shape[:2]
    rows, columns = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    vignette = 1 - random.uniform(0, 0.45) * (rows**2 + columns**2) / 2
    way = random.uniform(0, 2 * np.pi)
    uneven = 1 + random.uniform(0, 0.6) * (columns * np.cos(way) + rows * np.sin(way))
    light = light * (vignette * uneven)[..., None]
    if random.random() < 0.15:  # the reflection of a lamp
        x, y = random.uniform(-1, 1, size=2)
        spot = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / random.uniform(0.003, 0.1))
        light = light + spot[..., None] * random.uniform(0.2, 1.5)
    light = light * random.normal(1, 0.07, size=3) * np.exp(random.uniform(-1.1, 0.35))
    blur = float(random.exponential(1.2)) if random.random() < 0.7 else 0.0
    finest = min((t.size * LONGER_SIDE for t in targets), default=200) / 30
    blur = min(blur, max(0.8 * finest, 0.5), 6)
    if blur > 0.4:
        size = 2 * int(np.ceil(blur)) + 1
        at = np.arange(size) - size // 2
        kernel = np.clip(blur + 0.5 - np.hypot(at[:, None], at[None]), 0, 1)
        if random.random() < 0.3:
            angle = random.uniform(0, np.pi)
            off = np.abs(at[None] * np.sin(angle) - at[:, None] * np.cos(angle))
            kernel *= np.clip(1 - off, 0, 1)
        light = cv2.filter2D(light, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT)
    photons = np.exp(random.uniform(np.log(60), np.log(4000)))
    light = np.clip(light, 0, None)
    light = light + random.normal(size=light.shape) * np.sqrt(light / photons + 1e-5)
    picture = np.clip(light, 0, 1) ** (1 / 2.2)
    if random.random() < 0.5:
        soft = cv2.GaussianBlur(picture, (0, 0), 1.2)
        picture = np.clip(picture + random.uniform(0.2, 1) * (picture - soft), 0, 1)
    quality = int(random.choice([20, 40, 60, 80, 92]))
    pixels = _stored(np.rint(picture * 255).astype(np.uint8), quality)
    blur_at_input = blur * _INPUT / LONGER_SIDE
    return Photograph(pixels, tuple(replace(each, blur=blur_at_input) for each in targets))


def _stored(pixels: Grey, quality: int) -> Grey:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def _rendering(random: Random) -> Photograph:
    """Return a symbol as a program draws it: it fills the picture, or is somewhere on a page."""
    symbol = None
    while symbol is None:
        size = float(np.exp(random.uniform(np.log(0.1), 0)))
        symbol = _symbol(random, int(random.integers(5)), size * LONGER_SIDE)
    image, box = symbol.image, symbol.box
    if random.random() < 0.5:
        image = np.asarray(
            Image.fromarray(image).resize((image.shape[1] // 2 or 1, image.shape[0] // 2 or 1))
        )
        box = tuple(edge // 2 for edge in box)  # type: ignore[assignment]
        longer = max(image.shape)
    else:
        height, width = image.shape
        longer = max(LONGER_SIDE, height, width)
        short = max(int(longer * 0.72), min(image.shape) + 1)
        sides = (longer, short) if height > width else (short, longer)
        page = np.full((max(sides[0], height), max(sides[1], width)), 255, np.uint8)
        left, top = (
            int(random.integers(r + 1)) for r in (page.shape[1] - width, page.shape[0] - height)
        )
        page[top : top + height, left : left + width] = image
        image = page
        box = tuple(edge + (left, top)[i % 2] for i, edge in enumerate(box))  # type: ignore[assignment]
        longer = max(image.shape)
    size = max(box[2] - box[0], box[3] - box[1]) / longer
    pixels = np.repeat(image[..., None], 3, axis=2)
    module = size * _INPUT / symbol.modules
    target = Target(symbol.kind, tuple(map(float, box)), float(size), module=float(module))  # type: ignore[arg-type]
    return Photograph(pixels, (target,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheet", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--backgrounds", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    scenes = PinholeScenes(options.seed, find_pictures(options.backgrounds))
    tiles = []
    for number in range(options.count):
        photograph = scenes.scene(number)
        image = Image.fromarray(photograph.pixels)
        draw = ImageDraw.Draw(image)
        for target in photograph.targets:
            draw.rectangle(target.box, outline=(0, 255, 0), width=4)
        tiles.append(image.resize((240, 240)))
    sheet = Image.new("RGB", (240 * 8, 240 * -(-len(tiles) // 8)))
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (number % 8 * 240, number // 8 * 240))
    sheet.save(options.sheet)


if __name__ == "__main__":
    try:
        main()
    except PictureError as error:
        sys.exit(f"Error: {error}")
