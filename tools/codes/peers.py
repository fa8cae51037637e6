"""Other programs that locate machine-readable codes in a picture."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import zxingcpp
from numpy.typing import NDArray

Corners = NDArray[np.float64]  # (4, 2)
Located = list[tuple[int, Corners]]  # class and corners
Finder = Callable[[NDArray[np.uint8]], Located]
Detect = Callable[[NDArray[np.uint8]], tuple[bool, NDArray[np.float32] | None]]

_LINEAR = 4
_MATRIX = {"QRCode": 0, "DataMatrix": 1, "Aztec": 2, "PDF417": 3}  # parts of names


def opencv_qr() -> Finder:
    detector = cv2.QRCodeDetector()
    return lambda picture: _locate_with_opencv(detector.detectMulti, picture, 0)


def opencv_barcode() -> Finder:
    detector = cv2.barcode.BarcodeDetector()
    return lambda picture: _locate_with_opencv(detector.detectMulti, picture, _LINEAR)


def zxing() -> Finder:
    """Return a finder that also returns codes that zxing-cpp located but could not read."""

    def find(picture: NDArray[np.uint8]) -> Located:
        located: Located = []
        for each in zxingcpp.read_barcodes(picture, return_errors=True):
            position = each.position
            points = (
                *(position.top_left, position.top_right),
                *(position.bottom_right, position.bottom_left),
            )
            corners = np.array([(point.x, point.y) for point in points], np.float64)
            located.append((_class_of(str(each.format)), corners))
        return located

    return find


# Name, constructor, supported classes.
PEERS: tuple[tuple[str, Callable[[], Finder], tuple[int, ...]], ...] = (
    ("OpenCV QRCodeDetector", opencv_qr, (0,)),
    ("OpenCV BarcodeDetector", opencv_barcode, (_LINEAR,)),
    ("zxing-cpp", zxing, (0, 1, 2, 3, _LINEAR)),
)


def _locate_with_opencv(detect: Detect, picture: NDArray[np.uint8], kind: int) -> Located:
    try:
        is_any, corners = detect(picture)
    except cv2.error:  # OpenCV 5.0's QR detector fails in k-means on a few pictures
        return []
    if not is_any or corners is None:
        return []
    return [(kind, np.asarray(each, np.float64).reshape(4, 2)) for each in corners]


def _class_of(name: str) -> int:
    plain = name.replace(" ", "")
    return next((kind for part, kind in _MATRIX.items() if part in plain), _LINEAR)
