"""Results: what was found in one picture, with the attributes and methods of ultralytics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from engine.arrays import Array
from engine.compat.ultralytics.boxes import Boxes
from engine.errors import InputError
from engine.files.atomic import make_folder, unwritable, write_new
from engine.vision.box_array import Values
from engine.vision.classification import Classification
from engine.vision.encode import encode
from engine.vision.image import Picture, read
from engine.vision.result import Result
from engine.vision.tables import Library

if TYPE_CHECKING:
    from PIL import Image

_SPEED = {"prepare": "preprocess", "network": "inference", "suppress": "postprocess"}


class Probs:
    """The probabilities of a classifier."""

    def __init__(self, probabilities: Array) -> None:
        self.data = probabilities.view(Values)
        order = np.argsort(-probabilities, kind="stable")[:5]
        self.top5 = order.tolist()
        self.top1 = int(order[0])
        self.top5conf = self.data[order]
        self.top1conf = self.data[order[:1]]

    def cpu(self) -> Probs:
        return self

    def numpy(self) -> Probs:
        return self

    def __len__(self) -> int:
        return len(self.data)


class Results:
    """The boxes of a picture, or the probabilities of its classes; `result` is the engine's own."""

    masks = keypoints = obb = None

    def __init__(
        self,
        result: Result | Classification,
        picture: Picture | None = None,
        save_dir: Path | None = None,
    ) -> None:
        self.result = result
        self.path = result.path or "image0.jpg"
        self.save_dir = None if save_dir is None else str(save_dir)
        self.names: Mapping[int, str] = dict(enumerate(result.names))
        self._picture = picture

    # ------------------------------------------------------------ values

    @property
    def orig_shape(self) -> tuple[int, int]:
        """Return height and width of the picture."""
        width, height = self.result.size
        return height, width

    @property
    def orig_img(self) -> Array:
        """Return the picture as (height, width, 3), BGR; a file is read again."""
        pixels = self._read().with_channels(3).pixels
        if pixels.dtype != np.uint8:
            pixels = np.rint(pixels * 255).astype(np.uint8)
        return np.ascontiguousarray(pixels[:, :, ::-1])

    @property
    def boxes(self) -> Boxes | None:
        """Return the boxes, or None for a classifier."""
        if isinstance(self.result, Classification):
            return None
        return Boxes(self.result.boxes, self.orig_shape)

    @property
    def probs(self) -> Probs | None:
        """Return the probabilities, or None for a detector."""
        if isinstance(self.result, Result):
            return None
        return Probs(self.result.probabilities)

    @property
    def speed(self) -> dict[str, float | None]:
        """Return milliseconds of the three stages."""
        timing = self.result.timing
        return {name: timing.get(stage) for stage, name in _SPEED.items()}

    def cpu(self) -> Results:
        return self

    def numpy(self) -> Results:
        return self

    def cuda(self) -> Results:
        return self

    def to(self, *_: Any, **__: Any) -> Results:
        return self

    def __len__(self) -> int:
        return len(self.result) if isinstance(self.result, Result) else 1

    def __iter__(self) -> Iterator[Results]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, which: Any) -> Results:
        found = self._boxes_of("an index")
        if isinstance(which, (int, np.integer)):
            which = [range(len(found))[which]]
        return Results(found[which], self._picture)

    def __repr__(self) -> str:
        return f"<Results {self.result}>"

    # ------------------------------------------------------------ text

    def verbose(self) -> str:
        """Return one line, such as: 2 dogs, 1 cat, or the best classes."""
        if isinstance(self.result, Classification):
            return ", ".join(f"{each.label} {each.score:.2f}" for each in self.result.top(5))
        counts: dict[str, int] = {}
        for label in self.result.labels:
            counts[label] = counts.get(label, 0) + 1
        found = (f"{count} {label}{'s' * (count > 1)}" for label, count in counts.items())
        return ", ".join(found) or "(no detections)"

    def summary(self, normalize: bool = False, decimals: int = 5) -> list[dict[str, Any]]:
        """Return a dict for each box with name, class, confidence and box."""
        if isinstance(self.result, Classification):
            return [
                {
                    "name": each.label,
                    "class": each.class_id,
                    "confidence": round(each.score, decimals),
                }
                for each in self.result.top(1)
            ]
        found = self.result
        edges = found.xyxyn if normalize else found.xyxy
        return [
            {
                "name": each.label,
                "class": each.class_id,
                "confidence": round(each.score, decimals),
                "box": {
                    name: round(value, decimals)
                    for name, value in zip(("x1", "y1", "x2", "y2"), row, strict=True)
                },
            }
            for each, row in zip(found, edges.tolist(), strict=True)
        ]

    def to_json(self, normalize: bool = False, decimals: int = 5) -> str:
        """Return summary() as JSON."""
        return json.dumps(self.summary(normalize, decimals), indent=2)

    tojson = to_json

    def to_df(self, library: Library | None = None) -> Any:
        """Return a data frame of pandas, or of polars if only that is installed."""
        return self._boxes_of("to_df()").to_df(library)

    def save_txt(self, txt_file: str | Path, save_conf: bool = False) -> str:
        """Append a line for each box: class, centre, size and, with `save_conf`, the score."""
        lines = self._boxes_of("save_txt()").to_yolo(conf=save_conf)
        make_folder(Path(txt_file).parent)
        try:
            with Path(txt_file).open("a", encoding="ascii", newline="\n") as file:
                file.write(lines)
        except OSError as error:
            raise unwritable(txt_file, error) from None
        return str(txt_file)

    # ------------------------------------------------------------ pictures

    @overload
    def plot(
        self,
        conf: bool = True,
        line_width: int | None = None,
        *,
        labels: bool = True,
        pil: Literal[False] = False,
    ) -> Array: ...

    @overload
    def plot(
        self,
        conf: bool = True,
        line_width: int | None = None,
        *,
        labels: bool = True,
        pil: Literal[True],
    ) -> Image.Image: ...

    def plot(
        self,
        conf: bool = True,
        line_width: int | None = None,
        *,
        labels: bool = True,
        pil: bool = False,
    ) -> Array | Image.Image:
        """Return the picture with boxes as (height, width, 3), BGR, or with `pil` as an image."""
        if isinstance(self.result, Classification):
            drawn = self._read().to_image()
        else:
            drawn = self.result.plot(
                self._read(), show_labels=labels, show_scores=conf, line_width=line_width
            )
        return drawn if pil else np.ascontiguousarray(np.asarray(drawn)[:, :, ::-1])

    def save(
        self,
        filename: str | Path | None = None,
        *,
        line_width: int | None = None,
        overwrite: bool = False,
    ) -> str:
        """Write plot() to a file and replace it, as ultralytics does.

        The default is results_<name>, which nobody named: an existing file is kept, unless
        `overwrite`.
        """
        path = Path(filename or f"results_{Path(self.path).name}")
        drawn = self.plot(line_width=line_width, pil=True)
        write_new(path, encode(drawn, path), overwrite=overwrite or bool(filename))
        return str(path)

    def show(self) -> None:
        """Open plot() in the viewer of the desktop."""
        self.plot(pil=True).show()

    def save_crop(self, save_dir: str | Path, file_name: str | Path = "") -> None:
        """Write each box as save_dir/label/picture.jpg."""
        found, picture = self._boxes_of("save_crop()"), self._read()
        if file_name:
            from dataclasses import replace

            found = replace(found, path=str(file_name))
        found.save_crop(save_dir, picture)

    def _read(self) -> Picture:
        if self._picture is None:
            if self.result.path is None:
                raise InputError("picture: was not kept and has no path")
            oriented = self.result.oriented if isinstance(self.result, Result) else True
            self._picture = read(self.result.path, orient=oriented)
        return self._picture

    def _boxes_of(self, what: str) -> Result:
        if isinstance(self.result, Classification):
            raise InputError(f"{what}: expected boxes, got the probabilities of a classifier")
        return self.result
