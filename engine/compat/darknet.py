"""A drop-in replacement for darknet.py: scripts need one changed import.

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

import os
from collections.abc import Iterable, MutableSequence, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine import loading
from engine.arrays import Array
from engine.compat.darknet_structures import (
    BOX,
    DETECTION,
    IMAGE,
    METADATA,
    Detections,
    Network,
)
from engine.darknet.names import find_names, read_lines
from engine.errors import InputError
from engine.files.naming import shown
from engine.vision.boxes import Boxes, Suppression
from engine.vision.colours import colour_of
from engine.vision.image import Picture, read
from engine.vision.nms import survivors
from engine.vision.postprocess import is_representable, relative_to_picture
from engine.vision.resize import Placement, letterbox, stretch

__all__ = [
    "BOX",
    "DETECTION",
    "IMAGE",
    "METADATA",
    "bbox2points",
    "class_colors",
    "classify",
    "copy_image_from_bytes",
    "decode_detection",
    "detect",
    "detect_image",
    "do_nms_sort",
    "draw_boxes",
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
    "network_height",
    "network_width",
    "predict_image",
    "print_detections",
    "remove_negatives",
    "set_gpu",
]

Text = str | bytes
Corners = tuple[int, int, int, int]
Xywh = tuple[float, float, float, float]  # centre and size
Decoded = tuple[str, str, Xywh]  # label, confidence in percent as text, box
Scored = tuple[str, float, Xywh]  # label, probability, box

_device = "auto"  # global, because set_gpu() is called before load_network()


# ---------------------------------------------------------------- networks


def set_gpu(number: int) -> None:
    """Run networks that are loaded from now on on this GPU, or on the CPU if negative."""
    global _device
    _device = f"cuda:{number}" if number >= 0 else "cpu"


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
    return METADATA(len(names), names)


def network_width(network: Network) -> int:
    return network.detector.size[0]


def network_height(network: Network) -> int:
    return network.detector.size[1]


def free_network_ptr(network: Network) -> None:
    network.detector.close()


# ---------------------------------------------------------------- images


def make_image(width: int, height: int, channels: int) -> IMAGE:
    return IMAGE(width, height, channels, np.zeros((channels, height, width), np.float32))


def copy_image_from_bytes(image: IMAGE, content: bytes) -> None:
    """Fill an image with the bytes of a uint8 RGB array of shape (height, width, channels)."""
    pixels = np.frombuffer(content, np.uint8)
    if pixels.size != image.data.size:
        sides = f"{image.w} x {image.h} x {image.c}"
        raise InputError(f"bytes: expected {image.data.size} for {sides}, got {pixels.size}")
    image.data[...] = pixels.reshape(image.h, image.w, image.c).transpose(2, 0, 1)
    image.data /= 255


def load_image(path: Text, width: int, height: int) -> IMAGE:
    """Read a picture as RGB; stretch it unless width or height is 0."""
    picture = read(os.fsdecode(path), orient=False)
    size = (width, height) if width and height else picture.size
    pixels, _ = stretch(picture, size)
    return IMAGE(*size, 3, pixels)


def letterbox_image(image: IMAGE, width: int, height: int) -> IMAGE:
    pixels, _ = letterbox(_to_picture(image), (width, height))
    return IMAGE(width, height, image.c, pixels)


def free_image(image: IMAGE) -> None:
    """Do nothing, since Python frees the memory."""


# ---------------------------------------------------------------- detection


def detect_image(
    network: Network,
    class_names: Sequence[str],
    image: IMAGE,
    thresh: float = 0.5,
    hier_thresh: float = 0.5,
    nms: float = 0.45,
) -> list[Decoded]:
    """Return (label, confidence in percent as text, (x, y, w, h)) in pixels of the image.

    The list is sorted by the text, as in darknet.py: "9.5" comes after "85.2".
    """
    found = _detections(
        network, _network_input(network, image), (image.w, image.h), thresh, hier_thresh
    )
    if nms:
        do_nms_sort(found, len(found), len(class_names), nms)
    predictions = decode_detection(remove_negatives(found, class_names, len(found)))
    return sorted(predictions, key=lambda each: each[1])


def detect(
    network: Network,
    meta: METADATA,
    image: Text,
    thresh: float = 0.5,
    hier_thresh: float = 0.5,
    nms: float = 0.45,
) -> list[Scored]:
    """Detect in a file; return probabilities as numbers, best first (an older function)."""
    loaded = load_image(image, 0, 0)
    size = (loaded.w, loaded.h)
    found = _detections(network, _network_input(network, loaded), size, thresh, hier_thresh)
    if nms:
        do_nms_sort(found, len(found), meta.classes, nms)
    return sorted(remove_negatives(found, meta.names, len(found)), key=lambda each: -each[1])


def classify(network: Network, meta: METADATA, image: IMAGE) -> list[tuple[str, float]]:
    """Return each class with its probability, best first."""
    probabilities = network.detector.forward(_network_input(network, image))[0].ravel()
    pairs = zip(meta.names, probabilities.tolist(), strict=False)
    return sorted(pairs, key=lambda each: -each[1])


def predict_image(network: Network, image: IMAGE) -> None:
    """Store an image for get_network_boxes(), which runs the network."""
    network.picture = _network_input(network, image)


def get_network_boxes(
    network: Network,
    width: int,
    height: int,
    thresh: float,
    hier_thresh: float,
    class_map: None = None,
    relative: int = 0,
    count: MutableSequence[int] | Any = None,
    letter: int = 0,
) -> Detections:
    """Return the boxes of predict_image()'s image before NMS; store their number in `count[0]`."""
    if network.picture is None:
        raise InputError("get_network_boxes: expected a call of predict_image() before")
    size, kind = (width, height), "letterbox" if letter else "stretch"
    found = _detections(network, network.picture, size, thresh, hier_thresh, kind=kind)
    if relative:
        found.xywh[...] /= np.tile(np.array(size, np.float32), 2)
    if count is not None:
        count[0] = len(found)
    return found


