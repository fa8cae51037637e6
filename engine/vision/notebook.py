"""Results as notebooks show them: a picture with boxes, and a table."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

from engine.files.naming import escaped, shown_text

if TYPE_CHECKING:
    from PIL import Image

    from engine.vision.detection import Detection

_MAX_SIDE = 1024  # pixels; a notebook stores every picture that it shows
_MAX_ROWS = 20


def png(image: Image.Image) -> bytes:
    """Return a picture as a PNG of at most 1024 pixels a side."""
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def html(title: str, found: Iterable[Detection], picture: bytes | None) -> str:
    """Return the picture, if there is one, above a table of the detections."""
    from html import escape  # slow to import, and rarely needed

    detections = list(found)
    has_texts = any(each.text is not None for each in detections)
    rows = [
        f"<tr><td>{escape(escaped(each.label))}</td><td>{each.score:.3f}</td>"
        + "".join(f"<td>{edge:.0f}</td>" for edge in each.box)
        + (f"<td>{escape(shown_text(each.text or ''))}</td>" if has_texts else "")
        + "</tr>"
        for each in detections[:_MAX_ROWS]
    ]
    if len(detections) > _MAX_ROWS:
        rows.append(
            f"<tr><td colspan={6 + has_texts}>… {len(detections) - _MAX_ROWS} more</td></tr>"
        )
    image = ""
    if picture is not None:
        data = base64.b64encode(picture).decode("ascii")
        image = f'<img src="data:image/png;base64,{data}" style="max-width:100%"/>'
    columns = ("label", "score", "left", "top", "right", "bottom", *["text"] * has_texts)
    heading = "".join(f"<th>{column}</th>" for column in columns)
    table = f"<table><tr>{heading}</tr>{''.join(rows)}</table>" if rows else ""
    return f"<div><p>{escape(title)}</p>{image}{table}</div>"
