"""Collect pictures without codes, as backgrounds of scenes and as pictures of nothing else.

A detector trained only on drawn surfaces mistakes hedges, fur, facades and words for codes. Free
photographs are in the Debian packages gcompris-qt-data, gnome-backgrounds, mate-backgrounds,
plasma-workspace-wallpapers, lomiri-wallpapers-20.04, ukui-wallpapers, ufoai-textures, scratch,
supertuxkart-data, tuxpaint-stamps-default, openarena-081-textures, megaglest-data, stellarium-data,
trigger-rally-data and extremetuxracer-data, in scikit-image, scikit-learn and matplotlib, and in
the repositories GroceryStoreDataset, raccoon_dataset, jetson-inference, material-kit, now-ui-kit,
paper-kit-2 and cognitive-services-sample-data-files (all MIT). The drawings of openclipart-png
(public domain) are look-alikes: logos, ornaments, portraits, signs. So are words and buttons: with
--pages the screenshots, figures and scores in gimp-help-en, kicad-doc-en, grass-doc, lilypond-doc,
qtcreator-doc, gnucash-docs, qtbase5-doc-html, kalzium-data, sagemath-doc and others are taken.

    python tools/codes/photographs.py --output PHOTOS FOLDER… --drawings FOLDER --skip code

zxing-cpp refuses what it can read. Look at the others in which a barcode is found: some are codes.
"""

from __future__ import annotations

import argparse
import io
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_REPOSITORY))

import numpy as np  # noqa: E402
import zxingcpp  # noqa: E402
from PIL import Image, UnidentifiedImageError  # noqa: E402

import engine  # noqa: E402

_MAX_SIDE = 1024
_MIN_SIDE = 220
_MAX_FILE_BYTES = 64 << 20
_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
_ZIPS = {".pk3", ".zip"}
_MAX_FLAT = 0.5  # share of equal neighbours; drawings have more
_MAX_TRANSPARENT = 0.02  # share of pixels; cut-outs have more
_MIN_CONTRAST = 12.0
_PART = 560  # pixels of a page
_QUALITY = 72
_MISTAKEN = 0.15  # score of a box; at it a picture is stored three times, at twice it four times
_SIGNATURES = (b"RIFF", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, required=True, help="a folder")
    parser.add_argument("--drawings", type=Path, nargs="*", default=[], help="folders of drawings")
    parser.add_argument("--pages", type=Path, nargs="*", default=[], help="folders of documents")
    parser.add_argument("--skip", nargs="*", default=[], help="skip names that contain these")
    parser.add_argument("--most", type=int, default=400, help="at most per package")
    parser.add_argument("--side", type=int, default=_MAX_SIDE, help="the longest, in pixels")
    parser.add_argument(
        "--repeat", action="store_true", help="store what is mistaken for codes several times"
    )
    options = parser.parse_args()
    for folder in (*options.folders, *options.drawings, *options.pages):
        if not folder.is_dir():
            parser.error(f"{folder}: no such folder")
    options.output.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    seen: set[bytes] = set()
    store = _Store(options.output, options.side, repeats=options.repeat)
    for folder in options.folders:
        kept: list[Image.Image] = []
        cut_outs: list[Image.Image] = []
        for picture in _pictures(folder, options.skip, seen):
            transparent = _transparent_share(picture)
            if 0.1 < transparent < 0.8:
                cut_outs.append(picture)
            elif transparent < _MAX_TRANSPARENT and _is_photograph(picture):
                kept.append(picture.convert("RGB"))
        kept += _collages(random, cut_outs)
        if len(kept) > options.most:
            chosen = random.choice(len(kept), options.most, replace=False)
            kept = [kept[index] for index in sorted(chosen)]
        store.add(kept, folder)
    for folder in options.drawings:
        names = random.permutation([path for path in folder.rglob("*.png") if path.is_file()])
        kept = []
        for path in names:
            if len(kept) < options.most and not any(part in path.name for part in options.skip):
                drawing = _drawing(random, path.read_bytes())
                kept += [drawing] if drawing else []
        store.add(kept, folder)
    for folder in options.pages:
        pages = (_page(random, picture) for picture in _pictures(folder, options.skip, seen))
        store.add(_sample(random, filter(None, pages), options.most), folder)
    return 0


class _Store:
    """The folder of results; what the bundled model mistakes for codes may be in it repeatedly."""

    def __init__(self, folder: Path, side: int, *, repeats: bool) -> None:
        self._folder, self._side, self._count = folder, side, 0
        self._model = engine.load("codes") if repeats else None

    def add(self, pictures: list[Image.Image], source: Path) -> None:
        for picture in pictures:
            picture.thumbnail((self._side, self._side))
            for _ in range(self._copies(picture)):
                picture.save(self._folder / f"{self._count:05}.jpg", quality=_QUALITY)
                self._count += 1
        print(len(pictures), source)

    def _copies(self, picture: Image.Image) -> int:
        found = self._model(picture, threshold=_MISTAKEN) if self._model else ()
        best = max((each.score for each in found), default=0.0)
        return 4 if best >= 2 * _MISTAKEN else 3 if best else 1


def _page(random: np.random.Generator, picture: Image.Image) -> Image.Image | None:
    """Return a page or, most of the time, a part of it in its own size; None if that is empty."""
    page = _on_paper(picture, (255, 255, 255))
    if max(page.size) > _PART and random.random() < 0.6:
        width, height = (min(edge, _PART) for edge in page.size)
        left = int(random.integers(page.width - width + 1))
        top = int(random.integers(page.height - height + 1))
        page = page.crop((left, top, left + width, top + height))
    return page if _is_used(page) and max(page.size) <= 3 * min(page.size) else None


