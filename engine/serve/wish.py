"""What a request asks for: settings in its address, the form of the answer in its Accept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from engine.errors import InputError, suggest
from engine.serve.refusal import RefusedError
from engine.settings import Settings
from engine.vision.classes import known_as, numbers_of
from engine.vision.naming import shown

Form: TypeAlias = Literal["json", "jpeg", "png"]

FORMS: dict[str, Form] = {
    "application/json": "json",
    "image/jpeg": "jpeg",
    "image/png": "png",
}
OF_BOXES = ("threshold", "nms", "classes", "max_detections")
OF_CLASSES = ("top_k",)


@dataclass(frozen=True)
class Wish:
    settings: Settings
    form: Form


def read(
    parameters: Sequence[tuple[str, str]],
    accept: str | None,
    *,
    usual: Settings,
    labels: Sequence[str],
    has_boxes: bool,
) -> Wish:
    """`parameters` are those of the address, `usual` what goes without them."""
    known = OF_BOXES if has_boxes else OF_CLASSES
    chosen: dict[str, Any] = {}
    for key, text in parameters:
        name = key.replace("-", "_")
        if name not in known:
            expected = ", ".join(known)
            raise InputError(f"{shown(key)}: expected {expected}.{suggest(name, known)}")
        if name in chosen:
            raise InputError(f"{key}: expected once, got twice")
        chosen[name] = _classes(text, labels) if name == "classes" else _number(name, text)
    forms = FORMS if has_boxes else {"application/json": FORMS["application/json"]}
    return Wish(replace(usual, **chosen) if chosen else usual, form_of(accept, forms))


def form_of(accept: str | None, forms: dict[str, Form]) -> Form:
    """The form that a client likes best; of two that it likes equally, the first here."""
    ranges = [_media_range(each) for each in (accept or "*/*").split(",") if each.strip()]
    quality, best = max(
        ((_quality(kind, ranges), form) for kind, form in forms.items()), key=lambda each: each[0]
    )
    if quality <= 0:
        raise RefusedError(
            406, f"Accept: expected {' or '.join(forms)}, got {shown(str(accept))!r}"
        )
    return best


def _media_range(text: str) -> tuple[str, float]:
    kind, *parameters = (part.strip().lower() for part in text.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return kind, float(value)
            except ValueError:
                return kind, 0.0
    return kind, 1.0


def _quality(kind: str, ranges: Iterable[tuple[str, float]]) -> float:
    """The most precise range that covers `kind` counts."""
    covering = (kind, kind.partition("/")[0] + "/*", "*/*")
    found = [(covering.index(each), quality) for each, quality in ranges if each in covering]
    return min(found)[1] if found else 0.0


def _number(name: str, text: str) -> float | int:
    kind: Callable[[str], float | int] = float if name in ("threshold", "nms") else int
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{name}: expected a number, got {text[:40]!r}") from None


def _classes(text: str, labels: Sequence[str]) -> tuple[int, ...]:
    """The numbers of "cat,3"."""
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if not entries:
        raise InputError("classes: expected at least one, got none")
    numbers = numbers_of([known_as(each) for each in entries], labels)
    for number in numbers:
        if number >= len(labels):
            raise InputError(f"classes: expected a number below {len(labels)}, got {number}")
    return tuple(sorted(set(numbers)))
