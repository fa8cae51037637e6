"""Detect in frames of a camera: BGR arrays in a buffer that is used again and again."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import engine

picture = np.asarray(Image.open("docs/parcel.jpg").convert("RGB"))
with engine.load() as detector:
    frames = detector.pin(np.zeros((2, *picture.shape), np.uint8))
    for number in range(4):
        frame: NDArray[np.uint8] = frames[number % 2]
        frame[:] = picture[:, :, ::-1]  # a camera writes here, in BGR order
        result = detector(frame, bgr=True)
        print(number, len(result), f"{sum(result.timing.values()):.0f} ms")
