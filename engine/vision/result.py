"""What was found in a picture: Result of a detector, Classification of a classifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from engine import extras
from engine.errors import ImageError, InputError, suggest
from engine.vision import written
from engine.vision.boxes import Boxes
from engine.vision.classes import numbers_of
from engine.vision.image import Picture, Source, read
from engine.vision.naming import shown
from engine.vision.new_file import write_new

if TYPE_CHECKING:
    from PIL import Image

Array = NDArray[Any]


class Box(NamedTuple):
    """Edges in pixels of the picture; they may lie outside it, as darknet's do."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    def clipped(self, width: float, height: float) -> Box:
        """The part inside a picture; of no width or height when it lies outside."""
        left, right = (min(max(x, 0.0), float(width)) for x in (self.left, self.right))
        top, bottom = (min(max(y, 0.0), float(height)) for y in (self.top, self.bottom))
        return Box(left, top, right, bottom)


@dataclass(frozen=True)
class Detection:
    label: str
    class_id: int
    score: float
    box: Box


_COLUMNS = {"xywhn": "xywh", "scores": "scores", "class_ids": "class_ids"}  # of Boxes


@dataclass(frozen=True, eq=False)
class Result:
    """Boxes of one picture, the best score first.

    Small and picklable: pixels are not held unless the detector was asked to keep the picture, and
    never pickled. plot(), save() and crops() use the picture given to them, else the kept one, else
    read `path` again.
    """

    size: tuple[int, int]  # width, height of the upright picture
    xywhn: Array  # (n, 4) float32: centre and size relative to the picture, as darknet computes
    scores: Array  # (n,) float32
    class_ids: Array  # (n,) int64
    names: Sequence[str] = ()
    path: str | None = None
    timing: Mapping[str, float] = field(default_factory=dict)  # milliseconds of each stage
    oriented: bool = True  # whether the EXIF orientation was applied
    picture: Picture | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        boxes: Boxes,
        picture: Picture,
        *,
        names: Sequence[str] = (),
        timing: Mapping[str, float] | None = None,
        oriented: bool = True,
        keep_picture: bool = False,
    ) -> Result:
        """Return what `boxes` of `picture` say; their columns are made when they are asked for."""
        made = cls.__new__(cls)
        own = made.__dict__  # past what a frozen class asks for each: thousands in a second
        own["size"] = picture.size
        own["names"] = names
        own["path"] = picture.path
        own["timing"] = timing or {}
        own["oriented"] = oriented
        own["picture"] = picture if keep_picture else None
        own["_boxes"] = boxes
        return made

    if not TYPE_CHECKING:  # who checks types is to hear of a name that there is not

        def __getattr__(self, name: str) -> Array:
            """A column that nobody has asked for before."""
            boxes = self.__dict__.get("_boxes")
            if boxes is None or name not in _COLUMNS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return self.__dict__.setdefault(name, getattr(boxes, _COLUMNS[name]))

    # ------------------------------------------------------------ boxes in other terms

    @property
    def boxes(self) -> Array:
        """(n, 4) float32: left, top, right, bottom in pixels of the picture, not clipped to it."""
        return self._edges(self.size)

    @property
    def xyxyn(self) -> Array:
        """(n, 4) float32: left, top, right, bottom relative to the picture."""
        return self._edges((1, 1))

    @property
    def xywh(self) -> Array:
        """(n, 4) float32: centre and size in pixels of the picture."""
        return np.asarray(self.xywhn * np.tile(self.size, 2), np.float32)

    @property
    def labels(self) -> list[str]:
        return [self.label_of(each) for each in self.class_ids.tolist()]

    def label_of(self, class_id: int) -> str:
        """A class without a name is called by its number."""
        return self.names[class_id] if class_id < len(self.names) else str(class_id)

    def _edges(self, size: tuple[int, int]) -> Array:
        centre, half = self.xywhn[:, :2].astype(np.float64), self.xywhn[:, 2:] / 2.0
        edges = np.concatenate([centre - half, centre + half], axis=1)
        return np.asarray(edges * (*size, *size), np.float32)

    def __str__(self) -> str:
        """One line, such as: street.jpg, 640 x 480: 2 dog, 1 cat."""
        counts = Counter(self.labels).most_common()
        found = ", ".join(f"{count} {shown(label)}" for label, count in counts)
        return f"{_about(self.path, self.size)}: {found or 'nothing found'}"

    # ------------------------------------------------------------ as a sequence

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[Detection]:
        columns = zip(
            self.class_ids.tolist(), self.scores.tolist(), self.boxes.tolist(), strict=True
        )
        for class_id, score, edges in columns:
            yield Detection(self.label_of(class_id), class_id, score, Box(*edges))

    @overload
    def __getitem__(self, which: int) -> Detection: ...

    @overload
    def __getitem__(self, which: slice | Array | Sequence[int]) -> Result: ...

    def __getitem__(self, which: Any) -> Detection | Result:
        """One detection by its number; a Result by a slice, a mask or a list of numbers."""
        if isinstance(which, (int, np.integer)):
            row = range(len(self))[which]
            return next(iter(self[row : row + 1]))
        rows = which if isinstance(which, slice) else np.asarray(which)
        if isinstance(rows, np.ndarray) and rows.size == 0:
            rows = rows.astype(np.int64)
        return replace(
            self,
            xywhn=self.xywhn[rows],
            scores=self.scores[rows],
            class_ids=self.class_ids[rows],
        )

    def filter(
        self,
        *,
        classes: Collection[str | int] | None = None,
        exclude: Collection[str | int] | None = None,
        min_score: float = 0.0,
    ) -> Result:
        """Return the detections of some classes, by name or number, with at least `min_score`."""
        keep = self.scores >= min_score
        if classes is not None:
            keep &= np.isin(self.class_ids, numbers_of(classes, self.names))
        return self[keep & ~np.isin(self.class_ids, numbers_of(exclude, self.names))]

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"picture": None}

    # ------------------------------------------------------------ as text

    def to_dict(self) -> dict[str, Any]:
        """The detections as JSON would hold them; `schema_version` says which keys there are."""
        return written.engine_entry(self)

    def to_json(self, style: Literal["engine", "darknet", "coco"] = "engine") -> str:
        """One picture's part of a document; see engine.vision.written for whole ones."""
        if style == "engine":
            return written.document(self.to_dict())
        if style == "darknet":
            return written.darknet_entry(self)
        if style == "coco":
            return written.document(written.coco_entries(self))
        hint = suggest(style, ("engine", "darknet", "coco"))
        raise InputError(f"style: expected engine, darknet or coco, got {style!r}.{hint}")

    def to_yolo(self, *, conf: bool = False) -> str:
        """Lines of a YOLO label file, clipped to the picture."""
        return written.yolo_labels(self, conf=conf)

    def to_csv(self) -> list[tuple[object, ...]]:
        """Rows for csv.writer; written.CSV_COLUMNS are their headings."""
        return written.csv_rows(self)

    def to_coco(
        self, image_id: int | str | None = None, categories: Sequence[int] | None = None
    ) -> list[dict[str, Any]]:
        """COCO's detection results, as pycocotools' loadRes takes them in a list.

        Without an image_id the file's name gives it; `categories` are the numbers of the classes,
        by default COCO's own for its 80 classes, else 1, 2, ….
        """
        return written.coco_entries(self, image_id, categories)

    def to_supervision(self) -> Any:
        """supervision.Detections, with the labels in data["class_name"]."""
        try:
            from supervision import Detections
        except ImportError:
            raise InputError(
                f"supervision: is not installed. Run: {extras.command('supervision')}"
            ) from None
        return Detections(
            xyxy=self.boxes,
            confidence=self.scores,
            class_id=self.class_ids,
            data={"class_name": np.array(self.labels, dtype=str)},
        )

    # ------------------------------------------------------------ as pictures

    def plot(
        self,
        picture: Source | None = None,
        *,
        show_labels: bool = True,
        show_scores: bool = True,
        line_width: int | None = None,
    ) -> Image.Image:
        """Return the picture with boxes and labels, one label for all classes of a box."""
        from engine.vision.draw import annotate  # fonts take long, and few need them

        found_in: dict[Box, list[Detection]] = {}
        for found in self:
            found_in.setdefault(found.box, []).append(found)
        captions = [
            ", ".join(_caption(each, label=show_labels, score=show_scores) for each in group)
            for group in found_in.values()
        ]
        return annotate(
            self._picture(picture).to_image(),
            list(found_in),
            [group[0].class_id for group in found_in.values()],
            captions if show_labels or show_scores else [""] * len(captions),
            line_width=line_width,
        )

    def save(
        self, path: str | Path, picture: Source | None = None, *, overwrite: bool = False
    ) -> Path:
        """Write plot() to `path`, whose ending names the format; refuse to replace a file."""
        from engine.vision.encode import encode

        path = Path(path)
        write_new(path, encode(self.plot(picture), path), overwrite=overwrite)
        return path

    def crops(self, picture: Source | None = None) -> list[tuple[Detection, Image.Image]]:
        """Cut out what was found; a box that lies outside the picture gives nothing."""
        image = self._picture(picture).to_image()
        cut = []
        for found in self:
            box = found.box.clipped(*self.size)
            left, top = int(box.left), int(box.top)
            right, bottom = int(np.ceil(box.right)), int(np.ceil(box.bottom))
            if right > left and bottom > top:
                cut.append((found, image.crop((left, top, right, bottom))))
        return cut

    def _picture(self, given: Source | None) -> Picture:
        source = next((each for each in (given, self.picture, self.path) if each is not None), None)
        if source is None:
            raise InputError("picture: was not kept and came from no file. Pass it, or keep it")
        picture = read(source, orient=self.oriented)
        if picture.size != self.size:
            raise ImageError(
                f"{picture.name}: size: expected {_by(self.size)} as when it was looked at,"
                f" got {_by(picture.size)}"
            )
        return picture