def _sample(
    random: np.random.Generator, pictures: Iterable[Image.Image], most: int
) -> list[Image.Image]:
    """Return pictures that are equally likely, without keeping all of them in memory."""
    kept: list[Image.Image] = []
    for index, picture in enumerate(pictures):
        if index < most:
            kept.append(picture)
        elif (place := int(random.integers(index + 1))) < most:
            kept[place] = picture
    return kept


def _on_paper(picture: Image.Image, paper: tuple[int, ...]) -> Image.Image:
    sheet = Image.new("RGB", picture.size, paper)
    sheet.paste(picture.convert("RGB"), (0, 0), picture.getchannel("A"))
    return sheet


def _is_used(sheet: Image.Image) -> bool:
    """Return whether there is contrast and no readable code."""
    pixels = np.asarray(sheet)
    return bool(pixels.std() >= _MIN_CONTRAST) and not zxingcpp.read_barcodes(pixels)


def _drawing(random: np.random.Generator, contents: bytes) -> Image.Image | None:
    """Return a drawing on white or coloured paper; None without contrast or with a code."""
    drawing = _open(contents)
    if drawing is None:
        return None
    is_white = random.random() < 0.75
    paper = (255, 255, 255) if is_white else tuple(int(v) for v in random.integers(0, 256, size=3))
    sheet = _on_paper(drawing, paper)
    return sheet if _is_used(sheet) else None


def _pictures(folder: Path, skip: list[str], seen: set[bytes]) -> Iterator[Image.Image]:
    """Yield the pictures of a folder that are large enough, each once."""
    for name, contents in _files(folder):
        picture = None if any(part in name for part in skip) else _open(contents)
        if picture and not _is_duplicate(picture, seen):
            yield picture


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield picture files, also those in zip files and uncompressed ones in Qt resource files."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
        suffix = path.suffix.lower()
        if suffix in _SUFFIXES and path.stat().st_size < _MAX_FILE_BYTES:
            yield path.name, path.read_bytes()
        elif suffix in _ZIPS:
            yield from _zipped_files(path)
        elif suffix == ".rcc":
            yield from _resource_pictures(path)


def _zipped_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the picture files of a zip file until one cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            for file in sorted(archive.infolist(), key=lambda each: each.filename):
                is_picture = Path(file.filename).suffix.lower() in _SUFFIXES
                if is_picture and file.file_size < _MAX_FILE_BYTES:
                    yield file.filename, archive.read(file)
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as error:
        print(f"{path}: cannot be read: {error}", file=sys.stderr)


def _resource_pictures(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the pictures of a Qt resource file, each of which follows its big-endian length."""
    contents = path.read_bytes()
    for signature in _SIGNATURES:
        at = contents.find(signature, 4)
        while at >= 0:
            length = int.from_bytes(contents[at - 4 : at], "big")
            if 1000 < length <= len(contents) - at:
                yield f"{path.stem}-{at}", contents[at : at + length]
            at = contents.find(signature, at + 4)


def _open(contents: bytes) -> Image.Image | None:
    """Return an RGBA picture of at most _MAX_SIDE pixels; None for small or other files."""
    try:
        picture: Image.Image = Image.open(io.BytesIO(contents))
        if min(picture.size) < _MIN_SIDE:
            return None
        picture = picture.convert("RGBA")
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        return None  # not a picture, or a huge one
    picture.thumbnail((_MAX_SIDE, _MAX_SIDE))
    return picture


def _is_duplicate(picture: Image.Image, seen: set[bytes]) -> bool:
    small = np.asarray(picture.convert("L").resize((12, 12))) // 16
    key = small.tobytes()
    known = key in seen
    seen.add(key)
    return known


def _transparent_share(picture: Image.Image) -> float:
    return float((np.asarray(picture)[..., 3] < 250).mean())


def _is_photograph(picture: Image.Image) -> bool:
    """Return whether the picture has contrast, is no drawing and contains no readable code."""
    sheet = picture.convert("RGB")
    flat = (np.diff(np.asarray(sheet).astype(np.int16), axis=1) == 0).all(axis=2).mean()
    return bool(flat <= _MAX_FLAT) and _is_used(sheet)


def _collages(random: np.random.Generator, cut_outs: list[Image.Image]) -> list[Image.Image]:
    """Paste six cut-outs each on a plain background."""
    sheets = []
    for first in range(0, len(cut_outs) - 5, 6):
        shade = tuple(int(value) for value in random.integers(40, 240, size=3))
        sheet = Image.new("RGB", (_MAX_SIDE, _MAX_SIDE), shade)
        for picture in cut_outs[first : first + 6]:
            share = random.uniform(0.25, 0.7) * _MAX_SIDE / max(picture.size)
            size = tuple(max(1, int(edge * share)) for edge in picture.size)
            scaled = picture.resize((size[0], size[1])).rotate(random.uniform(-25, 25), expand=True)
            at = random.integers(-60, _MAX_SIDE - 140, size=2)
            sheet.paste(scaled.convert("RGB"), (int(at[0]), int(at[1])), scaled.getchannel("A"))
        sheets.append(sheet)
    return sheets


if __name__ == "__main__":
    sys.exit(main())
