"""A drop-in replacement for darknet.py: scripts only need to change one import.

    from engine.compat import darknet              # instead of: import darknet

    network, names, colors = darknet.load_network("yolov4.cfg", "coco.data", "yolov4.weights")
    image = darknet.make_image(darknet.network_width(network), darknet.network_height(network), 3)
    darknet.copy_image_from_bytes(image, rgb.tobytes())
    detections = darknet.detect_image(network, names, image, thresh=0.5)

As in darknet.py, boxes are centre and size in pixels of the given image; the image is stretched to
the size of the network, ignoring letter_box in the .cfg; NMS compares plain IoU (do_nms_sort),
ignoring nms_kind; confidences are strings in percent, and results are sorted by these strings.
Unlike in darknet.py, class colours are always the same, names are str, and freeing is unnecessary.
New programs should use engine.load(), which gives the numbers of the darknet command.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterable, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_void_p, cast, pointer
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import loading
from engine.arrays import Array
from engine.compat.darknet_structures import (
    BOX,
    DETECTION,
    DETNUMPAIR,
    IMAGE,
    METADATA,
    Detections,
    Name,
    Network,
    Numbers,
)
from engine.darknet.names import find_names, read_lines
from engine.errors import InputError
from engine.files.naming import shown
from engine.version import __version__
from engine.vision.boxes import Suppression
from engine.vision.colours import colour_of
from engine.vision.image import Picture, read
from engine.vision.postprocess import is_representable, or_error, relative_to_picture
from engine.vision.resize import Placement, letterbox, stretch
from engine.vision.rows import split_by_objectness, suppress_in_place

__all__ = [
    "BOX",
    "DETECTION",
    "DETNUMPAIR",
    "IMAGE",
    "METADATA",
    "POINTER",
    "array_to_image",
    "bbox2points",
    "byref",
    "c_char_p",
    "c_float",
    "c_int",
    "c_void_p",
    "cast",
    "class_colors",
    "classify",
    "copy_image_from_bytes",
    "decode_detection",
    "detect",
    "detect_image",
    "do_nms_obj",
    "do_nms_sort",
    "draw_boxes",
    "free_batch_detections",
    "free_detections",
    "free_image",
    "free_network_ptr",
    "get_network_boxes",
    "letterbox_image",
    "load_image",
    "load_meta",
    "load_net",
    "load_net_custom",
    "load_network",
    "make_image",
    "network_dimensions",
    "network_height",
    "network_predict_batch",
    "network_width",
    "performDetect",
    "pointer",
    "predict_image",
    "predict_image_letterbox",
    "print_detections",
    "remove_negatives",
    "remove_negatives_faster",
    "reset_rnn",
    "rgbgr_image",
    "set_gpu",
    "set_output_stream",
    "set_verbose",
    "show_version_info",
    "version_short",
    "version_string",
]

_log = logging.getLogger("engine")

Text = str | bytes
Corners = tuple[int, int, int, int]
Xywh = tuple[float, float, float, float]  # centre and size
Decoded = tuple[str, str, Xywh]  # label, confidence in percent as text, box
Scored = tuple[str, float, Xywh]  # label, probability, box

_LEAVE_OUT = "Leave out the results of the class"
_INSTEAD = {
    "add_skipped_class": _LEAVE_OUT,
    "clear_skipped_classes": _LEAVE_OUT,
    "del_skipped_class": _LEAVE_OUT,
    "free_ptrs": "Python frees what is no longer used",
    "hasGPU": "Networks run on a GPU if there is one; set_gpu(-1) selects the CPU",
    "init_cpu": "Nothing has to be prepared; set_gpu(-1) selects the CPU",
    "lib": "Functions of the library are functions of this module, such as predict_image()",
    "make_network_boxes": "Use predict_image() and get_network_boxes(), which makes them",
    "network_predict": "Use predict_image(), or engine.load(…).forward() for arrays",
    "non_max_suppression_fast": "Use do_nms_sort() or do_nms_obj() before remove_negatives()",
    "netMain": "performDetect() keeps its network to itself",
    "performBatchDetect": "Use network_predict_batch()",
    "predict": "Use predict_image(), or engine.load(…).forward() for arrays",
}

_FILES = "./cfg/yolov4.cfg", "yolov4.weights", "./cfg/coco.data"  # defaults of performDetect()

_device = "auto"  # global, because set_gpu() is called before load_network()
_performing: tuple[tuple[Text, ...], Network, METADATA] | None = None  # for performDetect()


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Raise an error that says what to use in place of a missing name of darknet.py."""
        hint = f". {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"{name}: engine.compat.darknet has no such attribute{hint}")


