"""Follow the boxes of any detector, and count what crosses a line: python 13_track.py"""

import numpy as np

from engine import Result
from engine.track import Line, Scene, Tracker

# A detector that sees a dog walk to the right, and now and then something else.
frames = [[(110 + 10 * number, 120, 0.9)] for number in range(20)]
frames[7] = [(180, 120, 0.3), (40, 40, 0.8)]

# The numbers alone: boxes in, identities out.
tracker = Tracker(high=0.5, rate=10)
ids = np.zeros(0, np.int64)
for found in frames:
    boxes = [[x - 20, y - 30, x + 20, y + 30] for x, y, _ in found]
    ids = tracker.update(boxes, scores=[score for *_, score in found])
print("identities:", tracker.count, ids)

# The same with results, which know labels, draw trails and count.
scene = Scene(Tracker(high=0.5, rate=10), lines=[Line((200, 0), (200, 240), "door")])
results: list[Result] = []
for number, found in enumerate(frames):
    rows = [(x / 320, y / 240, 40 / 320, 60 / 240) for x, y, _ in found]
    scores = np.array([score for *_, score in found], np.float32)
    classes = np.zeros(len(found), np.int64)
    result = Result((320, 240), np.array(rows, np.float32), scores, classes, names=["dog"])
    results.append(scene.follow(result))
    for each in results[-1]:
        print(f"frame {number}: {each.label} #{each.track_id} at {each.box.left + 20:.0f}")
print(results[-1].counts)
