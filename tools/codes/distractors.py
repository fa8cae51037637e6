"""Pictures without codes: surfaces to put codes on, and patterns that resemble codes."""

from __future__ import annotations

import string
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.uint8]
Random = np.random.Generator

SIDE = 448  # pixels of every generated picture
HELD_OUT = 8  # every eighth photograph is held out from training
_PHOTOS = "motorcycle_left motorcycle_right grass gravel brick camera coins moon text page"
_FONT_SIZES = (11, 14, 18, 24, 34)
_KEYS = (0.13, 0.13, 0.13, 0.13, 0.13, 0.13, 0.12, 0.07, 0.03)  # shares of the widths of keys


def colour(random: Random, low: int = 0, high: int = 256) -> tuple[int, int, int]:
    """Return a random colour; half of them are nearly grey, as in most scenes."""
    values = random.integers(low, high, size=3)
    if random.random() < 0.5:
        values = (values.mean() + 0.15 * (values - values.mean())).astype(int)
    return int(values[0]), int(values[1]), int(values[2])


def ink_and_paper(random: Random) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    ink, paper = colour(random, 0, 110), colour(random, 150, 256)
    return (paper, ink) if random.random() < 0.2 else (ink, paper)


def load_photographs(folder: Path | None = None) -> list[Picture]:
    """Load the photographs of a folder of photographs.py, or else those in scikit-image."""
    if folder:
        paths = sorted(p for p in folder.iterdir() if p.suffix in (".jpg", ".webp"))
    else:
        import skimage

        paths = [Path(skimage.__file__).parent / f"data/{name}.png" for name in _PHOTOS.split()]
    with ThreadPoolExecutor() as pool:
        pictures = pool.map(lambda path: cv2.imread(str(path), cv2.IMREAD_COLOR), paths)
        found = [picture for picture in pictures if picture is not None]
    if not found:
        raise SystemExit(f"no photographs in {folder or 'scikit-image'}")
    return found


def random_crop(random: Random, pictures: list[Picture], size: tuple[int, int]) -> Picture:
    """Return a random crop, scaled and stretched to `size`, but enlarged only a little."""
    picture = pictures[random.integers(len(pictures))]
    share = 1.0 if random.random() < 0.4 else random.uniform(0.35, 1)
    height, width = (
        int(min(edge, max(share * edge * random.uniform(0.85, 1), 0.45 * wanted)))
        for edge, wanted in zip(picture.shape[:2], size[::-1], strict=True)
    )
    top = random.integers(picture.shape[0] - height + 1)
    left = random.integers(picture.shape[1] - width + 1)
    part = picture[top : top + height, left : left + width]
    way = cv2.INTER_AREA if height > size[1] else cv2.INTER_LINEAR
    crop = cv2.resize(part, size, interpolation=way)
    if random.random() < 0.5:
        crop = crop[:, ::-1]
    return np.ascontiguousarray(crop)


# ---------------------------------------------------------------- text


class TextRenderer:
    """A renderer of random words in the fonts of Pillow and matplotlib."""

    def __init__(self) -> None:
        self._fonts = [ImageFont.load_default(size) for size in _FONT_SIZES]
        try:
            import matplotlib
        except ImportError:
            return
        folder = Path(matplotlib.get_data_path()) / "fonts/ttf"
        for name in ("DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono"):
            path = folder / f"{name}.ttf"
            if path.is_file():
                self._fonts += [ImageFont.truetype(str(path), size) for size in _FONT_SIZES[:4]]

    def lines(self, random: Random, texts: list[str]) -> Picture:
        """Render lines in black on white, cropped at the top."""
        font = self._fonts[random.integers(len(self._fonts))]
        text = "\n".join(texts)
        box = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox((0, 0), text, font=font)
        sheet = Image.new("L", (int(box[2]) + 2, int(box[3]) + 2), 255)
        ImageDraw.Draw(sheet).multiline_text((0, 0), text, fill=0, font=font)
        return np.asarray(sheet)[int(box[1]) :]

    def words(self, random: Random, rows: int, most: int = 5) -> Picture:
        return self.lines(
            random,
            [
                " ".join(_word(random) for _ in range(random.integers(1, most + 1)))
                for _ in range(rows)
            ],
        )