class Ranked(NamedTuple):
    """A class and its probability."""

    label: str
    score: float
    class_id: int


@dataclass(frozen=True, eq=False)
class Classification:
    """How probable each class is for one picture; as a sequence, the `top_k` best ones."""

    size: tuple[int, int]  # width, height of the upright picture
    probabilities: Array  # (classes,) float32
    names: Sequence[str] = ()
    path: str | None = None
    timing: Mapping[str, float] = field(default_factory=dict)  # milliseconds of each stage
    top_k: int = 5

    def top(self, count: int | None = None) -> list[Ranked]:
        """Return the best classes, the best first, those with equal scores by number."""
        count = self.top_k if count is None else max(0, count)
        best = np.argsort(-self.probabilities, kind="stable")[:count]
        return [
            Ranked(self.label_of(each), float(self.probabilities[each]), each)
            for each in best.tolist()
        ]

    def label_of(self, class_id: int) -> str:
        """A class without a name is called by its number."""
        return self.names[class_id] if class_id < len(self.names) else str(class_id)

    def __str__(self) -> str:
        """One line, such as: street.jpg, 640 x 480: dog 0.812, cat 0.101."""
        best = ", ".join(f"{shown(each.label)} {each.score:.3f}" for each in self)
        return f"{_about(self.path, self.size)}: {best}"

    def __len__(self) -> int:
        return min(self.top_k, len(self.probabilities))

    def __iter__(self) -> Iterator[Ranked]:
        return iter(self.top())

    def __getitem__(self, place: int) -> Ranked:
        return self.top()[place]

    def to_dict(self) -> dict[str, Any]:
        """The best classes as JSON would hold them."""
        width, height = self.size
        return {
            "schema_version": written.SCHEMA_VERSION,
            "path": self.path,
            "width": width,
            "height": height,
            "classes": [
                {
                    "class_id": each.class_id,
                    "label": each.label,
                    "score": written.number(each.score),
                }
                for each in self
            ],
            "timing_ms": {name: written.number(value) for name, value in self.timing.items()},
        }

    def to_json(self) -> str:
        return written.document(self.to_dict())


def _caption(found: Detection, *, label: bool, score: bool) -> str:
    return " ".join([found.label] * label + [f"{found.score:.0%}"] * score)


def _about(path: str | None, size: tuple[int, int]) -> str:
    return f"{'picture' if path is None else shown(path)}, {_by(size)}"


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
