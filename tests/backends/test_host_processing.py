"""Tests of host_processing.py: tickets run once, and pictures have settings of their own."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.base import DetectionSettings, Placed
from engine.backends.host_processing import HostProcessing, StagedTicket, boxes_of, scaled
from engine.vision.boxes import Suppression
from engine.vision.postprocess import postprocess
from engine.vision.resize import Placement

PLACEMENT = Placement((8, 6), (4, 4), "letterbox")
ROWS = np.array(
    [[0.5, 0.5, 0.4, 0.4, 0.9, 0.8, 0.0], [0.4, 0.6, 0.1, 0.1, 0.5, 0.0, 0.4]], np.float32
)


def picture(seed: int = 0) -> Placed:
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    return Placed(pixels, PLACEMENT)


class Program(HostProcessing):
    """A network that finds ROWS in every picture and records the thresholds."""

    def __init__(self) -> None:
        self.thresholds: list[float] = []

    def forward(self, images):
        return (images.sum(axis=(2, 3)),)

    def detect(self, images, *, threshold, hierarchy=0.5):
        self.thresholds.append(threshold)
        return [ROWS[ROWS[:, 4] > threshold] for _ in images]


def test_a_ticket_runs_its_stages_once_and_names_their_times():
    calls = []
    ticket = StagedTicket(("one", lambda _: calls.append(1) or 2), ("two", lambda given: given * 3))
    assert ticket.milliseconds == {}
    assert ticket.result() == ticket.result() == 6
    assert calls == [1]
    assert list(ticket.milliseconds) == ["one", "two"]


def test_a_ticket_raises_its_error_every_time():
    ticket = StagedTicket(("one", lambda _: 1 / 0), ("two", lambda given: given))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            ticket.result()
    assert "two" not in ticket.milliseconds


def test_a_run_starts_when_its_result_is_requested():
    program = Program()
    ticket = program.submit([picture()], [DetectionSettings(0.3, Suppression())])
    assert program.thresholds == []
    (boxes,) = ticket.result()
    assert program.thresholds == [0.3]
    expected = postprocess(ROWS, PLACEMENT, Suppression())
    np.testing.assert_array_equal(boxes.xywh, expected.xywh)


def test_pictures_may_have_their_own_settings():
    settings = [
        DetectionSettings(0.3, Suppression()),
        DetectionSettings(0.6, Suppression()),
        DetectionSettings(0.3, Suppression(), classes=(1,)),
        DetectionSettings(0.3, Suppression(), max_detections=1),
    ]
    program = Program()
    found = program.submit([picture()] * 4, settings).result()
    assert program.thresholds == [0.3]  # the lowest, so that no candidate is missing
    assert [each.class_ids.tolist() for each in found] == [[0, 1], [0], [1], [0]]
    alone = [boxes_of([picture()], [each], [ROWS])[0] for each in (settings[0], settings[2])]
    assert [len(each) for each in alone] == [2, 1]


def test_unscaled_pictures_are_scaled():
    given = [picture(0), picture(1)]
    rows = scaled(given)
    assert rows.shape == (2, 3, 4, 4)
    ahead = [each._replace(row=row) for each, row in zip(given, rows, strict=True)]
    np.testing.assert_array_equal(scaled(ahead), rows)
    (sums,) = Program().submit_forward(given).result()
    np.testing.assert_array_equal(sums, rows.sum(axis=(2, 3)))
