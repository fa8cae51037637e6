"""Track objects in videos.

    tracker = Tracker(rate=25)
    ids = tracker.update(boxes, scores, classes)  # next frame, from any detector

Scene tracks the results of a detector, and counts what crosses lines and what is in zones.
"""

from engine.track.counting import Counts, Line, Zone
from engine.track.scene import Scene, ScenePlan
from engine.track.tracker import NO_TRACK, Tracker

__all__ = ["NO_TRACK", "Counts", "Line", "Scene", "ScenePlan", "Tracker", "Zone"]
