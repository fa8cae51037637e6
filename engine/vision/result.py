"""The result of a detector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from engine import extras
from engine.arguments import fraction, naming_unknown
from engine.arrays import Array, Floats, Integers
from engine.errors import EngineError, ImageError, InputError, suggest
from engine.files.atomic import make_folder, refuse_existing, write_new
from engine.files.naming import (
    crop_stem,
    folder_name_of,
    name_and_size,
    printable,
    shortened,
    shown,
)
from engine.files.real_paths import real
from engine.files.stamp import Stamp
from engine.vision import notebook, serialize
from engine.vision.box_array import BoxArray
from engine.vision.boxes import Boxes
from engine.vision.classes import chosen_classes
from engine.vision.code import Code
from engine.vision.detection import Box, Detection
from engine.vision.image import Picture, Source, path_of, read, read_again
from engine.vision.tables import Library, data_frame
from engine.vision.tiles import Area

if TYPE_CHECKING:
    from PIL import Image

    from engine.vision.frame import Frame
    from engine.vision.overlay import Overlay


_MAX_DRAWN = 24  # characters of a code's text that are drawn
_COLUMNS = {"xywhn": "xywh", "scores": "scores", "class_ids": "class_ids"}  # and of Boxes


class _Column:
    """An array field that callers may read but not change."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, result: Result | None, kind: type | None = None) -> Any:
        if result is None:
            return self
        column = result._column(self._name)
        if column is None:
            return None
        view = column.view()
        view.flags.writeable = False
        return view

    def __set__(self, result: Result, column: Any) -> None:
        result.__dict__[self._name] = None if column is None else np.asarray(column)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The boxes of one picture, the best score first.

    Fields that are arrays are read-only: copy one to change it, as in result.scores.copy();
    dataclasses.replace(result, scores=…) makes another result. Other arrays, such as xyxy, are new
    on each access, so changing one does not change the result. A result is small and picklable: it
    pickles pixels only after hide(). plot(), save() and crops() use the picture passed to them,
    else the kept one, else they read `path` again; a file that has changed meanwhile is refused.
    stream() keeps pictures on request, a call of the detector keeps those without a file: an array
    is not copied, so pass a copy of a buffer that will be reused.

    Examples:
        >>> result = engine.load()("docs/parcel.jpg", classes=["qr"])
        >>> result.xyxy.round().tolist()
        [[544.0, 380.0, 608.0, 437.0]]
        >>> result.save("annotated.png", overwrite=True).name
        'annotated.png'
    """

    size: tuple[int, int]  # width, height of the upright picture
    xywhn: Floats  # (n, 4): centre and size relative to the picture, as in darknet
    scores: Floats  # (n,)
    class_ids: Integers  # (n,)
    names: Sequence[str] = ()
    path: str | None = None
    timing: Mapping[str, float] = field(default_factory=dict)  # milliseconds of each stage
    oriented: bool = True  # whether the EXIF orientation was applied
    picture: Picture | None = field(default=None, repr=False)
    track_ids: Array | None = None  # (n,) int64: the identities of a tracker, if there was one
    counts: Mapping[str, Any] | None = None  # counts of lines and zones up to this frame
    overlay: Overlay | None = None  # what plot() draws in addition to boxes
    is_untrusted: bool = field(default=False, repr=False)  # the picture is never decoded again here
    codes: Sequence[Code | None] | None = None  # (n,) what each box says, if codes were read
    tiles: tuple[Area, ...] = ()  # tiles that were searched; the first is the whole picture
    hidden: Collection[int] = ()  # classes hidden in the picture, whose texts are not shown
    frame: Frame | None = None  # if `path` is a video
    others: Result | None = field(default=None, repr=False)  # excluded boxes, for hide()
    sought: Collection[int] | None = field(default=None, repr=False)  # classes; None means all
    limit: int | None = field(default=None, repr=False)  # maximum number of returned boxes
    stamp: Stamp | None = field(default=None, repr=False)  # the file's stamp when it was read
    is_unknown: bool = field(default=False, repr=False)  # the network overflowed

    @classmethod
    def of(
        cls,
        boxes: Boxes,
        picture: Picture,
        *,
        names: Sequence[str] = (),
        timing: Mapping[str, float] | None = None,
        oriented: bool = True,
        codes: Sequence[Code | None] | None = None,
        tiles: tuple[Area, ...] = (),
        keep_picture: bool = False,
        is_untrusted: bool = False,
        sought: Collection[int] | None = None,
        limit: int | None = None,
        is_unknown: bool = False,
    ) -> Result:
        """Return the result for the `boxes` of `picture`; they fill the columns on first use."""
        result = cls.__new__(cls)
        # The __init__ of a frozen dataclass is too slow for thousands of results per second.
        attributes = result.__dict__
        attributes["size"] = picture.size
        attributes["names"] = names
        attributes["path"] = picture.path
        attributes["timing"] = timing or {}
        attributes["oriented"] = oriented
        attributes["tiles"] = tiles
        attributes["picture"] = picture if keep_picture else None
        if is_untrusted:
            attributes["is_untrusted"] = True
        if picture.frame is not None:
            attributes["frame"] = picture.frame
        if sought is not None:
            attributes["sought"] = sought
        if limit is not None:
            attributes["limit"] = limit
        if picture.stamp is not None:
            attributes["stamp"] = picture.stamp
        if is_unknown:
            attributes["is_unknown"] = True
        attributes["_boxes"] = boxes
        if codes is not None:
            attributes["codes"] = codes
        return result

    def receive(self, boxes: Boxes) -> None:
        """Set the boxes of a result that was created before them and has not been used yet."""
        self.__dict__["_boxes"] = boxes

    def _column(self, name: str) -> Any:
        """Return the result's own array for a column, taking it from the Boxes on first use."""
        values = self.__dict__
        if name not in values and name in _COLUMNS:
            if "_boxes" not in values:  # before __init__: copy and pickle create results like that
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            values[name] = getattr(values["_boxes"], _COLUMNS[name])
        return values.get(name)

    # ------------------------------------------------------------ other forms of the boxes

    @property
    def boxes(self) -> BoxArray:
        """Return (n, 4) float32: left, top, right, bottom in pixels, not clipped to the picture.

        The array has the attributes xyxy, xyxyn, xywh, xywhn, conf and cls, each row, too.
        """
        return BoxArray.of(
            self._edges(self.size),
            size=self.size,
            xywhn=self.xywhn,
            scores=self.scores,
            class_ids=self.class_ids,
        )

    @property
    def xyxy(self) -> Floats:
        """Return (n, 4) float32: left, top, right, bottom in pixels of the picture."""
        return self._edges(self.size)

    @property
    def xyxyn(self) -> Floats:
        """Return (n, 4) float32: left, top, right, bottom relative to the picture."""
        return self._edges((1, 1))

    @property
    def xywh(self) -> Floats:
        """Return (n, 4) float32: centre and size in pixels of the picture."""
        return np.asarray(self.xywhn * np.tile(self.size, 2), np.float32)

    @property
    def conf(self) -> Floats:
        """Return the scores, (n,) float32."""
        return self.scores

    @property
    def cls(self) -> Integers:
        """Return the numbers of the classes, (n,) int64."""
        return self.class_ids

    @property
    def labels(self) -> list[str]:
        return [self.label_of(each) for each in self.class_ids.tolist()]

    def label_of(self, class_id: int) -> str:
        """Return the name of a class, or its number if it has none."""
        return self.names[class_id] if class_id < len(self.names) else str(class_id)

    def _edges(self, size: tuple[int, int]) -> Floats:
        xywhn = self._column("xywhn")
        centre, half = xywhn[:, :2].astype(np.float64), xywhn[:, 2:] / 2.0
        edges = np.empty((len(centre), 4))
        np.subtract(centre, half, out=edges[:, :2])
        np.add(centre, half, out=edges[:, 2:])
        edges *= (*size, *size)
        return edges.astype(np.float32)

    def __str__(self) -> str:
        """Return one line, such as: street.jpg, 640 x 480: 2 dog, 1 cat."""
        counts = Counter(self.labels).most_common()
        found = ", ".join(f"{count} {shown(label)}" for label, count in counts)
        return f"{name_and_size(self.path, self.size)}: {found or 'nothing found'}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    # ------------------------------------------------------------ as a sequence

    def __len__(self) -> int:
        return len(self._column("scores"))

    def __iter__(self) -> Iterator[Detection]:
        tracks = [None] * len(self) if self.track_ids is None else self.track_ids.tolist()
        codes = [None] * len(self) if self.codes is None else self.codes
        columns = zip(
            *(self.class_ids.tolist(), self.scores.tolist(), self.xyxy.tolist(), tracks, codes),
            strict=True,
        )
        for class_id, score, edges, track, code in columns:
            yield Detection(self.label_of(class_id), class_id, score, Box(*edges), track, code)

    @overload
    def __getitem__(self, which: int) -> Detection: ...

    @overload
    def __getitem__(self, which: slice | Array | Sequence[int]) -> Result: ...

    def __getitem__(self, which: Any) -> Detection | Result:
        """Return a Detection for an index, or a Result for a slice, a mask or a list of indices.

        Excluded boxes go to its `others`, so that hide() finds them.
        """
        if isinstance(which, str):
            hint = f"Did you mean result.filter(classes=[{which!r}])?"
            raise InputError(f"result: expected the number of a detection, got {which!r}. {hint}")
        if isinstance(which, (int, np.integer)):
            row = range(len(self))[which]
            return next(iter(self._rows(slice(row, row + 1))))
        rows = which if isinstance(which, slice) else np.asarray(which)
        if isinstance(rows, np.ndarray) and rows.size == 0:
            rows = rows.astype(np.int64)
        if isinstance(rows, np.ndarray) and rows.ndim != 1:
            if rows.ndim == 0 and rows.dtype.kind in "iu":
                return self[int(rows)]
            raise InputError(f"result: expected indices of one dimension, got {rows.ndim}")
        is_left_out = np.ones(len(self), bool)
        is_left_out[rows] = False
        chosen = self._rows(rows)
        return replace(chosen, others=self._rows(is_left_out)) if is_left_out.any() else chosen

    def _rows(self, rows: slice | Array) -> Result:
        return replace(
            self,
            xywhn=self.xywhn[rows],
            scores=self.scores[rows],
            class_ids=self.class_ids[rows],
            track_ids=None if self.track_ids is None else self.track_ids[rows],
            codes=None if self.codes is None else _chosen(self.codes, rows),
        )

    @naming_unknown
    def filter(
        self,
        *,
        classes: Collection[str | int] | None = None,
        exclude: Collection[str | int] | None = None,
        min_score: float = 0.0,
    ) -> Result:
        """Select detections by class (name or number) and score; hide() still finds the others."""
        keep = self.scores >= fraction("min_score", min_score)
        labels = [self.label_of(each) for each in range(self._class_count)]
        chosen = chosen_classes(classes, exclude, labels)
        return self[keep if chosen is None else keep & np.isin(self.class_ids, chosen)]

    @property
    def _class_count(self) -> int:
        """Return the number of classes, some of them unnamed if no detector made the result."""
        count = max(len(self.names), int(self.class_ids.max(initial=-1)) + 1)
        return count if self.others is None else max(count, self.others._class_count)

    def __getstate__(self) -> dict[str, Any]:
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        return state if self.hidden else state | {"picture": None}

    def __copy__(self) -> Result:
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Result:
        state = {each.name: getattr(self, each.name) for each in fields(self)}
        picture = state.pop("picture")  # immutable
        return replace(self, **deepcopy(state, memo), picture=picture)

    # ------------------------------------------------------------ as text

    def to_dict(self) -> dict[str, Any]:
        """Return the detections as JSON values; `schema_version` identifies the set of keys."""
        return serialize.engine_entry(self)

    def to_json(self, style: Literal["engine", "darknet", "coco"] = "engine") -> str:
        """Return this picture's entry of a JSON document in the given style."""
        if style == "engine":
            return serialize.json_text(self.to_dict())
        if style == "darknet":
            return serialize.darknet_entry(self)
        if style == "coco":
            return serialize.json_text(serialize.coco_entries(self))
        hint = suggest(style, ("engine", "darknet", "coco"))
        raise InputError(f"style: expected engine, darknet or coco, got {style!r}.{hint}")

    def to_yolo(self, *, conf: bool = False) -> str:
        """Return the lines of a YOLO label file, with boxes clipped to the picture."""
        return serialize.yolo_labels(self, conf=conf)

    def to_csv(self) -> list[tuple[object, ...]]:
        """Return rows for csv.writer under the headings serialize.csv_columns()."""
        return serialize.csv_rows(self)

    def to_coco(
        self, image_id: int | str | None = None, categories: Sequence[int] | None = None
    ) -> list[dict[str, Any]]:
        """Return COCO detection results, which pycocotools' loadRes takes in a list.

        `image_id` defaults to the number of a frame, or that at the end of the file name, or else
        to its stem.
        `categories` holds the category id of each class; it defaults to COCO's ids for its 80
        classes, otherwise to 1, 2, ….
        """
        return serialize.coco_entries(self, image_id, categories)

    def to_df(self, library: Library | None = None) -> Any:
        """Return a data frame of pandas, or of polars if only that is installed.

        Its columns are path, class_id, label, score, left, top, right and bottom; track_id after
        tracking; text, format and corners if codes were read; and frame for a video.
        """
        return data_frame(self.to_csv(), serialize.csv_columns(self), library)

    def save_txt(self, path: str | Path, *, conf: bool = False, overwrite: bool = False) -> Path:
        """Write to_yolo() to a file; keep an existing one unless `overwrite`."""
        make_folder(Path(path).parent)
        self._refuse_itself(path)
        write_new(path, self.to_yolo(conf=conf).encode(), overwrite=overwrite)
        return Path(path)

    def to_supervision(self) -> Any:
        """Return supervision.Detections, with the labels in data["class_name"]."""
        try:
            from supervision import Detections
        except ImportError:
            raise InputError(
                f"supervision: is not installed. Run: {extras.command('supervision')}"
            ) from None
        return Detections(
            xyxy=self.xyxy,
            confidence=self.scores.copy(),  # scripts change these arrays in place
            class_id=self.class_ids.copy(),
            tracker_id=None if self.track_ids is None else self.track_ids.copy(),
            data={"class_name": np.array(self.labels, dtype=str)},
        )

    # ------------------------------------------------------------ as pictures

    @overload
    def plot(
        self,
        picture: Source | None = None,
        *,
        show_labels: bool = True,
        show_scores: bool = True,
        show_tiles: bool = False,
        blur: Collection[str | int] | str | None = None,
        pixelate: Collection[str | int] | str | None = None,
        line_width: int | None = None,
        array: None = None,
    ) -> Image.Image: ...

    @overload
    def plot(
        self,
        picture: Source | None = None,
        *,
        show_labels: bool = True,
        show_scores: bool = True,
        show_tiles: bool = False,
        blur: Collection[str | int] | str | None = None,
        pixelate: Collection[str | int] | str | None = None,
        line_width: int | None = None,
        array: Literal["rgb", "bgr"],
    ) -> Array: ...

    def plot(
        self,
        picture: Source | None = None,
        *,
        show_labels: bool = True,
        show_scores: bool = True,
        show_tiles: bool = False,
        blur: Collection[str | int] | str | None = None,
        pixelate: Collection[str | int] | str | None = None,
        line_width: int | None = None,
        array: Literal["rgb", "bgr"] | None = None,
    ) -> Image.Image | Array:
        """Return the picture with boxes and labels; the classes of one box share a label.

        Classes to `blur` or `pixelate`, by name, number or "all", are hidden for good before
        anything is drawn. `show_tiles` outlines the tiles in which boxes were searched.
        This is a Pillow image, or with `array` an array (height, width, 3) of uint8; "bgr" is the
        order of OpenCV.
        """
        if array not in (None, "rgb", "bgr"):
            raise InputError(f"array: expected 'rgb' or 'bgr', got {array!r}")
        from engine.vision.draw import annotate  # fonts are slow to import and rarely needed

        seen = self
        if blur is not None or pixelate is not None:
            seen, picture = self.hide(picture, blur=blur, pixelate=pixelate), None
        by_box: dict[Box, list[Detection]] = {}
        for found in self:
            by_box.setdefault(found.box, []).append(found)
        captions = [
            ", ".join(
                _caption(
                    replace(each, code=None) if each.class_id in seen.hidden else each,
                    label=show_labels,
                    score=show_scores,
                )
                for each in group
            )
            for group in by_box.values()
        ]
        drawn = seen._picture(picture).to_image()  # not shared
        if self.overlay:
            self.overlay.draw_below(drawn)
        annotate(
            drawn,
            list(by_box),
            [_colour_id(group[0]) for group in by_box.values()],
            captions if show_labels or show_scores else [""] * len(captions),
            short_captions=[f"{group[0].score:.0%}" * show_scores for group in by_box.values()],
            line_width=line_width,
            outlines=[each.corners for each in self if each.corners],
            tiles=self.tiles[1:] if show_tiles else (),
            in_place=True,
        )
        if self.overlay:
            self.overlay.draw_captions(drawn)
        if array is None:
            return drawn
        pixels = np.array(drawn)
        return np.ascontiguousarray(pixels[:, :, ::-1]) if array == "bgr" else pixels

    def show(self, picture: Source | None = None) -> None:
        """Open plot() in the desktop's viewer."""
        self.plot(picture).show(title=shown(self.path or "picture"))

    def save(
        self,
        path: str | Path,
        picture: Source | None = None,
        *,
        overwrite: bool = False,
        show_tiles: bool = False,
        blur: Collection[str | int] | str | None = None,
        pixelate: Collection[str | int] | str | None = None,
    ) -> Path:
        """Write plot() to `path` in the format of its extension; keep an existing file."""
        from engine.vision.encode import encode

        path = Path(path)
        drawn = self.plot(picture, show_tiles=show_tiles, blur=blur, pixelate=pixelate)
        content = encode(drawn, path)
        make_folder(path.parent)
        self._refuse_itself(path, picture)
        write_new(path, content, overwrite=overwrite)
        return path

    def hide(
        self,
        picture: Source | None = None,
        *,
        blur: Collection[str | int] | str | None = None,
        pixelate: Collection[str | int] | str | None = None,
    ) -> Result:
        """Return this result with a picture in which classes are hidden for good, for crops().

        If the network overflowed, the objects may be anywhere, so the whole picture is hidden.
        """
        from engine.vision.hide import WAYS, hidden_classes, hide, hides_any

        if blur is None and pixelate is None and not self.hidden:
            raise InputError("hide: expected classes for blur= or pixelate=, got none")
        hidden: set[int] = set(self.hidden)
        image = self._picture(picture).to_image()
        for way, classes in zip(WAYS, (blur, pixelate), strict=True):
            chosen = hidden_classes(way, classes, self.names)
            if classes is not None:
                self._refuse_unknown(way, chosen)
            if self.is_unknown and hides_any(chosen):
                hide(image, [Box(0, 0, *image.size)], way)
                hidden.update(range(max(1, self._class_count)))
                continue
            rows = [each for each in self._all_found() if each.class_id in chosen]
            hide(image, (each.box for each in rows), way)
            hidden.update(each.class_id for each in rows)
        about = image.info.get("icc_profile"), image.info.get("dpi")
        shown = Picture(np.asarray(image), self.path, *about)
        return self._with_hidden(shown, frozenset(hidden))

    def _refuse_unknown(self, way: str, chosen: Collection[int]) -> None:
        """Raise if the detector excluded boxes of the chosen classes, which would stay visible."""
        from engine.vision.hide import refuse_missed

        refuse_missed(way, chosen, self.sought, self.names, "classes")
        if self.limit is not None and sum(1 for _ in self._all_found()) >= self.limit:
            raise InputError(f"{way}: not with max_detections, which may have left boxes out")

    def _with_hidden(self, picture: Picture, hidden: Collection[int]) -> Result:
        others = None if self.others is None else self.others._with_hidden(picture, hidden)
        return replace(self, picture=picture, hidden=hidden, others=others)

    def _all_found(self) -> Iterator[Detection]:
        yield from self
        if self.others is not None:
            yield from self.others._all_found()

    def crops(self, picture: Source | None = None) -> list[tuple[Detection, Image.Image]]:
        """Return each detection with its part of the picture, unless it lies outside."""
        image = self._picture(picture).to_image()
        crops = []
        for found in self:
            if not np.isfinite(found.box).all():
                continue
            box = found.box.clipped(*self.size)
            left, top = int(box.left), int(box.top)
            right, bottom = int(np.ceil(box.right)), int(np.ceil(box.bottom))
            if right > left and bottom > top:
                crops.append((found, image.crop((left, top, right, bottom))))
        return crops

    def save_crop(
        self, folder: str | Path, picture: Source | None = None, *, overwrite: bool = False
    ) -> list[Path]:
        """Write crops() to folder/label/picture.jpg, then picture-2.jpg, …; return the paths.

        Crops of a picture that is called picture-2.jpg itself are picture-2-1.jpg, ….
        Crops of frame 12 of street.mp4 are called street_000012.jpg, street_000012-2.jpg, ….
        """
        from engine.vision.encode import encode

        stem = shortened(Path(self.path or "picture").stem) or "picture"
        if self.frame is not None:
            stem = f"{stem}_{self.frame.number:06d}"
        counts: Counter[str] = Counter()
        crops: dict[Path, Image.Image] = {}
        for found, image in self.crops(picture):
            label = folder_name_of(found.label)
            counts[label] += 1
            path = Path(folder) / label / f"{crop_stem(stem, counts[label])}.jpg"
            self._refuse_itself(path)
            if not overwrite:
                refuse_existing(path)
            crops[path] = image
        for path, image in crops.items():  # only once all names are known to be free
            make_folder(path.parent)
            write_new(path, encode(image, path), overwrite=overwrite, follows_link=False)
        return list(crops)

    # ------------------------------------------------------------ in notebooks

    def _repr_png_(self) -> bytes | None:
        """Return the annotated picture, or None if there is no picture to draw on."""
        try:
            return notebook.png(self.plot())
        except EngineError:
            return None

    def _repr_html_(self) -> str:
        return notebook.html(str(self), self, self._repr_png_())

    def _refuse_itself(self, path: str | Path, picture: Source | None = None) -> None:
        """Raise if a file would replace the picture or the video, even through a link."""
        sources = filter(None, (self.path, None if picture is None else path_of(picture)))
        if real(path) in map(real, sources):
            raise InputError(f"{shown(str(path))}: would replace the picture itself")

    def _picture(self, given: Source | None) -> Picture:
        if given is not None and self.hidden:
            problem = "hide() has hidden classes in the picture of this result"
            raise InputError(f"picture: {problem}, and another would show them. Leave it out")
        source = next((each for each in (given, self.picture, self.path) if each is not None), None)
        if source is None:
            raise InputError("picture: was not kept and has no path. Pass it, or keep it")
        if self.frame is not None and given is None and self.picture is None:
            raise InputError("picture: of a frame was not kept. Use keep_pictures=True, or pass it")
        if self.is_untrusted and given is None and self.picture is None:
            raise InputError("picture: is untrusted and was not kept. Use keep_pictures=True")
        if source is self.path and given is None:
            picture = read_again(self.path, self.stamp, orient=self.oriented, lenient=True)
        else:
            picture = read(source, orient=self.oriented, lenient=True)
        if picture.size != self.size:
            expected, got = (f"{width} x {height}" for width, height in (self.size, picture.size))
            raise ImageError(
                f"{picture.name}: size: expected {expected} as at the time of detection, got {got}"
            )
        return picture


for _name in (*_COLUMNS, "track_ids"):  # a dataclass would take a descriptor for a default
    setattr(Result, _name, _Column(_name))


def _chosen(codes: Sequence[Code | None], rows: slice | Array) -> Sequence[Code | None]:
    return [codes[row] for row in np.arange(len(codes))[rows].tolist()]


def _colour_id(found: Detection) -> int:
    """Return the id that determines the colour: the class or, with a tracker, the object."""
    return found.class_id if found.track_id is None else found.track_id


def _caption(found: Detection, *, label: bool, score: bool) -> str:
    name = found.label if found.track_id is None else f"{found.label} #{found.track_id}"
    return " ".join([name] * label + [f"{found.score:.0%}"] * score + _text_part(found) * label)


def _text_part(found: Detection) -> list[str]:
    if found.text is None:
        return []
    text = printable(found.text[:_MAX_DRAWN])
    is_short = len(found.text) <= _MAX_DRAWN and len(text) <= _MAX_DRAWN
    return [text if is_short else f"{text[: _MAX_DRAWN - 1]}…"]