def _word(random: Random) -> str:
    alphabets = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
    alphabet = alphabets[random.choice(3, p=(0.55, 0.25, 0.2))]
    return "".join(alphabet[i] for i in random.integers(len(alphabet), size=random.integers(2, 9)))


def _page(random: Random) -> Picture:
    ink, paper = ink_and_paper(random)
    sheet = np.full((SIDE, SIDE), 255, np.uint8)
    setter = TextRenderer()
    top = 6
    while top < SIDE - 10:
        block = setter.words(random, int(random.integers(2, 9)), int(random.integers(2, 10)))
        block = block[: SIDE - top, : SIDE - 8]
        sheet[top : top + block.shape[0], 8 : 8 + block.shape[1]] = block
        top += block.shape[0] + int(random.integers(4, 24))
    return tint(sheet, ink, paper)


def tint(grey: Picture, ink: tuple[int, int, int], paper: tuple[int, int, int]) -> Picture:
    """Map black to `ink` and white to `paper`."""
    steps = np.linspace(0, 1, 256)[:, None]
    table = (np.asarray(ink) * (1 - steps) + np.asarray(paper) * steps).astype(np.uint8)
    return cv2.LUT(cv2.merge([np.ascontiguousarray(grey)] * 3), table.reshape(256, 1, 3))


# ---------------------------------------------------------------- regular patterns


def _checkerboard(random: Random) -> Picture:
    count = int(random.integers(4, 24))
    cells = np.indices((count, count)).sum(axis=0) % 2
    grey = cv2.resize((cells * 255).astype(np.uint8), (SIDE, SIDE), interpolation=cv2.INTER_NEAREST)
    return tint(grey, *ink_and_paper(random))


def _crossword(random: Random) -> Picture:
    count = int(random.integers(8, 20))
    cells = (random.random((count, count)) > random.uniform(0.15, 0.35)).astype(np.uint8) * 255
    grey = cv2.resize(cells, (SIDE, SIDE), interpolation=cv2.INTER_NEAREST)
    step = SIDE / count
    for line in range(count + 1):
        at = int(line * step)
        cv2.line(grey, (at, 0), (at, SIDE), 0, 1)
        cv2.line(grey, (0, at), (SIDE, at), 0, 1)
    for row, column in np.argwhere(cells > 0):
        if random.random() < 0.4:
            place = (int((column + 0.2) * step), int((row + 0.8) * step))
            letter = string.ascii_uppercase[random.integers(26)]
            cv2.putText(grey, letter, place, cv2.FONT_HERSHEY_SIMPLEX, step / 40, 0, 1)
    return tint(grey, *ink_and_paper(random))


def _table(random: Random) -> Picture:
    """Draw a ruled table with text in some cells."""
    grey = np.full((SIDE, SIDE), 255, np.uint8)
    thickness = int(random.integers(1, 4))
    for axis in range(2):
        at = 0
        step = random.integers(10, 60)
        while at < SIDE:
            ends = ((at, 0), (at, SIDE)) if axis else ((0, at), (SIDE, at))
            cv2.line(grey, *ends, 0, thickness)
            at += int(step * random.uniform(0.9, 1.1))
    for _ in range(random.integers(0, 60)):
        place = (int(random.integers(SIDE)), int(random.integers(SIDE)))
        cv2.putText(grey, _word(random), place, cv2.FONT_HERSHEY_PLAIN, 1, 0, 1)
    return tint(grey, *ink_and_paper(random))


