"""Pictures of 3 megapixels with several codes, turned and small, for measuring how many are read.

zxing-cpp draws the symbols; each lies on a card that is turned by any angle, tilted, blurred and
printed with little or much contrast. `ComposedScenes(seed).scene(number)` is deterministic, and
nothing is shared with the scenes of the training.

python tools/codes/composed.py scene.png writes a scene.
"""

from __future__ import annotations

import argparse
import io
import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zxingcpp
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

NAMES = ("qr", "datamatrix", "aztec", "pdf417", "barcode")
SIZE = (2048, 1536)

_CELL = 512  # of a grid; a cell holds at most one code
_SIDES = (90.0, 400.0)  # of a code, in pixels
_MODULES = ((1.4, 5.0), (1.4, 5.0), (1.4, 5.0), (1.0, 3.0), (1.0, 3.5))  # in pixels, by kind
_FORMATS = (
    ("QRCode",),
    ("DataMatrix",),
    ("Aztec",),
    ("PDF417",),
    ("EAN13", "EAN13", "UPCA", "EAN8", "Code128", "Code128", "Code39", "Code93", "ITF", "Codabar"),
)
_DIGITS = {"EAN13": 12, "UPCA": 11, "EAN8": 7}
_UPPER = string.ascii_uppercase + string.digits
_ANY = string.ascii_letters + string.digits + "-./:"

Grey = NDArray[np.uint8]
Random = np.random.Generator


@dataclass(frozen=True)
class Written:
    """A code in a scene, and what it says."""

    kind: int
    text: str
    corners: tuple[tuple[float, float], ...]
    module: float  # pixels
    angle: float  # degrees


@dataclass(frozen=True)
class Scene:
    pixels: Grey  # (height, width, 3)
    codes: tuple[Written, ...]


class ComposedScenes:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def scene(self, number: int) -> Scene:
        random = np.random.default_rng((self._seed, number))
        image = _background(random)
        cells = [(x, y) for x in range(0, SIZE[0], _CELL) for y in range(0, SIZE[1], _CELL)]
        random.shuffle(cells)
        codes = []
        for corner in cells[: random.integers(3, 8)]:
            code = _place(random, image, corner)
            if code is not None:
                codes.append(code)
        return Scene(_expose(random, image), tuple(codes))


