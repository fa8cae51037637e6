"""Made scenes: objects that move, and what a detector would find of them."""

from __future__ import annotations

import numpy as np

from engine.evaluate.mot import Tracks


def moving_objects(seed, *, objects, frames, size=(1280, 720)):
    """Return the ground truth of objects that come, bounce off the edges and leave."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(1, objects + 1):
        start = int(random.integers(0, frames // 2)) if number % 2 else 0
        end = min(frames, start + int(random.integers(frames // 3, frames)))
        height = random.uniform(60, 200)
        sides = np.array([height * random.uniform(0.35, 0.6), height])
        place, speed = random.uniform([0, 0], size - sides), random.normal(0, 4, 2) * [1, 0.3]
        for frame in range(start, end):
            place = place + speed
            outside = (place < 0) | (place > size - sides)
            speed = np.where(outside, -speed, speed)
            rows.append((frame + 1, number, *np.clip(place, 0, size - sides), *sides))
    table = np.array(sorted(rows))
    return Tracks(table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:])


def detections(truth, seed, *, missed=0.1, wrong=1.0, noise=0.04):
    """Yield the boxes (left, top, right, bottom) and scores that are found in each frame.

    Objects are hidden at times: their scores are low then. `wrong` is the number of boxes of a
    frame that are no object, `noise` the error of an edge in sides of the box.
    """
    random = np.random.default_rng(seed)
    hidden = dict.fromkeys(np.unique(truth.ids).tolist(), 0)
    for frame in range(1, truth.frames.max() + 1):
        boxes, scores = [], []
        here = truth.frames == frame
        for each, box in zip(truth.ids[here].tolist(), truth.boxes[here], strict=True):
            if hidden[each] < frame and random.random() < 0.02:
                hidden[each] = frame + int(random.integers(5, 20))
            is_hidden = hidden[each] >= frame
            if random.random() < (0.4 if is_hidden else missed):
                continue
            sides = np.tile(box[2:], 2)
            edges = np.concatenate([box[:2], box[:2] + box[2:]]) + random.normal(0, 1, 4) * (
                noise * sides
            )
            boxes.append(edges)
            scores.append(random.normal(*((0.35, 0.15) if is_hidden else (0.85, 0.1))))
        for _ in range(random.poisson(wrong)):
            corner, sides = random.uniform(0, 600, 2), random.uniform(20, 120, 2)
            boxes.append(np.concatenate([corner, corner + sides]))
            scores.append(random.beta(2, 5))
        yield np.array(boxes).reshape(-1, 4), np.clip(scores, 0.02, 0.99)


def follow(tracker, frames):
    """Return what a tracker finds in frames of boxes and scores."""
    rows = []
    for number, (boxes, scores) in enumerate(frames, start=1):
        ids = tracker.update(boxes, scores)
        for each, (left, top, right, bottom) in zip(ids.tolist(), boxes.tolist(), strict=True):
            if each > 0:
                rows.append((number, each, left, top, right - left, bottom - top))
    table = np.array(rows, float).reshape(-1, 6)
    return Tracks(table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:])
