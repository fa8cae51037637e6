"""Small pictures and videos for tests."""

from pathlib import Path

import numpy as np
from PIL import Image

# sizes of a picture and of the network
ODD_SIZES = [
    ((23, 17), (32, 24)),
    ((32, 24), (23, 17)),
    ((64, 48), (64, 48)),
    ((200, 3), (7, 90)),
    ((3, 200), (90, 7)),
    ((1, 9), (8, 8)),
    ((9, 1), (8, 8)),
    ((1, 1), (5, 5)),
    ((20, 30), (1, 1)),
    ((20, 30), (1, 8)),
    ((20, 30), (8, 1)),
    ((2, 2), (2, 2)),
]


def write_picture(path, size=(50, 40), seed=0):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def write_video(path, count=6, size=(64, 48), rate=10):
    """Write grey frames of growing brightness: frame n has the value 40 n."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream(container.default_video_codec, rate=rate)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        for number in range(count):
            grey = np.full((size[1], size[0], 3), 40 * number % 256, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
        container.mux(stream.encode())
    return path