def _background(random: Random) -> Image.Image:
    """Return clouds of two colours with text and lines, in which nothing can be read."""
    width, height = SIZE
    clouds = np.zeros((96, 128))
    for octave in range(2, 7):
        cells = random.normal(size=(2**octave, 2**octave)).astype(np.float32)
        layer = Image.fromarray(cells).resize((128, 96), Image.Resampling.BICUBIC)
        clouds += np.asarray(layer) * random.uniform(0.3, 0.9) ** octave
    clouds = (clouds - clouds.min()) / (np.ptp(clouds) + 1e-9)
    ends = random.uniform(20, 235, size=(2, 3))
    colours = (ends[0] + (ends[1] - ends[0]) * clouds[..., None]).astype(np.uint8)
    image = Image.fromarray(colours).resize(SIZE, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(random.integers(4, 14)):
        place = random.uniform(0, width), random.uniform(0, height)
        ink = tuple(int(part) for part in random.uniform(0, 255, size=3))
        if random.random() < 0.5:
            font = ImageFont.load_default(float(random.uniform(12, 90)))
            draw.text(place, _text(random, string.ascii_letters + " ", 5, 25), ink, font)
        else:
            end = random.uniform(0, width), random.uniform(0, height)
            draw.line((*place, *end), ink, int(random.integers(1, 12)))
    return image


def _text(random: Random, alphabet: str, low: int, high: int) -> str:
    count = int(random.integers(low, high + 1))
    return "".join(alphabet[i] for i in random.integers(len(alphabet), size=count))


def _content(random: Random, name: str) -> str:
    if name in _DIGITS:
        return _text(random, string.digits, _DIGITS[name], _DIGITS[name])
    if name == "ITF":
        return _text(random, string.digits, 4, 8) * 2
    if name in ("Code39", "Code93"):
        return _text(random, _UPPER, 4, 10)
    if name == "Codabar":
        return "A" + _text(random, string.digits, 6, 12) + "A"
    return _text(random, _ANY, 6, int(random.choice((16, 40, 90))))


def _symbol(random: Random, kind: int, side: float) -> tuple[Grey, str, float] | None:
    """Return bare modules, what they say, and the pixels of a module if the code has this side."""
    low, high = _MODULES[kind]
    for _ in range(12):
        name = str(random.choice(_FORMATS[kind]))
        options = {"columns": int(random.integers(1, 6))} if name == "PDF417" else {}
        format_ = getattr(zxingcpp.BarcodeFormat, name)
        try:
            code = zxingcpp.create_barcode(_content(random, name), format_, **options)
        except (ValueError, RuntimeError):
            continue
        image = np.array(zxingcpp.write_barcode_to_image(code, scale=2))
        image = image.reshape(image.shape[:2])
        read = zxingcpp.read_barcodes(
            np.pad(image, 20, constant_values=255), text_mode=zxingcpp.TextMode.Plain
        )
        rows, columns = (np.flatnonzero((image < 128).any(axis=axis)) for axis in (1, 0))
        modules = image[rows[0] : rows[-1] + 1 : 2, columns[0] : columns[-1] + 1 : 2]
        if kind == 4:  # bars of another height
            height = int(modules.shape[1] * random.uniform(0.25, 0.8))
            modules = np.repeat(modules[:1], height, axis=0)
        module = side / max(modules.shape)
        if len(read) == 1 and low <= module <= high:
            return modules, read[0].text, module
    return None


def _place(random: Random, image: Image.Image, cell: tuple[int, int]) -> Written | None:
    """Draw a code on a card into a cell of the picture."""
    kind = int(random.integers(5))
    side = float(np.exp(random.uniform(*np.log(_SIDES))))
    made = _symbol(random, kind, side)
    if made is None:
        return None
    modules, text, module = made
    quiet = 4 if kind != 4 else 10
    pixels = int(np.ceil(2 * module))  # of the sheet, for each module
    sheet = np.pad(modules, quiet, constant_values=255).repeat(pixels, 0).repeat(pixels, 1)
    height, width = sheet.shape
    angle = float(random.uniform(0, 360))
    corners = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float64)
    centred = (corners - (width / 2, height / 2)) * (module / pixels)
    turn = np.deg2rad(angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    tilt = random.normal(0, 0.08, size=2) / (np.ptp(centred, axis=0).max() / 2)
    placed = centred @ rotation.T
    placed = placed / (1 + (placed @ tilt)[:, None])
    middle = np.array(cell) + _CELL / 2 + random.uniform(-10, 10, size=2)
    if np.abs(placed).max() > _CELL / 2 - 12:
        return None
    to_sheet = _homography(placed, corners)
    start = np.floor(placed.min(axis=0)).astype(int) - 2
    size = np.ceil(np.ptp(placed, axis=0)).astype(int) + 6
    scaled = np.array([[0.5, 0, start[0]], [0, 0.5, start[1]], [0, 0, 1]])
    coefficients = (to_sheet @ scaled / (to_sheet @ scaled)[2, 2]).ravel()[:8]
    drawn = [
        Image.fromarray(layer)
        .transform(
            (int(2 * size[0]), int(2 * size[1])),
            Image.Transform.PERSPECTIVE,
            coefficients.tolist(),
            Image.Resampling.BILINEAR,
        )
        .reduce(2)
        for layer in (sheet, np.full_like(sheet, 255))
    ]
    share, mask = (
        np.asarray(each.filter(ImageFilter.GaussianBlur(blur)), np.float32)[..., None] / 255
        for blur in [random.uniform(0, 0.35) * module + random.uniform(0, 0.4)]
        for each in drawn
    )
    paper = random.uniform(140, 250) * random.uniform(0.85, 1, size=3)
    ink = paper * random.uniform(0.05, 0.55)
    left, top = np.round(middle + start).astype(int)
    area = (left, top, left + int(size[0]), top + int(size[1]))
    below = np.asarray(image.crop(area), np.float32)
    card = ink * (mask - share) + paper * share
    image.paste(Image.fromarray(np.uint8(np.clip(below * (1 - mask) + card, 0, 255))), area[:2])
    inner = corners + quiet * pixels * np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)])
    back = np.linalg.inv(to_sheet)
    flat = np.column_stack([inner, np.ones(4)]) @ back.T
    outline = flat[:, :2] / flat[:, 2:] + (left, top) - start
    return Written(kind, text, tuple(map(tuple, outline.tolist())), module, angle)


def _homography(source: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the projective map of four points to four others."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    solution = np.linalg.solve(np.array(rows), target.ravel())
    return np.append(solution, 1).reshape(3, 3)


def _expose(random: Random, image: Image.Image) -> Grey:
    """Add light that falls off, noise and the losses of a JPEG file."""
    pixels = np.asarray(image, np.int16)
    noise = random.normal(0, random.uniform(1, 7), size=(256, SIZE[0], 3)).astype(np.int16)
    rows = [np.roll(noise, random.integers(SIZE[0]), axis=1) for _ in range(SIZE[1] // 256)]
    noisy = np.uint8(np.clip(pixels + np.concatenate(rows), 0, 255))
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=int(random.integers(70, 96)))
    return np.asarray(Image.open(file).convert("RGB"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=61)
    parser.add_argument("--scene", type=int, default=0)
    options = parser.parse_args()
    scene = ComposedScenes(options.seed).scene(options.scene)
    Image.fromarray(scene.pixels).save(options.output)
    for code in scene.codes:
        print(f"{NAMES[code.kind]} {code.module:.1f} px {code.angle:.0f} degrees {code.text}")


if __name__ == "__main__":
    main()
