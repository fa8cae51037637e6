"""What travels to a device before the rest, and what need not travel again."""

import os
import signal
import threading

import numpy as np
import pytest

from engine.backends.base import Placed
from engine.backends.cuda.runtime import picture_staging
from engine.darknet import cfg, weights
from engine.darknet import graph as network_graph
from engine.darknet.lower import lower
from engine.plan.build import PlanBuilder
from engine.plan.shapes import Shape
from engine.vision.resize import Placement, scale_into
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostCalls

pytestmark = needs_gxx


class NotedCalls(HostCalls):
    """Notes what was uploaded, and where to."""

    def __init__(self, streams):
        super().__init__(streams)
        self.uploads = []

    def upload(self, target, source, size, stream):
        self.uploads.append((target, size, stream))
        super().upload(target, source, size, stream)


@pytest.fixture
def plain_device(host):
    context = host.context
    context.driver_api = NotedCalls(context.driver.streams)
    context.enqueue_lock._driver_api = context.driver_api
    return host


@pytest.fixture
def device(plain_device, monkeypatch):
    """On which little is much."""
    monkeypatch.setattr(picture_staging, "_WORTH_TWO_WAYS", 500)
    return plain_device


@pytest.fixture
def uploads(device):
    return device.context.driver_api.uploads


SIDES = (16, 12)


def program_of(device, batch=2):
    """Whose output is its input."""
    builder = PlanBuilder(Shape(3, SIDES[1], SIDES[0]))
    return device.compile(builder.build((), (builder.source,)), batch=batch)


def batch_of(rows, seed, size=(30, 20)):
    random = np.random.default_rng(seed)
    shape = (rows, size[1], size[0], 3)
    return [
        Placed(each, Placement(size, SIDES)) for each in random.integers(0, 256, shape, np.uint8)
    ]


def on_the_cpu(placed):
    row = np.empty((3, *reversed(SIDES)), np.float32)
    scale_into(placed.pixels, placed.placement, row)
    return row


def assert_is(outputs, batch):
    np.testing.assert_array_equal(outputs[0], [on_the_cpu(each) for each in batch])


def to_blocks(program, uploads):
    """Those of pictures and images, by the slot that they went to."""
    found = [
        [
            (target - slot.block, size, stream)
            for target, size, stream in uploads
            if 0 <= target - slot.block < slot.room
        ]
        for slot in program._device.slots
    ]
    return [each for each in found if each]


@pytest.mark.parametrize("rows", [1, 2])
def test_a_part_goes_ahead_while_the_device_does_nothing(device, uploads, rows):
    program = program_of(device)
    for seed in range(4):
        batch = batch_of(rows, seed)
        uploads.clear()
        assert_is(program.start_forward(batch).result(), batch)
        ((first, second),) = to_blocks(program, uploads)
        assert first[0] == 0
        assert second[0] == first[1] > 0
        assert first[1] + second[1] in range(rows * 30 * 20 * 3, rows * (30 * 20 * 3 + 16))
        assert first[2] == second[2]


def test_images_go_ahead_too(device, uploads):
    program = program_of(device)
    images = np.random.default_rng(0).random((2, 3, *reversed(SIDES)), np.float32)
    for _ in range(4):
        uploads.clear()
        np.testing.assert_array_equal(program.forward(images)[0], images)
        ((first, second),) = to_blocks(program, uploads)
        assert (first[1], first[1] + second[1]) == (second[0], images.nbytes)


def test_nothing_goes_ahead_of_a_run_that_is_still_under_way(device, uploads):
    program = program_of(device)
    given = [batch_of(2, seed) for seed in range(3)]
    for _ in range(3):
        uploads.clear()
        tickets = [program.start_forward(batch) for batch in given]
        assert sorted(len(found) for found in to_blocks(program, uploads)) == [1, 1, 2]
        for ticket, batch in zip(tickets, given, strict=True):
            assert_is(ticket.result(), batch)


def test_settings_travel_beside_the_pictures_of_a_run_that_is_not_alone(device, uploads):
    """On the stream of the runs they would wait for pictures that are on their way."""
    program, runs = program_of(device), device.context.stream.handle
    for seed in range(3):
        given = [batch_of(2, seed, size) for size in ((30, 20), (20, 30), (16, 12))]
        uploads.clear()
        tickets = [program.start_forward(batch) for batch in given]
        alone = [target for target, _, stream in uploads if stream == runs]
        slots, shared = program._device.slots, program._device.buffers.settings
        beside = {slot.settings_there for slot in slots} & {target for target, _, _ in uploads}
        assert alone.count(shared) == 1
        assert len(beside) == 2
        assert not beside & set(alone)
        for ticket, batch in zip(tickets, given, strict=True):
            assert_is(ticket.result(), batch)