def do_nms_sort(detections: Detections, num: int, classes: int, threshold: float) -> None:
    """Apply NMS to each class: set the probability of suppressed boxes to 0."""
    suppression = Suppression(threshold)
    for prob in detections.prob.T[:classes]:
        rows = np.flatnonzero(prob[:num] > 0)
        rows = rows[np.argsort(-prob[rows], kind="stable")]
        one_class = np.zeros(len(rows), np.int64)
        ranked = Boxes(detections.xywh[rows], prob[rows], one_class, detections.objectness[rows])
        prob[rows[~survivors(ranked, suppression)]] = 0


def remove_negatives(detections: Detections, class_names: Sequence[str], num: int) -> list[Scored]:
    """Return (label, probability, (x, y, w, h)) of each box and class with probability above 0."""
    return [
        (class_names[number], float(found.prob[number]), (*found.bbox,))
        for found in (detections[row] for row in range(num))
        for number in np.flatnonzero(found.prob[: len(class_names)] > 0).tolist()
    ]


def decode_detection(detections: Iterable[Scored]) -> list[Decoded]:
    """Convert probabilities to text in percent."""
    return [
        (str(label), str(round(probability * 100, 2)), box)
        for label, probability, box in detections
    ]


def free_detections(detections: Detections, num: int) -> None:
    """Do nothing, since Python frees the memory."""


# ---------------------------------------------------------------- output


def class_colors(names: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """Return a colour for each name, always the same ones."""
    return {name: colour_of(number) for number, name in enumerate(names)}


def bbox2points(bbox: Sequence[float]) -> Corners:
    """Return rounded left, top, right and bottom of a box given by centre and size."""
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
        # Pillow omits lines whose ends lie very far outside.
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
    return Picture(np.ascontiguousarray(image.data.transpose(1, 2, 0)))


def _network_input(network: Network, image: IMAGE) -> Array:
    size = network.detector.size
    if (image.w, image.h) == size:
        return image.data[None].copy()
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
) -> Detections:
    detector = network.detector
    (rows,) = detector.candidates(pixels, threshold=thresh, hierarchy=hier_thresh)
    rows = rows[is_representable(rows)]
    rows = relative_to_picture(rows, Placement(size, detector.size, kind))
    in_pixels = rows[:, :4] * np.tile(np.array(size, np.float32), 2)
    return Detections(in_pixels, rows[:, 5:].copy(), rows[:, 4])