def __dir__() -> list[str]:
    """Return only darknet.py's names, which Python then suggests for a misspelt name."""
    return __all__


# ---------------------------------------------------------------- networks


def set_gpu(number: int) -> None:
    """Run networks that are loaded later on this GPU, or on the CPU if the number is negative.

    0 is the CPU on a machine without a GPU, as for darknet's builds without CUDA.
    """
    global _device
    _device = "cpu" if number < 0 else f"cuda:{number}" if number else "auto"


def load_network(
    config_file: Text, data_file: Text, weights: Text, batch_size: int = 1
) -> tuple[Network, list[str], dict[str, tuple[int, int, int]]]:
    """Return the network, its class names, and a colour for each name."""
    network = _load(config_file, weights, batch_size, data_file=data_file)
    names = list(network.detector.labels)
    return network, names, class_colors(names)


def load_net_custom(config_file: Text, weights: Text, clear: int, batch_size: int) -> Network:
    return _load(config_file, weights, batch_size)


def load_net(config_file: Text, weights: Text, clear: int = 0) -> Network:
    return load_net_custom(config_file, weights, clear, 1)


def load_meta(data_file: Text) -> METADATA:
    names = read_lines(find_names(os.fsdecode(data_file)))
    return METADATA(len(names), [Name(each) for each in names])


def network_width(network: Network) -> int:
    return network.detector.size[0]


def network_height(network: Network) -> int:
    return network.detector.size[1]


def network_dimensions(network: Network) -> tuple[int, int, int]:
    """Return width, height and channels of the network's input."""
    return *network.detector.size, network.detector.graph.net.shape.channels


def free_network_ptr(network: Network) -> None:
    network.detector.close()


def reset_rnn(network: Network) -> None:
    """Set the state of a recurrent network back to zero."""
    network.detector.reset()


# ---------------------------------------------------------------- hank-ai's fork


def version_string() -> bytes:
    """Return the version of the engine, as bytes like those of ctypes."""
    return __version__.encode()


version_short = version_string


def show_version_info() -> None:
    print(f"engine {__version__}")


def set_verbose(flag: bool | int) -> None:
    """Do nothing, since loading prints nothing."""


def set_output_stream(file: Text) -> None:
    """Do nothing, since loading prints nothing that could go to a file."""


# ---------------------------------------------------------------- images


def make_image(width: int, height: int, channels: int) -> IMAGE:
    return IMAGE(
        width, height, channels, np.zeros(channels * height * width, np.float32).view(Numbers)
    )


def copy_image_from_bytes(image: IMAGE, content: bytes) -> None:
    """Fill an image from the bytes of a uint8 RGB array of shape (height, width, channels)."""
    pixels = np.frombuffer(content, np.uint8)
    size = image.w * image.h * image.c
    if pixels.size != size:
        sides = f"{image.w} x {image.h} x {image.c}"
        raise InputError(f"bytes: expected {size} for {sides}, got {pixels.size}")
    values = image.numbers(size)
    values[:] = pixels.reshape(image.h, image.w, image.c).transpose(2, 0, 1).reshape(-1)
    values /= 255


def array_to_image(array: Array) -> tuple[IMAGE, Array]:
    """Return an image of a uint8 array (height, width, channels), and the array of its values."""
    pixels = np.asarray(array)
    if pixels.ndim != 3:
        raise InputError(f"array: expected (height, width, channels), got {pixels.shape}")
    height, width, channels = pixels.shape
    values = np.ascontiguousarray(pixels.transpose(2, 0, 1), np.float32).reshape(-1) / 255
    return IMAGE(width, height, channels, values.view(Numbers)), values


def load_image(path: Text, width: int, height: int, channels: int = 3) -> IMAGE:
    """Read a picture as RGB; stretch it to this size unless width or height is 0.

    hank-ai's fork also passes the number of channels: 3, or 0 for any.
    """
    if channels not in (0, 3):
        raise InputError(f"load_image: expected 3 channels, got {channels}")
    picture = read(os.fsdecode(path), orient=False)
    size = (width, height) if width and height else picture.size
    pixels, _ = stretch(picture, size)
    return IMAGE(*size, 3, pixels.reshape(-1).view(Numbers))


def letterbox_image(image: IMAGE, width: int, height: int) -> IMAGE:
    pixels, _ = letterbox(_to_picture(image), (width, height))
    return IMAGE(width, height, image.c, pixels.reshape(-1).view(Numbers))


