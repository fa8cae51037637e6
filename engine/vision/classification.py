"""The result of a classifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from engine.arrays import Floats
from engine.files.naming import name_and_size, shown
from engine.files.stamp import Stamp
from engine.vision import serialize
from engine.vision.frame import Frame
from engine.vision.image import Picture


class Ranked(NamedTuple):
    """A class and its probability."""

    label: str
    score: float
    class_id: int


@dataclass(frozen=True, eq=False, repr=False)
class Classification:
    """The class probabilities of one picture; as a sequence, its `top_k` best classes.

    Examples:
        >>> classifier = engine.load("classifier.cfg", "classifier.weights", "classifier.names")
        >>> best = classifier.classify("dog.jpg")[0]
        >>> 0 <= best.score <= 1
        True
    """

    size: tuple[int, int]  # width, height of the upright picture
    probabilities: Floats  # (classes,)
    names: Sequence[str] = ()
    path: str | None = None
    timing: Mapping[str, float] = field(default_factory=dict)  # milliseconds of each stage
    top_k: int = 5
    frame: Frame | None = None  # if `path` is a video
    stamp: Stamp | None = field(default=None, repr=False)  # stamp of the file `path`
    picture: Picture | None = field(default=None, repr=False)  # if it was requested

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "picture": None}  # keeps pickles small, as in Result

    def top(self, count: int | None = None) -> list[Ranked]:
        """Return the best classes by descending score, then by class id."""
        count = self.top_k if count is None else max(0, count)
        best = np.argsort(-self.probabilities, kind="stable")[:count]
        return [
            Ranked(self.label_of(each), float(self.probabilities[each]), each)
            for each in best.tolist()
        ]

    def label_of(self, class_id: int) -> str:
        """Return the name of a class, or its number if it has none."""
        return self.names[class_id] if 0 <= class_id < len(self.names) else str(class_id)

    def __str__(self) -> str:
        """Return one line, such as: street.jpg, 640 x 480: dog 0.812, cat 0.101."""
        best = ", ".join(f"{shown(each.label)} {each.score:.3f}" for each in self)
        return f"{name_and_size(self.path, self.size)}: {best}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def __len__(self) -> int:
        return min(self.top_k, len(self.probabilities))

    def __iter__(self) -> Iterator[Ranked]:
        return iter(self.top())

    def __getitem__(self, index: int) -> Ranked:
        return self.top()[index]

    def to_dict(self) -> dict[str, Any]:
        """Return the best classes as JSON values."""
        width, height = self.size
        return {
            "schema_version": serialize.SCHEMA_VERSION,
            "path": self.path,
            "width": width,
            "height": height,
            "classes": [
                {
                    "class_id": each.class_id,
                    "label": each.label,
                    "score": serialize.json_number(serialize.score(each.score)),
                }
                for each in self
            ],
            "timing_ms": {
                name: serialize.milliseconds(value) for name, value in self.timing.items()
            },
            **serialize.frame_entry(self.frame),
        }

    def to_json(self) -> str:
        return serialize.json_text(self.to_dict())