def _keyboard(random: Random) -> Picture:
    """Draw rows of keys, each row shifted, with legends and lit edges."""
    board, key = colour(random, 0, 200), colour(random)
    picture = np.full((SIDE, SIDE, 3), board, np.uint8)
    down = int(random.integers(8, 64))
    across = max(6, int(down * random.uniform(0.8, 1.3)))
    gap = max(1, int(down * random.uniform(0.06, 0.35)))
    lit, shaded = (np.clip(np.asarray(key) + step, 0, 255).tolist() for step in (50, -60))
    legend = (255, 255, 255) if np.mean(key) < 128 else (20, 20, 20)
    for top in range(int(random.integers(-down, 0)), SIDE, down):
        left = int(random.integers(-across, 0))
        while left < SIDE:
            width = across * int(random.choice([1, 1, 1, 1, 1, 1, 1, 2, 6], p=_KEYS))
            near, far = (left, top), (left + width - gap, top + down - gap)
            cv2.rectangle(picture, near, far, key, -1)
            cv2.line(picture, near, (far[0], top), lit, 1)
            cv2.line(picture, (left, far[1]), far, shaded, max(1, gap // 3))
            if down > 14:
                letter = string.ascii_uppercase[random.integers(26)]
                place = (left + gap, top + down // 2)
                cv2.putText(picture, letter, place, 0, down / 80, legend, 1, cv2.LINE_AA)
            left += width
    if random.random() < 0.5:  # all of a keyboard, in its case
        rows = int(random.integers(4, 7)) * down
        edge = int(random.integers(0, max(1, SIDE - rows)))
        case = colour(random) if random.random() < 0.5 else board
        picture[:edge], picture[edge + rows :] = case, case
        side = int(random.integers(0, 60))
        picture[:, :side] = case
    return picture


def stripes(random: Random) -> Picture:
    """Draw bars of varying widths, like corduroy, radiators or fences, sometimes rotated."""
    widths = random.integers(2, int(random.choice([5, 12, 40])), size=SIDE)
    if random.random() < 0.5:
        widths[:] = widths[: int(random.integers(1, 3))].mean()
    row = np.repeat(np.arange(SIDE) % 2, widths)[:SIDE].astype(np.uint8) * 255
    grey = np.broadcast_to(row, (SIDE, SIDE)).copy()
    if random.random() < 0.4:
        grey = _rotated(grey, random.uniform(0, 180))
    if random.random() < 0.5:
        grey = cv2.GaussianBlur(grey, (0, 0), random.uniform(0.5, 4))
    return tint(grey, *ink_and_paper(random))


def _rotated(grey: Picture, angle: float) -> Picture:
    matrix = cv2.getRotationMatrix2D((SIDE / 2, SIDE / 2), angle, 1)
    return cv2.warpAffine(grey, matrix, (SIDE, SIDE), borderMode=cv2.BORDER_REFLECT)


def _fence(random: Random) -> Picture:
    picture = clouds(random)
    step, width = int(random.integers(12, 60)), int(random.integers(2, 10))
    paint = colour(random)
    for at in range(0, SIDE * 2, step):
        cv2.line(picture, (at, 0), (at if random.random() < 0.7 else at - 40, SIDE), paint, width)
    if random.random() < 0.6:
        for at in range(0, SIDE, step * int(random.integers(1, 6))):
            cv2.line(picture, (0, at), (SIDE, at), paint, width)
    return picture


def _bookshelf(random: Random) -> Picture:
    """Draw shelves of books; some shelves hold a series, whose books look alike."""
    picture = np.full((SIDE, SIDE, 3), colour(random, 0, 90), np.uint8)
    shelf = int(random.integers(70, 230))
    thin = int(max(3, shelf * random.uniform(0.04, 0.1)))
    is_series = random.random() < 0.2
    back, front = ink_and_paper(random)
    for bottom in range(shelf, SIDE + shelf, shelf):
        left = 0
        while left < SIDE:
            width = thin + int(0 if is_series else random.integers(0, 3 * thin))
            tall = int(shelf * (0.85 if is_series else random.uniform(0.55, 0.93)))
            if not is_series:
                back, front = ink_and_paper(random)
                back = back if random.random() < 0.6 else colour(random)
            spine = np.full((tall, width, 3), back, np.uint8)
            for at in random.integers(0, tall, size=int(random.integers(0, 5))).tolist():
                cv2.line(spine, (0, at), (width, at), front, int(random.integers(1, 4)))
            if width > 7:
                line = np.full((width, tall, 3), back, np.uint8)
                place = (int(tall * random.uniform(0.05, 0.3)), width * 3 // 4)
                words = f"{_word(random)} {_word(random)}"
                cv2.putText(line, words, place, 3, width / 34, front, 1, cv2.LINE_AA)
                spine = np.where(np.rot90(line) != back, np.rot90(line), spine).astype(np.uint8)
            shade = 1 - random.uniform(0, 0.6) * np.linspace(-1, 1, width) ** 2
            top = bottom - tall - 4
            part = picture[max(top, 0) : max(bottom - 4, 0), left : left + width]
            spine = spine[tall - part.shape[0] :, : part.shape[1]]
            part[:] = (spine * shade[None, : part.shape[1], None]).astype(np.uint8)
            left += width + 1
            if random.random() < 0.02:
                left += int(random.integers(0, shelf))
    return picture


def _bricks(random: Random) -> Picture:
    """Draw bricks, tiles or windows."""
    mortar, base = colour(random), colour(random)
    picture = np.full((SIDE, SIDE, 3), mortar, np.uint8)
    height = int(random.integers(8, 60))
    width = int(height * random.uniform(0.7, 3.2))
    shift = width // 2 if random.random() < 0.6 else 0
    gap = max(1, int(height * random.uniform(0.05, 0.4)))
    for row in range(SIDE // height + 1):
        for left in range(-(row % 2) * shift, SIDE, width):
            paint = np.clip(np.asarray(base) + random.integers(-25, 26), 0, 255).tolist()
            corner = (left + width - gap, row * height + height - gap)
            cv2.rectangle(picture, (left, row * height), corner, paint, -1)
    return picture


def _fabric(random: Random) -> Picture:
    rows = np.arange(SIDE)[:, None]
    columns = np.arange(SIDE)[None]
    period = random.uniform(2.5, 18, size=2)
    weave = np.sin(columns * 2 * np.pi / period[0]) * np.sin(rows * 2 * np.pi / period[1])
    noise = random.standard_normal((SIDE, SIDE)) * random.uniform(0, 0.4)
    grey = np.clip(128 + 110 * (weave + noise), 0, 255).astype(np.uint8)
    return tint(_rotated(grey, random.uniform(0, 90)), *ink_and_paper(random))


def _squares(random: Random) -> Picture:
    """Draw nested squares and rings, which resemble finder patterns."""
    ink, paper = ink_and_paper(random)
    picture = np.full((SIDE, SIDE, 3), paper, np.uint8)
    for _ in range(random.integers(2, 14)):
        x, y = (int(v) for v in random.integers(0, SIDE, size=2))
        size = int(random.integers(8, 90))
        is_round = random.random() < 0.4
        for ring in range(int(random.integers(1, 5))):
            paint, inner = (paper if ring % 2 else ink), size - ring * max(size // 5, 2)
            if inner <= 0:
                break
            if is_round:
                cv2.circle(picture, (x, y), inner, paint, -1)
            else:
                cv2.rectangle(picture, (x - inner, y - inner), (x + inner, y + inner), paint, -1)
    return picture


def _pixels(random: Random) -> Picture:
    """Draw a mosaic in many colours or a few greys."""
    count = int(random.integers(5, 40))
    cells = random.integers(0, 256, size=(count, count, 3), dtype=np.uint8)
    if random.random() < 0.5:
        greys = random.integers(0, 256, size=int(random.integers(4, 9)))
        cells = greys[random.integers(len(greys), size=(count, count))].astype(np.uint8)
        cells = np.repeat(cells[..., None], 3, axis=2)
    way = cv2.INTER_NEAREST if random.random() < 0.7 else cv2.INTER_LINEAR
    return cv2.resize(cells, (SIDE, SIDE), interpolation=way)


def _halftone(random: Random) -> Picture:
    """Draw rows of dots, like halftone prints or speaker grilles."""
    ink, paper = ink_and_paper(random)
    picture = np.full((SIDE, SIDE, 3), paper, np.uint8)
    step = int(random.integers(7, 44))
    share = random.choice([1.0, 1.0, 0.85])
    for row, top in enumerate(range(0, SIDE, step)):
        for left in range((row % 2) * step // 2, SIDE, step):
            if random.random() < share:
                radius = max(1, int(step * random.uniform(0.2, 0.35)))
                cv2.circle(picture, (left, top), radius, ink, -1)
    return picture


def _ruler(random: Random) -> Picture:
    """Draw ticks of rulers, piano keys or sheet music."""
    ink, paper = ink_and_paper(random)
    picture = np.full((SIDE, SIDE, 3), paper, np.uint8)
    top = 0
    while top < SIDE:
        height, step = int(random.integers(20, 120)), int(random.integers(4, 20))
        kind = random.integers(3)
        for index, left in enumerate(range(0, SIDE, step)):
            if kind == 0:
                share = 1 if index % 10 == 0 else 2 / 3 if index % 5 == 0 else 1 / 2
                cv2.line(picture, (left, top), (left, top + int(height * share)), ink, 1)
            elif kind == 1 and index % 7 not in (2, 6):
                corner = (left + step // 2, top + height * 2 // 3)
                cv2.rectangle(picture, (left, top), corner, ink, -1)
        if kind == 2:
            for line in range(5):
                at = top + line * height // 6
                cv2.line(picture, (0, at), (SIDE, at), ink, 1)
            for left in range(0, SIDE, 2 * step + 4):
                at = top + int(random.integers(height))
                cv2.ellipse(picture, (left, at), (4, 3), -20, 0, 360, ink, -1)
                cv2.line(picture, (left + 4, at), (left + 4, at - height // 3), ink, 1)
        top += height + int(random.integers(4, 40))
    return picture


# ---------------------------------------------------------------- print and furniture


def _headline(random: Random) -> Picture:
    """Draw a few large words, mostly light on dark, as on signs, screens and packages."""
    paper, ink = ink_and_paper(random)
    if random.random() < 0.3:
        ink, paper = paper, ink
    picture = np.full((SIDE, SIDE, 3), paper, np.uint8)
    top = 0
    while top < SIDE:
        size = float(np.exp(random.uniform(np.log(0.5), np.log(5))))
        font = int(random.choice([0, 2, 3, 4, 5, 16]))
        thick = max(1, int(size * random.uniform(1, 6)))
        top += int(size * 30) + 6
        place = (int(random.integers(-20, SIDE // 3)), top)
        text = " ".join(_word(random) for _ in range(random.integers(1, 4)))
        cv2.putText(picture, text, place, font, size, ink, thick, cv2.LINE_AA)
    return picture


def _files(random: Random) -> Picture:
    """Draw binders, folders or tapes side by side with labels on their backs."""
    picture = np.full((SIDE, SIDE, 3), colour(random, 0, 160), np.uint8)
    is_same = random.random() < 0.5
    width, height = int(random.integers(12, 70)), int(random.integers(90, SIDE))
    back, front = ink_and_paper(random)
    for bottom in range(height, SIDE + height, height + int(random.integers(2, 14))):
        for left in range(0, SIDE, width):
            if not is_same:
                back, front = ink_and_paper(random)
            corner = (left + width - max(1, width // 12), bottom)
            cv2.rectangle(picture, (left, bottom - height), corner, back, -1)
            top = bottom - int(height * random.uniform(0.4, 0.9))
            inner = (left + width // 6, top), (left + width * 5 // 6, top + height // 3)
            cv2.rectangle(picture, *inner, front, -1)
            for at in range(top + 4, top + height // 3, int(random.integers(4, 14))):
                cv2.line(picture, (left + width // 4, at), (left + width * 3 // 4, at), back, 1)
            cv2.circle(picture, (left + width // 2, bottom - height // 10), width // 5, front, 2)
    return picture


def _paisley(random: Random) -> Picture:
    """Draw a repeated tile of drops, rings and dots, like paisley, carpets and wallpaper."""
    side = int(random.integers(24, 150))
    ink, paper = ink_and_paper(random)
    tile = np.full((side, side, 3), paper, np.uint8)
    for _ in range(random.integers(3, 16)):
        centre = tuple(int(v) for v in random.integers(0, side, size=2))
        paint = ink if random.random() < 0.7 else colour(random)
        size = max(2, int(side * random.uniform(0.04, 0.3)))
        for ring in range(int(random.integers(1, 5))):
            axes = max(1, size - ring * 4), max(1, size // 2 - ring * 3)
            turn = random.uniform(0, 180)
            cv2.ellipse(tile, centre, axes, turn, 0, random.uniform(120, 360), paint, 1 + ring % 2)
    if random.random() < 0.5:
        tile = np.hstack([tile, tile[:, ::-1]])
    if random.random() < 0.5:
        tile = np.vstack([tile, tile[::-1]])
    times = (SIDE // tile.shape[0] + 1, SIDE // tile.shape[1] + 1, 1)
    return np.ascontiguousarray(np.tile(tile, times)[:SIDE, :SIDE])


def _portrait(random: Random) -> Picture:
    """Draw a face, sometimes as an engraving of lines or dots, as on banknotes and stamps."""
    picture = clouds(random)
    skin = np.array((150, 180, 230)) * random.uniform(0.35, 1.1)
    dark = (skin * random.uniform(0.1, 0.5)).tolist()
    x, y = (int(v) for v in random.integers(SIDE // 3, SIDE * 2 // 3, size=2))
    size = int(random.integers(60, 170))
    coat = (x, y + 2 * size), (size * 3 // 2, size)
    cv2.ellipse(picture, *coat, 0, 0, 360, colour(random), -1)
    cv2.ellipse(picture, (x, y - size // 5), (size * 9 // 10, size), 0, 0, 360, dark, -1)
    cv2.ellipse(picture, (x, y), (size * 3 // 4, size), 0, 0, 360, skin.clip(0, 255).tolist(), -1)
    for side in (-1, 1):
        eye = x + side * size // 3, y - size // 6
        cv2.ellipse(picture, eye, (size // 6, size // 12), 0, 0, 360, (240, 240, 240), -1)
        cv2.circle(picture, eye, max(2, size // 14), dark, -1)
        ends = ((eye[0] + way * size // 6, eye[1] - size // 6) for way in (-1, 1))
        cv2.line(picture, *ends, dark, 4)
    cv2.ellipse(picture, (x, y + size // 2), (size // 3, size // 10), 0, 0, 180, (60, 50, 150), -1)
    picture = cv2.GaussianBlur(picture, (0, 0), size / 40)
    if random.random() < 0.5:
        return picture
    step = random.uniform(3, 12)
    angle = random.uniform(0, np.pi)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    wave = np.sin((columns * np.cos(angle) + rows * np.sin(angle)) * 2 * np.pi / step)
    if random.random() < 0.4:
        wave = (
            wave + np.sin((rows * np.cos(angle) - columns * np.sin(angle)) * 2 * np.pi / step)
        ) / 2
    grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
    lines = np.where(grey > 127 + 110 * wave, 255, 0).astype(np.uint8)
    return tint(cv2.GaussianBlur(lines, (0, 0), 0.7), *ink_and_paper(random))


def _window(random: Random) -> Picture:
    """Draw a program's window with icons, lists and charts."""
    ink, paper = ink_and_paper(random)
    picture = np.full((SIDE, SIDE, 3), paper, np.uint8)
    for _ in range(random.integers(2, 9)):
        x, y = (int(v) for v in random.integers(0, SIDE - 60, size=2))
        width, height = (int(v) for v in random.integers(40, 300, size=2))
        cv2.rectangle(picture, (x, y), (x + width, y + height), colour(random, 120), -1)
        cv2.rectangle(picture, (x, y), (x + width, y + height), ink, 1)
        step = int(random.integers(8, 40))
        kind = random.integers(3)
        for at in range(step, height, step):
            if kind == 0:
                text = " ".join(_word(random) for _ in range(3))
                cv2.putText(
                    picture, text, (x + 4, y + at), cv2.FONT_HERSHEY_SIMPLEX, step / 34, ink, 1
                )
            elif kind == 1:
                for across in range(0, width - step, step):
                    corner = (x + across + step * 2 // 3, y + at + step * 2 // 3)
                    cv2.rectangle(picture, (x + across, y + at), corner, colour(random), -1)
        if kind == 2:
            for across in range(0, width - step, step):
                top = y + height - int(random.integers(1, height))
                corner = (x + across + step // 2, y + height)
                cv2.rectangle(picture, (x + across, top), corner, colour(random), -1)
    return picture


# ---------------------------------------------------------------- surfaces


def clouds(random: Random) -> Picture:
    """Draw smooth blobs of similar colours, like walls, floors or blurred rooms."""
    count = int(random.choice([2, 3, 5, 9, 20]))
    base = np.asarray(colour(random, 30, 240))
    cells = base + random.normal(0, random.choice([4, 15, 50]), size=(count, count, 3))
    cells = np.clip(cells, 0, 255).astype(np.float32)
    picture = cv2.resize(cells, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    return _grained(random, picture)


def _grained(random: Random, picture: NDArray[np.float32]) -> Picture:
    grain = random.standard_normal((SIDE, SIDE, 1), dtype=np.float32)
    sigma = random.choice([0, 0.7, 2.0])
    if sigma:
        grain = cv2.GaussianBlur(grain, (0, 0), sigma)[..., None] * sigma * 2
    strength = random.choice([0, 2, 6, 14])
    return np.clip(picture + grain * strength, 0, 255).astype(np.uint8)


def _wood(random: Random) -> Picture:
    rows = random.standard_normal((int(random.integers(20, 200)), 6, 1)).astype(np.float32)
    grain = cv2.resize(rows, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)[..., None]
    if random.random() < 0.5:
        grain = grain.transpose(1, 0, 2)
    base = np.asarray(colour(random, 60, 220)) * (0.75, 0.9, 1.05)
    return _grained(random, (base + grain * random.uniform(4, 20)).astype(np.float32))


def _shapes(random: Random) -> Picture:
    """Draw overlapping coloured shapes, like packages or posters."""
    picture = clouds(random)
    for _ in range(random.integers(3, 22)):
        x, y = (int(v) for v in random.integers(0, SIDE, size=2))
        width, height = (int(v) for v in random.integers(10, 240, size=2))
        paint = colour(random)
        if random.random() < 0.6:
            box = cv2.boxPoints(((x, y), (width, height), random.uniform(0, 90)))
            cv2.fillConvexPoly(picture, box.astype(np.int32), paint)
        else:
            cv2.ellipse(picture, (x, y), (width // 2, height // 2), 0, 0, 360, paint, -1)
    if random.random() < 0.5:
        picture = cv2.GaussianBlur(picture, (0, 0), random.uniform(0.5, 6))
    return picture


SURFACES: tuple[Callable[[Random], Picture], ...] = (clouds, clouds, _wood, _shapes, _shapes)
DISTRACTORS: tuple[Callable[[Random], Picture], ...] = (
    _page,
    _checkerboard,
    _crossword,
    _table,
    _keyboard,
    _keyboard,
    stripes,
    stripes,
    _fence,
    _bookshelf,
    _bricks,
    _fabric,
    _squares,
    _pixels,
    _halftone,
    _ruler,
    _headline,
    _headline,
    _files,
    _paisley,
    _portrait,
    _window,
)