def rgbgr_image(image: IMAGE) -> None:
    """Swap red and blue in place."""
    if image.c != 3:
        raise InputError(f"image: expected 3 channels, got {image.c}")
    planes = image.numbers(3 * image.h * image.w).reshape(3, -1)
    planes[[0, 2]] = planes[[2, 0]]


def free_image(image: IMAGE) -> None:
    """Do nothing, since Python frees the memory."""


# ---------------------------------------------------------------- detection


@overload
def detect_image(
    network: Network,
    class_names: Sequence[str],
    image: IMAGE,
    thresh: float = 0.5,
    hier_thresh: float = 0.5,
    nms: float = 0.45,
    debug: bool = False,
) -> list[Decoded]: ...


@overload
def detect_image(
    network: Network,
    class_names: METADATA,
    image: IMAGE,
    thresh: float = 0.5,
    hier_thresh: float = 0.5,
    nms: float = 0.45,
    debug: bool = False,
) -> list[Scored]: ...


def detect_image(
    network: Network,
    class_names: Sequence[str] | METADATA,
    image: IMAGE,
    thresh: float = 0.5,
    hier_thresh: float = 0.5,
    nms: float = 0.45,
    debug: bool = False,
) -> list[Decoded] | list[Scored]:
    """Return (label, confidence in percent as text, (x, y, w, h)) in pixels of the image.

    The list is sorted by the text, as in darknet.py: "9.5" comes after "85.2". Given the METADATA
    of load_meta(), as until 2020, confidences are probabilities, best first. `debug` does nothing.
    """
    is_old = isinstance(class_names, METADATA)
    names: Sequence[str] = class_names.names if isinstance(class_names, METADATA) else class_names
    (found,) = _detections(
        network, _network_input(network, image), (image.w, image.h), thresh, hier_thresh
    )
    if nms:
        do_nms_sort(found, len(found), len(names), nms)
    scored = remove_negatives(found, names, len(found))
    if is_old:
        return sorted(scored, key=lambda each: -each[1])
    return sorted(decode_detection(scored), key=lambda each: each[1])


def detect(
    network: Network,
    meta: METADATA,
    image: Text | IMAGE | Array,
    thresh: float = 0.5,
    hier_thresh: float = 0.5,
    nms: float = 0.45,
    debug: bool = False,
) -> list[Scored]:
    """Detect in a file, an image or an RGB array; return probabilities as numbers, best first.

    This is an older function.
    """
    if isinstance(image, np.ndarray):
        image, _ = array_to_image(image)
    elif not isinstance(image, IMAGE):
        image = load_image(image, 0, 0)
    return detect_image(network, meta, image, thresh, hier_thresh, nms)


def performDetect(
    imagePath: Text = "data/dog.jpg",
    thresh: float = 0.25,
    configPath: Text = _FILES[0],
    weightPath: Text = _FILES[1],
    metaPath: Text = _FILES[2],
    showImage: bool = True,
    makeImageOnly: bool = False,
    initOnly: bool = False,
) -> list[Scored] | dict[str, Any] | None:
    """Detect in a file, as darknet.py did until 2020; the first call loads the network.

    The network is kept, even for calls that omit some or all of its files. Return the detections of
    detect(); with `showImage`, return a dictionary that also holds the picture with boxes: no
    window is opened.
    """
    global _performing
    kept = _performing  # another thread may replace it
    files: tuple[Text, ...] = configPath, weightPath, metaPath
    if kept is not None:
        names = zip(files, _FILES, kept[0], strict=True)
        files = tuple(own if given == usual else given for given, usual, own in names)
    if kept is None or files != kept[0]:
        config, weights, data = files
        kept = _performing = files, load_net(config, weights), load_meta(data)
    _, network, meta = kept
    if initOnly:
        return None
    image = load_image(imagePath, 0, 0)
    found = detect(network, meta, image, thresh)
    if not showImage:
        return found
    drawn = np.array(_to_picture(image).to_image())
    draw_boxes(decode_detection(found), drawn, class_colors(meta.names))
    caption = [f"{label}: {np.rint(100 * probability)}%" for label, probability, _ in found]
    return {"detections": found, "image": drawn, "caption": "\n<br/>".join(caption)}


def classify(network: Network, meta: METADATA, image: IMAGE) -> list[tuple[str, float]]:
    """Return each class with its probability, best first."""
    probabilities = network.detector.forward(_network_input(network, image))[0].ravel()
    pairs = zip(meta.names, probabilities.tolist(), strict=False)
    return sorted(pairs, key=lambda each: -each[1])


def predict_image(network: Network, image: IMAGE) -> Outputs:
    """Store an image for get_network_boxes(), and return the outputs of the network."""
    network.picture = _network_input(network, image)
    return Outputs(network, network.picture)


