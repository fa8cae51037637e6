"""Other programs that find machine-readable codes: where they say codes are in a picture."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import zxingcpp
from numpy.typing import NDArray

Corners = NDArray[np.float64]  # (4, 2)
Places = list[tuple[int, Corners]]  # class and corners
Finder = Callable[[NDArray[np.uint8]], Places]
Detect = Callable[[NDArray[np.uint8]], tuple[bool, NDArray[np.float32] | None]]

_LINEAR = 4
_MATRIX = {"QRCode": 0, "DataMatrix": 1, "Aztec": 2, "PDF417": 3}  # parts of names


def opencv_qr() -> Finder:
    detector = cv2.QRCodeDetector()
    return lambda picture: _of_opencv(detector.detectMulti, picture, 0)


def opencv_barcode() -> Finder:
    detector = cv2.barcode.BarcodeDetector()
    return lambda picture: _of_opencv(detector.detectMulti, picture, _LINEAR)


def zxing() -> Finder:
    """Codes that it located but could not read count as found."""

    def find(picture: NDArray[np.uint8]) -> Places:
        places: Places = []
        for each in zxingcpp.read_barcodes(picture, return_errors=True):
            at = each.position
            points = (at.top_left, at.top_right, at.bottom_right, at.bottom_left)
            corners = np.array([(point.x, point.y) for point in points], np.float64)
            places.append((_kind(str(each.format)), corners))
        return places

    return find


# Name, what makes it, the classes that it claims to find.
PEERS: tuple[tuple[str, Callable[[], Finder], tuple[int, ...]], ...] = (
    ("OpenCV QRCodeDetector", opencv_qr, (0,)),
    ("OpenCV BarcodeDetector", opencv_barcode, (_LINEAR,)),
    ("zxing-cpp", zxing, (0, 1, 2, 3, _LINEAR)),
)


def _of_opencv(detect: Detect, picture: NDArray[np.uint8], kind: int) -> Places:
    try:
        is_any, corners = detect(picture)
    except cv2.error:  # OpenCV 5.0's QR detector fails within k-means on a few pictures
        return []
    if not is_any or corners is None:
        return []
    return [(kind, np.asarray(each, np.float64).reshape(4, 2)) for each in corners]


def _kind(name: str) -> int:
    plain = name.replace(" ", "")
    return next((kind for part, kind in _MATRIX.items() if part in plain), _LINEAR)
