"""Records in the order of threads become darknet's lists of rows."""

import numpy as np
import pytest

from engine.backends.cuda.ops import heads
from engine.backends.cuda.runtime import detection_buffer
from engine.plan.build import Plan
from engine.plan.ops import GridHead, RegionHead, Tensor, YoloHead
from engine.plan.shapes import Shape

YOLO = YoloHead(
    Tensor(1, Shape(3 * 7, 4, 5)), 2, anchors=((1, 1), (2, 2), (3, 3)), network=(64, 64)
)
REGION = RegionHead(Tensor(2, Shape(2 * 9, 3, 3)), 4, anchors=((1, 1), (2, 2)), grid=(3, 3))
GRID = GridHead(Tensor(3, Shape(100)), 2, side=3, boxes=2)
PLAN = Plan(Tensor(0, Shape(3, 8, 8)), (), (), (), heads=(YOLO, REGION))


@pytest.mark.parametrize(("head", "expected"), [(YOLO, 60), (REGION, 18), (GRID, 18)])
def test_there_is_a_cell_for_every_anchor(head, expected):
    assert heads.cells(head) == expected


def test_a_network_without_heads_needs_no_room():
    assert detection_buffer.room(Plan(PLAN.source, (), (), ()), 3) is None


def test_heads_follow_one_another_and_the_widest_sets_the_columns():
    room = detection_buffer.room(PLAN, 2)
    assert room.firsts == {YOLO: 0, REGION: 60}
    assert (room.per_row, room.capacity, room.columns) == (78, 156, 6 + 4)


def test_what_is_copied_at_once_never_exceeds_what_there_is():
    small = detection_buffer.room(PLAN, 1)
    assert small.copied_words == small.words
    wide = detection_buffer.Room(rows=2, columns=8, per_row=10_000, firsts={})
    assert wide.copied_words < wide.words // 10


def test_records_in_any_order_become_rows_in_darknets_order():
    room = detection_buffer.room(PLAN, 3)
    numbers = np.array([170, 3, 77, 0, 156], np.uint32)  # rows 2, 0, 0, 0, 2
    words = np.zeros(room.words, np.uint32)
    words[0] = len(numbers)
    values = np.arange(len(numbers) * 9, dtype=np.float32).reshape(-1, 9)
    records = np.concatenate([numbers[:, None], values.view(np.uint32)], axis=1)
    words[detection_buffer.HEADER_WORDS :][: records.size] = records.ravel()

    first, second, third = room.sorted_rows(room.records(words, len(numbers)), 3)
    np.testing.assert_array_equal(first, values[[3, 1, 2]])
    assert second.shape == (0, 9)
    np.testing.assert_array_equal(third, values[[4, 0]])
    assert first.dtype == np.float32


def test_no_record_is_an_empty_list_for_each_row():
    room = detection_buffer.room(PLAN, 2)
    rows = room.sorted_rows(room.records(np.zeros(room.words, np.uint32), 0), 2)
    assert [each.shape for each in rows] == [(0, 9), (0, 9)]