def predict_image_letterbox(network: Network, image: IMAGE) -> Outputs:
    """Do the same with letterboxing; get_network_boxes() then needs letter=1."""
    return predict_image(network, letterbox_image(image, *network.detector.size))


class Outputs:
    """The values of the last layer, computed on access because detection does not need them."""

    def __init__(self, network: Network, pixels: Array) -> None:
        self._network, self._pixels = network, pixels
        self._values: Array | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if self._values is None:
            self._values = self._network.detector.forward(self._pixels)[0].ravel()
        return self._values if dtype is None else self._values.astype(dtype)

    def __len__(self) -> int:
        return len(self.__array__())

    def __getitem__(self, which: int | slice) -> Any:
        """Return a number or, for a slice, a list as from a ctypes pointer."""
        return self.__array__()[which].tolist()


def get_network_boxes(
    network: Network,
    width: int | c_int,
    height: int | c_int,
    thresh: float | c_float,
    hier_thresh: float | c_float,
    class_map: None = None,
    relative: int = 0,
    count: Any = None,
    letter: int = 0,
) -> Detections:
    """Return the boxes of predict_image()'s image before NMS; store their number in `count`.

    `count` is a c_int, a pointer to one, or a list with one element.
    """
    if network.picture is None:
        raise InputError("get_network_boxes: expected a call of predict_image() before")
    (found,) = _detections(
        *(network, network.picture, (_plain(width), _plain(height))),
        *(_plain(thresh), _plain(hier_thresh)),
        kind="letterbox" if letter else "stretch",
        relative=bool(relative),
    )
    if isinstance(count, c_int):
        count.value = len(found)
    elif hasattr(count, "_obj"):  # byref(c_int())
        count._obj.value = len(found)
    elif count is not None:
        count[0] = len(found)
    return found


def network_predict_batch(
    network: Network,
    image: IMAGE,
    batch_size: int | c_int,
    width: int | c_int,
    height: int | c_int,
    thresh: float | c_float,
    hier_thresh: float | c_float,
    class_map: None = None,
    relative: int = 0,
    letter: int = 0,
) -> list[DETNUMPAIR]:
    """Return the boxes of several images before NMS, in pixels of a `width` x `height` image.

    The data of `image` is `batch_size` consecutive images in the network's size.
    """
    pixels = image.rows(_plain(batch_size), network.detector.graph.net.shape.sides)
    found = _detections(
        *(network, pixels, (_plain(width), _plain(height)), _plain(thresh), _plain(hier_thresh)),
        kind="letterbox" if letter else "stretch",
        relative=bool(relative),
    )
    return [DETNUMPAIR(len(each), each) for each in found]


def do_nms_sort(
    detections: Detections, num: int | c_int, classes: int | c_int, threshold: float | c_float
) -> None:
    """Apply NMS per class: set the probability of suppressed boxes to 0; sort as darknet does."""
    rows, end = _rows(detections, num), 5 + _plain(classes)
    rows[:, :end], order = suppress_in_place(rows[:, :end], Suppression(_plain(threshold)))
    _put_back(detections, rows[order], sorted_by=_plain(classes) - 1)


def do_nms_obj(
    detections: Detections, num: int | c_int, classes: int | c_int, threshold: float | c_float
) -> None:
    """Apply NMS across classes; sort by objectness, the suppressed boxes last."""
    rows = _rows(detections, num)
    kept, others = split_by_objectness(rows, Suppression(_plain(threshold)))
    others[:, 4 : 5 + _plain(classes)] = 0
    _put_back(detections, np.concatenate([kept, others]), sorted_by=-1)


def remove_negatives(
    detections: Detections, class_names: Sequence[str], num: int | c_int
) -> list[Scored]:
    """Return (label, probability, (x, y, w, h)) of each box and class with probability above 0."""
    return [
        (class_names[number], found.prob[number], box)
        for found in (detections[row] for row in range(_plain(num)))
        for box in [(*found.bbox,)]
        for number in np.flatnonzero(found.prob > 0).tolist()
        if number < len(class_names)
    ]


def remove_negatives_faster(
    detections: Detections, class_names: Sequence[str], num: int | c_int
) -> list[Scored]:
    """Return the best class of each box only."""
    rows = (detections[row] for row in range(_plain(num)))
    best = ((found, found.best_class_idx) for found in rows)
    return [
        (class_names[number], found.prob[number], (*found.bbox,))
        for found, number in best
        if 0 <= number < len(class_names)
    ]


