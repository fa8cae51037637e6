"""Random pictures: objects, and detections that match, repeat, miss or confuse them."""

import numpy as np

from engine.evaluate.examples import Detections, Example, Objects


def random_examples(seed, *, pictures=12, classes=4, optional=0.15, ties=True):
    random = np.random.default_rng(seed)
    return [_example(random, number, classes, optional, ties) for number in range(pictures)]


def _example(random, number, classes, optional, ties):
    count = int(random.integers(0, 9))
    size = int(random.integers(300, 640)), int(random.integers(300, 640))
    sides = np.exp(random.uniform(np.log(8), np.log(250), (count, 2)))
    corners = random.uniform(0, 1, (count, 2)) * (np.array(size) - sides)
    boxes = np.concatenate([corners, sides], axis=1)
    class_ids = random.integers(0, classes, count)
    objects = Objects.of(
        boxes,
        class_ids,
        areas=sides.prod(axis=1) * random.uniform(0.4, 1, count),
        optional=random.random(count) < optional,
    )
    found, scores, found_ids = [], [], []
    for box, class_id in zip(boxes, class_ids.tolist(), strict=True):
        for _ in range(int(random.integers(0, 4))):
            shift = random.normal(0, 0.08, 4) * np.tile(box[2:], 2)
            found.append(np.maximum(box + shift, 0.5))
            found_ids.append(class_id if random.random() < 0.85 else int(random.integers(classes)))
            scores.append(random.random())
    for _ in range(int(random.integers(0, 6))):
        found.append(random.uniform(1, 200, 4))
        found_ids.append(int(random.integers(classes)))
        scores.append(random.random())
    scores = np.round(scores, 2) if ties else np.asarray(scores)
    # float32 and relative to the picture, like a network's outputs
    sides = np.tile(np.asarray(size, np.float64), 2)
    boxes = (np.reshape(found, (-1, 4)) / sides).astype(np.float32) * sides
    order = np.argsort(-scores, kind="stable") if len(scores) else np.zeros(0, int)
    found = Detections.of(boxes, scores, found_ids).take(order)
    return Example(number + 1, size, objects, found, f"{number + 1}.jpg")


def named(classes):
    return [f"class {number}" for number in range(classes)]
