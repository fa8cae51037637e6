"""Cases of blobs, NMS and small networks that OpenCV and the engine both run."""

from pathlib import Path

import numpy as np

from tests.compat.cv2_dnn import networks

CV_8U = 0

# height, width of the picture; width, height of the blob; whether it is cropped
BLOBS = {
    f"{height}x{width}-{size[0]}x{size[1]}{'-crop' if crop else ''}": (height, width, size, crop)
    for height, width in ((100, 77), (33, 64), (200, 200), (480, 640))
    for size in ((50, 50), (13, 77), (100, 100), (416, 416), (320, 224))
    for crop in (False, True)
}

NMS = {
    f"{kind}{seed}": (kind, seed) for kind in ("plain", "batched", "adaptive") for seed in range(12)
}


def blob_of(dnn, name):
    height, width, size, crop = BLOBS[name]
    image = networks.noise(height, width)
    return dnn.blobFromImage(image, 1, size, swapRB=True, crop=crop, ddepth=CV_8U)


def nms_of(dnn, name):
    kind, seed = NMS[name]
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 60))
    boxes = random.integers(0, 60, (count, 4)) / (7 if seed % 2 else 1)
    boxes[:, 2:] /= 2
    scores = random.random(count).astype(np.float32)
    if seed % 3 == 0:
        scores = np.round(scores, 1)  # many are equal
    threshold = float(random.random())
    rows, scores = boxes.tolist(), scores.tolist()
    if kind == "batched":
        return dnn.NMSBoxesBatched(rows, scores, [i % 3 for i in range(count)], 0.1, threshold)
    eta, most = (0.9, seed) if kind == "adaptive" else (1.0, 0)
    return dnn.NMSBoxes(rows, scores, 0.1, threshold, eta, most)


def small_model(folder, name):
    """Write the .cfg of a small network and weights from a fixed seed; return their paths."""
    cfg, weights = Path(folder) / "net.cfg", Path(folder) / "net.weights"
    cfg.write_text(networks.SMALL[name])
    random = np.random.default_rng(2)
    parts = [np.array([0, 2, 5], np.int32).tobytes(), np.int64(0).tobytes()]
    for filters, inputs, has_norm in _convolutions(name):
        parts.append(random.normal(0, 0.2, filters).astype(np.float32).tobytes())
        if has_norm:
            parts.extend(
                random.uniform(0.5, 1.5, filters).astype(np.float32).tobytes() for _ in range(3)
            )
        values = random.normal(0, (2 / inputs) ** 0.5, filters * inputs)
        parts.append(values.astype(np.float32).tobytes())
    weights.write_bytes(b"".join(parts))
    return cfg, weights


def _convolutions(name):
    """Return filters, inputs of a filter, and whether a batch norm follows, in file order."""
    norm = name == "normalised detector"
    if "detector" in name:
        return [(8, 27, norm), (4, 36, norm), (8, 8, norm), (14, 8, False), (7, 12, False)]
    if name == "region":
        return [(8, 27, False), (32, 32, False), (16, 32, False)]
    return [(6, 27, False), (12, 384, False), (5, 12, False)]