def decode_detection(detections: Iterable[Scored]) -> list[Decoded]:
    """Convert probabilities to text in percent."""
    return [
        (str(label), str(round(probability * 100, 2)), box)
        for label, probability, box in detections
    ]


def free_detections(detections: Detections, num: int | c_int) -> None:
    """Do nothing, since Python frees the memory."""


def free_batch_detections(detections: list[DETNUMPAIR], batch_size: int | c_int) -> None:
    """Do nothing, since Python frees the memory."""


# ---------------------------------------------------------------- output


def class_colors(names: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """Return a fixed colour for each name."""
    return {name: colour_of(number) for number, name in enumerate(names)}


def bbox2points(bbox: Sequence[float]) -> Corners:
    """Return the rounded left, top, right and bottom edges of a box given by centre and size."""
    x, y, w, h = bbox
    return round(x - w / 2), round(y - h / 2), round(x + w / 2), round(y + h / 2)


def print_detections(detections: Iterable[Decoded], coordinates: bool = False) -> None:
    print("\nObjects:")
    for label, confidence, (x, y, w, h) in detections:
        where = f"    (left_x: {x:.0f}   top_y:  {y:.0f}   width:   {w:.0f}   height:  {h:.0f})"
        print(f"{shown(str(label))}: {confidence}%{where if coordinates else ''}")


def draw_boxes(
    detections: Iterable[Decoded], image: Array, colors: dict[str, tuple[int, int, int]]
) -> Array:
    """Draw boxes on a uint8 array of shape (height, width, 3), RGB or BGR, and return it."""
    drawn = Image.fromarray(image)
    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default()
    for label, confidence, box in detections:
        points = bbox2points(box)
        # Pillow omits lines whose ends are very far outside.
        left, right = (min(max(x, -1), drawn.width) for x in points[::2])
        top, bottom = (min(max(y, -1), drawn.height) for y in points[1::2])
        pen.rectangle((left, top, right, bottom), outline=colors[label])
        text = f"{label} [{float(confidence):.2f}]"
        pen.text((left, top - 14), text, fill=colors[label], font=font)
    if image.flags.writeable:
        image[...] = np.asarray(drawn)
        return image
    return np.array(drawn)


# ---------------------------------------------------------------- internals


def _load(
    config_file: Text, weights: Text, batch_size: int, *, data_file: Text | None = None
) -> Network:
    loaded = loading.load(
        *(os.fsdecode(config_file), os.fsdecode(weights)),
        data=None if data_file is None else os.fsdecode(data_file),
        device=_device,
        batch=batch_size,
    )
    return Network(loaded)


def _to_picture(image: IMAGE) -> Picture:
    if min(image.w, image.h) < 1:
        raise InputError(f"image: expected 1 x 1 pixel or more, got {image.w} x {image.h}")
    (planes,) = image.rows(1, (image.c, image.h, image.w))
    return Picture(np.ascontiguousarray(planes.transpose(1, 2, 0)))


def _network_input(network: Network, image: IMAGE) -> Array:
    size = network.detector.size
    if (image.w, image.h) == size:
        return image.rows(1, (image.c, image.h, image.w))
    pixels, _ = stretch(_to_picture(image), size)
    return pixels[None]


def _detections(
    network: Network,
    pixels: Array,
    size: tuple[int, int],
    thresh: float,
    hier_thresh: float,
    *,
    kind: Any = "stretch",
    relative: bool = False,
) -> list[Detections]:
    detector = network.detector
    placement = Placement(size, detector.size, kind)
    scale = np.ones(4, np.float32) if relative else np.tile(np.array(size, np.float32), 2)
    found = []
    for rows in detector.candidates(pixels, threshold=thresh, hierarchy=hier_thresh):
        rows, error = or_error(rows, "image")
        if error:
            _log.warning("%s", error)
        placed = relative_to_picture(rows[is_representable(rows)], placement)
        found.append(Detections(placed[:, :4] * scale, placed[:, 5:].copy(), placed[:, 4]))
    return found


def _rows(detections: Detections, num: int | c_int) -> Array:
    rows: Array = np.column_stack([detections.xywh, detections.objectness, detections.prob])
    return np.asarray(rows[: _plain(num)])


def _put_back(detections: Detections, rows: Array, *, sorted_by: int) -> None:
    count = len(rows)
    detections.sort_class[:count] = sorted_by
    detections.xywh[:count], detections.objectness[:count] = rows[:, :4], rows[:, 4]
    detections.prob[:count] = rows[:, 5:]


def _plain(number: Any) -> Any:
    """Return the value of a ctypes number, such as c_float(0.5)."""
    return number.value if isinstance(number, ctypes._SimpleCData) else number
