"""Results: what was found in one picture, with the attributes and methods of ultralytics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from reprlib import repr as brief
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import numpy as np

from engine.arguments import is_whole
from engine.arrays import Array
from engine.compat.ultralytics import result_text
from engine.compat.ultralytics.boxes import Boxes, MaybeNone, clipped, inside, rows_of
from engine.compat.ultralytics.crops import add_crops, with_margin
from engine.compat.ultralytics.drawing import as_image, in_bgr, with_classes
from engine.compat.ultralytics.keywords import check
from engine.compat.ultralytics.probs import Probs
from engine.compat.ultralytics.replacing import (
    at_pixels,
    with_boxes,
    with_changes,
    with_probabilities,
)
from engine.compat.ultralytics.tensor import refuse_type
from engine.errors import InputError
from engine.files.atomic import make_folder, write_new
from engine.sources.media import is_url, url_path
from engine.vision.classification import Classification
from engine.vision.encode import encode, format_of
from engine.vision.image import Picture, read, read_again
from engine.vision.result import Result
from engine.vision.tables import Library, data_frame

if TYPE_CHECKING:
    from PIL import Image

ClassNames: TypeAlias = "Mapping[int, str] | Sequence[str]"

_ONLY_PLOT = {
    "color_mode": "class",
    "font": "Arial.ttf",
    "font_size": None,
    "im_gpu": None,
    "txt_color": (255, 255, 255),
}
_SPEED = {"prepare": "preprocess", "network": "inference", "suppress": "postprocess"}


class Results:
    """The boxes of a picture, or the probabilities of its classes; `result` is the engine's own."""

    masks = keypoints = obb = semantic_mask = depth = None
    names: ClassNames
    _orig_img: Array | None = None  # a program may draw on it

    def __init__(
        self,
        orig_img: Array,
        path: str | Path | None,
        names: ClassNames,
        boxes: Any = None,
        masks: None = None,
        probs: Any = None,
        keypoints: None = None,
        obb: None = None,
        speed: dict[str, float | None] | None = None,
        semantic_mask: None = None,
        depth: None = None,
    ) -> None:
        """Create Results from a program's own BGR picture, and rows as in `boxes.data`."""
        _refuse("Results()", masks, keypoints, obb, semantic_mask, depth)
        picture = read(orig_img, bgr=True)
        nothing = np.empty((0, 4), np.float32)
        columns = (nothing, nothing[:, 0], nothing[:, 0].astype(np.int64))
        name = str(path) if path else None
        self._hold(Result(picture.size, *columns, in_order(names), name), picture)
        self.names, self._orig_img = names, orig_img
        self.boxes = None if boxes is None else Boxes(boxes, self.orig_shape)
        if probs is not None:
            self.probs = probs
        if speed is not None:
            self.speed = speed

    @classmethod
    def of(
        cls,
        result: Result | Classification,
        picture: Picture | None = None,
        save_dir: Path | None = None,
        *,
        name: str = "image0.jpg",
    ) -> Results:
        """Create Results from a result of the engine."""
        made = cls.__new__(cls)
        made._hold(result, picture, save_dir, name)
        return made

    def _hold(
        self,
        result: Result | Classification,
        picture: Picture | None = None,
        save_dir: Path | None = None,
        name: str = "image0.jpg",
    ) -> None:
        self._result = inside(result) if isinstance(result, Result) else result
        self.path = result.path or name
        self.save_dir = None if save_dir is None else str(save_dir)
        self.names = dict(enumerate(result.names))
        self._picture = picture
        self._whole: Results | None = None  # Results whose pixels this part shares
        self._has_values = True  # False after new()
        self._as_numpy = False
        self._boxes: Boxes | None = None
        self.speed = _speed_of(result)

    # ------------------------------------------------------------ values

    @property
    def result(self) -> Result | Classification:
        """Return the engine's result for `boxes`, with the class names in `names`."""
        result = self._current()
        known = dict(enumerate(result.names))
        given = self.names if isinstance(self.names, Mapping) else dict(enumerate(self.names))
        if given == known:
            return result
        count = len(known)
        if isinstance(result, Result) and len(result):
            count = max(count, int(result.class_ids.max()) + 1)
        names = (str(given.get(each, known.get(each, each))) for each in range(count))
        return replace(result, names=tuple(names))

    def _current(self) -> Result | Classification:
        """Return the result with the changes that a program made to `boxes` in place."""
        result, boxes = self._result, self._boxes
        if boxes is None or isinstance(result, Classification):
            return result
        if np.array_equal(boxes.data, rows_of(result)):
            return result  # more exact than the rows
        return with_changes(result, boxes)

    @property
    def orig_shape(self) -> tuple[int, int]:
        """Return height and width of the picture."""
        width, height = self._result.size
        return height, width

    @property
    def orig_img(self) -> Array:
        """Return the picture as (height, width, 3), BGR; a streamed file is read again.

        What a program draws on it also appears in plot(), save() and save_crop().
        """
        if self._orig_img is None:
            whole = self._whole
            self._orig_img = in_bgr(self._read()) if whole is None else whole.orig_img
        return self._orig_img

    @orig_img.setter
    def orig_img(self, pixels: Array) -> None:
        self._orig_img = pixels

    @property
    def boxes(self) -> Boxes | MaybeNone:
        """Return the boxes, or None for a classifier and after new()."""
        if isinstance(self._result, Classification) or not self._has_values:
            return None
        if self._boxes is None:
            self._boxes = Boxes(rows_of(self._result), self.orig_shape)
        return self._boxes

    @boxes.setter
    def boxes(self, boxes: Boxes | None) -> None:
        if not isinstance(boxes, (Boxes, NoneType)):
            what = f"expected Boxes or None, got {brief(boxes)}. For rows use update(boxes=…)"
            raise InputError(f"boxes: {what}")
        self._result = with_boxes(self._result, boxes)
        self._has_values = boxes is not None
        self._boxes = boxes if boxes is None or not self._as_numpy else boxes.numpy()

    @property
    def probs(self) -> Probs | MaybeNone:
        """Return the probabilities, or None for a detector."""
        if isinstance(self._result, Result):
            return None
        probs = Probs(self._result.probabilities)
        return probs.numpy() if self._as_numpy else probs

    @probs.setter
    def probs(self, probs: Probs | None) -> None:
        if probs is None:
            self.boxes = None
        else:
            self._result = with_probabilities(self._result, getattr(probs, "data", probs))

    def update(
        self,
        boxes: Any = None,
        masks: None = None,
        probs: Any = None,
        obb: None = None,
        keypoints: None = None,
        semantic_mask: None = None,
        depth: None = None,
    ) -> None:
        """Replace the probabilities, or the boxes by rows as in `boxes.data`, which are clipped."""
        _refuse("update()", masks, obb, keypoints, semantic_mask, depth)
        if boxes is not None:
            self.boxes = clipped(boxes, self.orig_shape)
        if probs is not None:
            self.probs = probs

    def new(self) -> Results:
        """Return Results of the same picture without boxes or probabilities."""
        made = self._with(with_boxes(self._result, None))
        made._has_values = False
        return made

    def _with(self, result: Result) -> Results:
        """Return Results of the same picture with another result."""
        made = Results.of(result, self._picture)
        made._whole = self
        for name in ("path", "save_dir", "names", "speed", "_orig_img"):
            setattr(made, name, getattr(self, name))
        return made

    def cpu(self) -> Results:
        return self

    def numpy(self) -> Results:
        """Return the same Results, sharing memory, with plain NumPy arrays."""
        made = copy(self)
        made._as_numpy = True
        if made._boxes is not None:
            made._boxes = made._boxes.numpy()
        return made

    def __copy__(self) -> Results:
        _ = self.boxes  # create them first, so that both share them
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def cuda(self) -> Results:
        return self

    def to(self, *targets: Any, **named: Any) -> Results:
        refuse_type("boxes" if self.probs is None else "probs", targets, named)
        return self

    def __len__(self) -> int:
        """Return the number of boxes or, for a classifier, of classes."""
        if isinstance(self._result, Classification):
            return len(self.probs)
        return len(self._result if self._boxes is None else self._boxes)

    def __iter__(self) -> Iterator[Results]:
        found = self._boxes_of("an index")
        return (self._part(found, row) for row in range(len(found)))

    def __getitem__(self, which: Any) -> Results:
        return self._part(self._boxes_of("an index"), which)

    def _part(self, found: Result, which: Any) -> Results:
        if isinstance(which, tuple) and len(which) == 1:  # as from np.where()
            (which,) = which
        if np.ndim(which) == 0 and not isinstance(which, slice):
            row = range(len(found))[which]
            which = slice(row, row + 1)  # a slice gives a view of the box
        part = self._with(found[which])
        part._boxes = self.boxes[which]
        part._as_numpy = self._as_numpy
        return part

    def __repr__(self) -> str:
        return f"<Results {self.result}>"

    # ------------------------------------------------------------ text

    def verbose(self) -> str:
        """Return text such as "2 dogs, 1 cat, ", or the best classes, with ultralytics' comma."""
        return result_text.sentence(self.result)

    def summary(self, normalize: bool = False, decimals: int = 5) -> list[dict[str, Any]]:
        """Return a dict for each box: name, class, confidence, box, and after track() identity.

        For a classifier, these are the names, classes and scores of the best five classes.
        """
        return result_text.summary(self.result, normalize, decimals)

    def to_json(self, normalize: bool = False, decimals: int = 5) -> str:
        """Return summary() as JSON."""
        return json.dumps(self.summary(normalize, decimals), indent=2)

    tojson = to_json

    def to_df(
        self, normalize: bool = False, decimals: int = 5, *, library: Library | None = None
    ) -> Any:
        """Return summary() as a pandas data frame, or polars if only that is installed."""
        rows = result_text.rows(self.result, normalize, decimals)
        return data_frame(rows, result_text.columns(self.result), library)

    def to_csv(self, normalize: bool = False, decimals: int = 5) -> str:
        """Return summary() as CSV with a line of headings."""
        return result_text.as_csv(self.result, normalize, decimals)

    def save_txt(self, txt_file: str | Path, save_conf: bool = False) -> str:
        """Append a line for each box: class, centre, size, score with `save_conf`, identity.

        For a classifier, these are the scores and names of the best five classes. If there are no
        lines, no file is created.
        """
        result_text.append_labels(self.result, txt_file, conf=save_conf)
        return str(txt_file)

    # ------------------------------------------------------------ pictures

    @overload
    def plot(
        self,
        conf: bool = True,
        line_width: int | None = None,
        font_size: float | None = None,
        font: str = "Arial.ttf",
        pil: Literal[False] = False,
        img: Array | None = None,
        kpt_radius: int = 5,
        kpt_line: bool = True,
        labels: bool = True,
        boxes: bool = True,
        masks: bool = True,
        probs: bool = True,
        show: bool = False,
        save: bool = False,
        filename: str | Path | None = None,
        color_mode: str = "class",
        txt_color: tuple[int, int, int] = (255, 255, 255),
        **others: Any,
    ) -> Array: ...

    @overload
    def plot(
        self,
        conf: bool = True,
        line_width: int | None = None,
        font_size: float | None = None,
        font: str = "Arial.ttf",
        *,
        pil: Literal[True],
        **options: Any,
    ) -> Image.Image: ...

    def plot(
        self,
        conf: bool = True,
        line_width: int | None = None,
        font_size: float | None = None,
        font: str = "Arial.ttf",
        pil: bool = False,
        img: Array | None = None,
        kpt_radius: int = 5,
        kpt_line: bool = True,
        labels: bool = True,
        boxes: bool = True,
        masks: bool = True,
        probs: bool = True,
        show: bool = False,
        save: bool = False,
        filename: str | Path | None = None,
        color_mode: str = "class",
        txt_color: tuple[int, int, int] = (255, 255, 255),
        **others: Any,
    ) -> Array | Image.Image:
        """Return the picture with boxes, or the best classes, as (height, width, 3), BGR.

        With `pil` this is a Pillow image. `img`, in BGR order, is drawn on in place of the picture.
        """
        others |= {"font_size": font_size, "font": font}
        others |= {"color_mode": color_mode, "txt_color": txt_color}
        check(Results.plot, others, where="plot()", only=_ONLY_PLOT)
        picture = self._read() if img is None else read(img, bgr=True)
        if isinstance(self.result, Classification):
            drawn = with_classes(picture.to_image(), self.result if probs else ())
        elif not boxes:
            drawn = picture.to_image()
        else:
            drawn = at_pixels(self.result, picture.size).plot(
                picture, show_labels=bool(labels), show_scores=bool(conf), line_width=line_width
            )
        if show:
            drawn.show()
        if save:
            self._write(drawn, filename)
        return drawn if pil else np.ascontiguousarray(np.asarray(drawn)[:, :, ::-1])

    def save(
        self,
        filename: str | Path | None = None,
        *given: Any,
        overwrite: bool | None = None,
        **options: Any,
    ) -> str:
        """Write plot(), called with these arguments, to a file; replace it, as ultralytics does.

        The default is results_<name>, or results_<video>_<number>.jpg for a frame; an existing file
        with a default name is kept unless `overwrite`. With overwrite=False, an explicitly named
        file is kept, too.
        """
        drawn = self.plot(*given, **options)
        return self._write(as_image(drawn), filename, overwrite=overwrite)

    def show(self, *given: Any, **options: Any) -> None:
        """Open plot(), called with these arguments, in the desktop's viewer."""
        self.plot(*given, **options, show=True)

    def _write(
        self, drawn: Image.Image, filename: str | Path | None, *, overwrite: bool | None = None
    ) -> str:
        path = Path(filename or f"results_{self._name()}")
        replaces = bool(filename) if overwrite is None else overwrite
        content = encode(drawn, path)
        make_folder(path.parent)
        write_new(path, content, overwrite=replaces)
        return str(path)

    def _name(self) -> str:
        """Return a name for the picture in a file, or for a frame of a video or camera."""
        name = Path(url_path(self.path) if is_url(self.path) else self.path)
        if self.result.frame is not None:
            return f"{name.stem}_{self.result.frame.number:06d}.jpg"
        return name.name if format_of(name) else f"{name.stem}.jpg"

    def save_crop(
        self,
        save_dir: str | Path,
        file_name: str | Path = Path("im.jpg"),
        *,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write each box as save_dir/label/im.jpg, im-2.jpg, …; return the paths.

        Existing files are kept, and numbering continues after them, unless `overwrite`.
        """
        if overwrite:
            return self.write_crops(save_dir, file_name, overwrite=True)
        picture = self._read()
        found = with_margin(at_pixels(self._boxes_of("save_crop()"), picture.size))
        return add_crops(found, picture, Path(save_dir), Path(file_name).stem)

    def write_crops(
        self, save_dir: str | Path, file_name: str | Path, *, overwrite: bool
    ) -> list[Path]:
        """Do what save_crop() does, with names that do not depend on existing files."""
        picture = self._read()
        found = with_margin(at_pixels(self._boxes_of("save_crop()"), picture.size))
        found = replace(found, path=str(file_name), frame=None)
        return found.save_crop(save_dir, picture, overwrite=overwrite)

    def _read(self) -> Picture:
        if self._picture is None:
            if self.result.path is None:
                raise InputError("picture: was not kept and has no path")
            oriented = self.result.oriented if isinstance(self.result, Result) else True
            self._picture = read_again(self.result.path, self.result.stamp, orient=oriented)
        drawn_on = self._orig_img
        if drawn_on is None or np.array_equal(drawn_on, in_bgr(self._picture)):
            return self._picture
        return replace(self._picture, pixels=read(drawn_on, bgr=True).pixels)

    def _boxes_of(self, what: str) -> Result:
        if isinstance(self.result, Classification):
            raise InputError(f"{what}: expected boxes, got the probabilities of a classifier")
        return self.result


def _refuse(where: str, *others: Any) -> None:
    if any(each is not None for each in others):
        raise InputError(f"{where}: expected boxes or probs: darknet's networks have no others")


def in_order(names: Any) -> tuple[str, ...]:
    """Return the names of all classes in order; a class without a name gets its number."""
    if isinstance(names, Mapping):
        if not all(is_whole(each, least=0) for each in names):
            raise InputError(f"names: expected the numbers of classes as keys, got {brief(names)}")
        return tuple(str(names.get(each, each)) for each in range(max(names, default=-1) + 1))
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InputError(f"names: expected the name of each class, got {brief(names)}")
    return tuple(map(str, names))


def _speed_of(result: Result | Classification) -> dict[str, float | None]:
    """Return the milliseconds of the three stages."""
    return {name: result.timing.get(stage) for stage, name in _SPEED.items()}