def test_what_went_ahead_of_a_call_that_failed_is_not_taken_for_the_next_ones(device, monkeypatch):
    program = program_of(device)
    first, second = batch_of(2, 0), batch_of(2, 1)
    assert_is(program.start_forward(first).result(), first)
    copy, calls = picture_staging._copy, []

    def fails_the_second_time(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise MemoryError
        copy(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(picture_staging, "_copy", fails_the_second_time)
        with pytest.raises(MemoryError):
            program.start_forward(first)
    device.context.driver.Context.synchronize()  # a part of the first has arrived
    monkeypatch.setattr(picture_staging, "_WORTH_TWO_WAYS", 1 << 20)  # these go at once
    for batch in (second, first, second):
        assert_is(program.start_forward(batch).result(), batch)


def test_threads_get_their_own_pictures_whoever_goes_ahead(device):
    program = program_of(device)
    given = [batch_of(2, seed) for seed in range(6)]
    wrong = []

    def ask(number):
        for turn in range(20):
            batch = given[(number + turn) % len(given)]
            try:
                assert_is(program.start_forward(batch).result(), batch)
            except AssertionError as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_pictures_may_be_changed_at_once(plain_device):
    program = program_of(plain_device)
    for seed in range(3):
        batch, same = batch_of(2, seed), batch_of(2, seed)
        ticket = program.start_forward(batch)
        for each in batch:
            each.pixels[:] = 0
        assert_is(ticket.result(), same)


def test_what_lies_in_pieces_arrives_whole(plain_device):
    program = program_of(plain_device)
    (whole,) = batch_of(1, 0, (60, 40))
    pieces = [Placed(whole.pixels[::2, ::2], Placement((30, 20), SIDES))]
    assert_is(program.start_forward(pieces).result(), pieces)
    images = np.random.default_rng(0).random((1, *reversed(SIDES), 3), np.float32)
    turned = images.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(program.forward(turned)[0], turned)
    doubles = np.ascontiguousarray(turned, np.float64)
    np.testing.assert_array_equal(program.forward(doubles)[0], turned)


def test_a_run_is_made_again_of_what_the_device_has(plain_device, detector):
    program = plain_device.compile(detector)
    shape = detector.source.shape
    sides = shape.width, shape.height

    def picture(seed):
        pixels = np.random.default_rng(seed).integers(0, 256, (40, 50, 3), np.uint8)
        return [Placed(pixels, Placement((50, 40), sides))]

    expected = [program.start_detect(picture(seed), threshold=0.0).result() for seed in (0, 1)]
    for _ in range(3):
        program._device._expected = 1.0  # so that not all comes back at once
        given = [picture(0), picture(1)]
        tickets = [program.start_detect(each, threshold=0.0) for each in given]
        for each in given:
            each[0].pixels[:] = 0
        for ticket, (rows,) in zip(tickets, expected, strict=True):
            np.testing.assert_array_equal(ticket.result()[0], rows)


def test_what_was_measured_in_between_is_not_taken_for_what_was_found(plain_device, detector):
    program = plain_device.compile(detector)
    shape = detector.source.shape
    pictures = np.random.default_rng(0).integers(0, 256, (2, 40, 50, 3), np.uint8)
    placement = Placement((50, 40), (shape.width, shape.height))
    first, other = ([Placed(each, placement)] for each in pictures)
    (expected,) = program.start_detect(first, threshold=0.0).result()
    program._device._expected = 1.0
    ticket = program.start_detect(first, threshold=0.0)
    program.measure(other, threshold=0.0, repeats=1)
    np.testing.assert_array_equal(ticket.result()[0], expected)


def test_a_run_that_was_interrupted_leaves_nothing_behind(plain_device, monkeypatch):
    """Its caller has gone before the device's thread came to it."""
    program = program_of(plain_device)
    others = [program._slots.take() for _ in program._device.slots[1:]]
    program.start_forward(batch_of(2, 2)).result()  # makes room
    is_free = threading.Event()
    plain_device.context._worker.post(is_free.wait)  # which others' turns do not wait for
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        program.start_forward(batch_of(1, 0))
    threading.Timer(0.2, is_free.set).start()  # as the next call's pictures lie there already
    batch = batch_of(2, 1)
    assert_is(program.start_forward(batch).result(), batch)
    for each in others:
        program._slots.give(each)


# ---------------------------------------------------------------- settings


@pytest.fixture
def detector(tiny_detector):
    network = network_graph.build(cfg.read(tiny_detector.cfg))
    return lower(network, weights.load(tiny_detector.weights, network))


def test_settings_travel_when_they_change_only(device, uploads, detector):
    program = device.compile(detector)
    shape = detector.source.shape
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    picture = [Placed(pixels, Placement((50, 40), (shape.width, shape.height)))]
    counts = []
    for threshold in (0.0, 0.0, 0.0, 1.0, 1.0, 0.0):
        uploads.clear()
        (found,) = program.start_detect(picture, threshold=threshold).result()
        settings = [
            size for target, size, _ in uploads if target == program._device.buffers.settings
        ]
        counts.append((len(settings), len(found) > 0))
    assert counts == [(1, True), (0, True), (0, True), (1, False), (0, False), (1, True)]


def test_settings_that_another_call_has_overwritten_travel_again(device):
    program = program_of(device)
    images, others = np.random.default_rng(0).random((2, 1, 3, *reversed(SIDES)), np.float32)
    expected = images.copy()
    output = np.zeros_like(images)
    for _ in range(3):
        np.testing.assert_array_equal(program.forward(images)[0], expected)
        program.forward_on_card(others.ctypes.data, output.ctypes.data, rows=1)
        np.testing.assert_array_equal(output, others)


def test_room_that_grew_with_pictures_is_room_for_images(device):
    builder = PlanBuilder(Shape(1, 1, 5))
    program = device.compile(builder.build((), (builder.source,)), batch=1)
    images = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5)
    for width in (21, 31, 33, 50, 76, 115):  # each a little more than there is room for
        pixels = np.zeros((1, width, 1), np.uint8)
        program.start_forward([Placed(pixels, Placement((width, 1), (5, 1)))]).result()
        np.testing.assert_array_equal(program.forward(images)[0], images)
