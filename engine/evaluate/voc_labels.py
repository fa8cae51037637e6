"""Read Pascal VOC's annotations, one XML file per picture.

An object covers the pixel columns xmin to xmax, counted from 1, so its edges are at xmin - 1 and
xmax. The same holds for rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from engine.errors import InputError, suggest
from engine.evaluate.examples import Objects
from engine.evaluate.ground_truth import size_problem
from engine.evaluate.text_files import read_text
from engine.files.naming import shown

_MAX_COORDINATE = 1e9
_EDGES = ("xmin", "ymin", "xmax", "ymax")


def read(path: Path, size: tuple[int, int], names: Sequence[str], problems: list[str]) -> Objects:
    """Read the objects of an annotation; invalid ones are skipped and reported in `problems`.

    A `size` that differs from the labelled one is reported, too.
    """
    boxes, class_ids, difficult = [], [], []
    numbers = {name: number for number, name in reversed(list(enumerate(names)))}
    tree = _tree(path)
    if labelled := _other_size(tree, size):
        problems.append(size_problem(shown(str(path)), labelled, size))
    for number, element in enumerate(tree.iter("object"), start=1):
        try:
            class_id = _class_id(element, numbers)
            box = _box(element)
        except InputError as error:
            problems.append(f"{shown(str(path))}: object {number}: {error}")
            continue
        boxes.append(box)
        class_ids.append(class_id)
        difficult.append((element.findtext("difficult") or "0").strip() not in ("0", ""))
    return Objects.of(boxes, class_ids, optional=difficult)


def _tree(path: Path) -> ElementTree.Element:
    text = read_text(path)
    name = shown(str(path))
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError(f"{name}: expected an annotation, got XML with declarations")
    try:
        tree = ElementTree.fromstring(text.encode("utf-8", "surrogateescape"))
    except ElementTree.ParseError as error:
        raise InputError(f"{name}:{error.position[0]}: is not XML: {error}") from None
    except (ValueError, LookupError) as error:  # an unknown encoding
        raise InputError(f"{name}: is not XML: {error}") from None
    if tree.tag.lower() != "annotation":
        hint = ". It has a namespace: leave xmlns out" if tree.tag.startswith("{") else ""
        raise InputError(f"{name}: expected <annotation>, got <{shown(tree.tag[:60])}>{hint}")
    return tree


def _other_size(tree: ElementTree.Element, size: tuple[int, int]) -> tuple[float, float] | None:
    """Return the size stated in an annotation if it differs, or None.

    A size that is not a positive number counts as unknown.
    """
    try:
        width, height = (float(tree.findtext(f"size/{side}") or 0) for side in ("width", "height"))
    except ValueError:
        return None
    is_known = 0 < width < math.inf and 0 < height < math.inf  # fails for NaN
    return (width, height) if is_known and (width, height) != size else None


def _class_id(element: ElementTree.Element, numbers: dict[str, int]) -> int:
    name = (element.findtext("name") or "").strip()
    if name not in numbers:
        raise InputError(f"name: no class is called {name[:60]!r}.{suggest(name, numbers)}")
    return numbers[name]


def _box(element: ElementTree.Element) -> tuple[float, float, float, float]:
    texts = [(element.findtext(f"bndbox/{edge}") or "").strip() for edge in _EDGES]
    try:
        left, top, right, bottom = map(float, texts)
    except ValueError:
        raise InputError(f"bndbox: expected four numbers, got {', '.join(texts)[:60]!r}") from None
    if not all(
        abs(edge) <= _MAX_COORDINATE for edge in (left, top, right, bottom)
    ):  # fails for NaN
        raise InputError(f"bndbox: expected numbers of pixels, got {', '.join(texts)[:60]!r}")
    width, height = right - left + 1, bottom - top + 1
    if width <= 0 or height <= 0:
        raise InputError(f"bndbox: has no area: {width:g} x {height:g}")
    return left - 1, top - 1, width, height
