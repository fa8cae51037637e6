"""Encode pictures in the format given by a file's extension."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from engine.errors import InputError
from engine.files.naming import shown

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_MAX_SIDES = {"JPEG": 65500, "WEBP": 16383, "GIF": 65535}


def encode(image: Image.Image, path: str | Path) -> bytes:
    name = shown(str(path))
    kind = format_of(path)
    if kind is None:
        raise InputError(
            f"{name}: expected a name that ends in .jpg, .png, .webp, .bmp, .gif,"
            f" .tif or .ppm, got {Path(path).suffix!r}"
        )
    if not fits(image.size, path):
        limit = f"expected at most {_MAX_SIDES[kind]} pixels a side"
        got = f"got {image.width} x {image.height}"
        raise InputError(f"{name}: cannot be written as {kind}: {limit}, {got}")
    buffer = io.BytesIO()
    try:
        # Pillow takes these from `info` only for some formats, and ignores them where unsupported.
        options = {key: image.info[key] for key in ("icc_profile", "dpi") if key in image.info}
        image.save(buffer, kind, **options, **({"quality": 92} if kind == "JPEG" else {}))
    except (OSError, ValueError) as error:  # for example, Pillow was built without the format
        raise InputError(f"{name}: cannot be written as {kind}: {error}") from error
    return buffer.getvalue()


def fits(size: tuple[int, int], path: str | Path) -> bool:
    """Return whether the format of a file name can hold pictures of this size."""
    limit = _MAX_SIDES.get(format_of(path) or "")
    return limit is None or max(size) <= limit


def format_of(path: str | Path) -> str | None:
    """Return the format of an extension, or None if it is not supported."""
    kind = Image.registered_extensions().get(Path(path).suffix.lower())
    return kind if kind in _FORMATS else None
