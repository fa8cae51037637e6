"""Programs of a device whose kernels run on the CPU: memory, recordings, threads, several cards."""

import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from engine import picture_runs
from engine.backends.cuda.lower.lowered import Step
from engine.backends.cuda.multi_device import MultiDevice, MultiProgram
from engine.backends.cuda.runtime.device_program import DeviceProgram
from engine.darknet import cfg, random_weights, weights
from engine.darknet import graph as network_graph
from engine.darknet.lower import lower
from engine.errors import DeviceError, EngineError, InputError
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.shapes import Shape
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.backends.head_cases import plan_of_two_and_one_class

pytestmark = needs_gxx


@pytest.fixture
def device(host):
    return host


def plan_of(model):
    """Its plan with weights that keep values near 1."""
    network = network_graph.build(cfg.read(model.cfg))
    plan = lower(network, weights.load(model.weights, network))
    return replace(plan, constants={name: each * 0.2 for name, each in plan.constants.items()})


@pytest.fixture
def detector(tiny_detector):
    return plan_of(tiny_detector)


@pytest.fixture
def recurrent(tiny_recurrent):
    return plan_of(tiny_recurrent)


def images(plan, rows, seed=0):
    shape = (rows, *plan.source.shape.sides)
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def assert_same(found, expected):
    assert len(found) == len(expected)
    for left, right in zip(found, expected, strict=True):
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_graph", [True, False])
@pytest.mark.parametrize("has_passes", [True, False])
def test_every_run_agrees_with_the_cpu(device, cpu, detector, has_passes, has_graph):
    plan = optimise(detector, device.passes) if has_passes else detector
    program = device.compile(plan, batch=3, graph=has_graph)
    reference = cpu.compile(detector, batch=3)
    for seed in range(4):  # the first is eager, the second is recorded, others are replayed
        for rows in (3, 1):
            given = images(plan, rows, seed)
            assert_same(program.forward(given), reference.forward(given))
            found = program.detect(given, threshold=0.3)
            assert_same(found, reference.detect(given, threshold=0.3))


def test_a_recording_reads_the_threshold_anew(device, detector):
    program = device.compile(detector)
    given = images(detector, 1)
    counts = [len(program.detect(given, threshold=t)[0]) for t in (0.0, 0.0, 1.0, 0.0)]
    assert counts[0] > 0
    assert counts == [counts[0], counts[0], 0, counts[0]]


def test_more_candidates_than_are_copied_at_once_all_come_back(device, cpu, monkeypatch, detector):
    monkeypatch.setattr("engine.backends.cuda.runtime.detection_buffer.COPIED_AT_ONCE", 2)
    given = images(detector, 2)
    found = device.compile(detector, batch=2).detect(given, threshold=0.0)
    expected = cpu.compile(detector, batch=2).detect(given, threshold=0.0)
    assert sum(map(len, found)) > 4
    assert_same(found, expected)


def test_heads_of_several_numbers_of_classes_agree_with_the_cpu(device, cpu):
    plan = plan_of_two_and_one_class()
    program, reference = device.compile(plan), cpu.compile(plan)
    for seed in range(4):  # a record's place is another head's in the next run
        given = 4 * images(plan, 1, seed) - 2
        found = program.detect(given, threshold=0.3)
        assert_same(found, reference.detect(given, threshold=0.3))


def test_every_time_step_has_boxes_of_its_own(device, cpu):
    text = "[net]\nheight=4\nwidth=4\nchannels=3\n[crnn]\nhidden=4\noutput=7\npad=1\n"
    text += "[yolo]\nclasses=2\nnum=1\nanchors=1,1\nmask=0\n"
    network = network_graph.build(cfg.parse(text), time_steps=3)
    plan = lower(network, random_weights.arrays(network))
    program, reference = device.compile(plan, batch=2), cpu.compile(plan, batch=2)
    for rows in (6, 3):
        given = images(plan, rows)
        found = program.detect(given, threshold=0.0)
        assert len(found) == rows
        assert_same(found, reference.detect(given, threshold=0.0))


def test_kept_layers_agree_with_the_cpu(device, cpu, detector):
    plan = detector.keeping_layers()
    given = images(plan, 2)
    found = device.compile(optimise(plan, device.passes), batch=2).forward(given)
    assert_same(found, cpu.compile(plan, batch=2).forward(given))


def test_state_outlives_a_run_until_it_is_reset(device, cpu, recurrent):
    program, reference = device.compile(recurrent), cpu.compile(recurrent)
    given = images(recurrent, recurrent.steps)
    first = program.forward(given)
    second = program.forward(given)
    assert_same(first, reference.forward(given))
    assert_same(second, reference.forward(given))
    assert not np.allclose(first[0], second[0])
    program.reset()
    assert_same(program.forward(given), first)


def test_closing_gives_back_all_memory(device, detector):
    before = len(device.context.driver.live)
    program = device.compile(detector, batch=2)
    program.forward(images(detector, 2))
    assert len(device.context.driver.live) > before
    program.close()
    program.close()
    assert len(device.context.driver.live) == before
    with pytest.raises(EngineError, match="program: closed"):
        program.forward(images(detector, 1))


def test_a_forgotten_program_gives_back_its_memory(device, detector):
    program = device.compile(detector)
    del program
    gc.collect()
    device.context.run(lambda: None)  # the thread has done what was posted before
    assert not device.context.driver.live


def test_loading_again_and_again_leaves_nothing_behind(device, detector):
    for _ in range(5):
        program = device.compile(detector)
        for _ in range(3):
            program.detect(images(detector, 1), threshold=0.5)
        program.close()
    assert not device.context.driver.live


def test_weights_are_prepared_by_one_thread_whose_memory_serves_again(
    device, monkeypatch, detector
):
    threads = set()
    prepare = Step.prepare

    def noted(*arguments):
        threads.add(threading.get_ident())
        return prepare(*arguments)

    monkeypatch.setattr(Step, "prepare", noted)
    program = device.compile(detector)
    assert threads == {threading.get_ident()}  # the device's loads kernels meanwhile
    program.close()


def test_a_run_allocates_nothing(device, detector):
    program = device.compile(detector)
    for _ in range(3):
        program.forward(images(detector, 1))
    before = set(device.context.driver.live)
    for _ in range(3):
        program.forward(images(detector, 1))
    assert device.context.driver.live == before


def test_runs_that_end_with_boxes_take_no_memory_for_outputs(device, detector):
    program = device.compile(detector, batch=2)
    program.detect(images(detector, 2), threshold=0.5)
    slots = program._device.slots
    assert all(slot.outputs is None for slot in slots)
    program.forward(images(detector, 2))
    assert sum(slot.outputs is not None for slot in slots) == 1


@pytest.mark.parametrize(
    ("cores", "workers", "reads_ahead", "expected"),
    [(16, 1, False, 6), (2, 1, False, 4), (16, 1, True, 4), (16, 8, False, 11)],
)
def test_threads_of_a_stream_copy_arrays_at_the_same_time(
    device, detector, monkeypatch, cores, workers, reads_ahead, expected
):
    monkeypatch.setattr(picture_runs, "usable_cores", lambda: cores)
    program = device.compile(detector, batch=2)
    threads = picture_runs.submitting_threads(program, workers, reads_ahead=reads_ahead)
    assert threads == expected


def test_memory_is_what_was_allocated_on_the_device(device, detector):
    program = device.compile(optimise(detector, device.passes), batch=4)
    blocks = [block for block in device.context.driver.live if not block.is_page_locked]
    assert program.memory.total == sum(block.size for block in blocks)


def test_a_network_too_large_is_refused_before_the_driver_fails(monkeypatch, detector):
    small = HostDevice(memory=10_000)
    with pytest.raises(DeviceError, match=r"host: out of memory: this network needs .* GiB free"):
        small.compile(detector)
    assert not small.context.driver.live
    small.close()


def test_closing_the_device_closes_its_programs(detector):
    device = HostDevice()
    program = device.compile(detector)
    device.close()
    assert not device.context.driver.live
    with pytest.raises(EngineError, match="closed"):
        program.forward(images(detector, 1))
    with pytest.raises(DeviceError, match="the device is closed"):
        device.compile(detector)


def test_who_closes_second_waits_for_the_runs_as_well(detector, monkeypatch):
    device = HostDevice(runs_kernels=False)
    program = device.compile(detector)
    started, may_go = threading.Event(), threading.Event()
    put = program._stage_images

    def slow(*arguments):
        started.set()
        may_go.wait(30)
        return put(*arguments)

    monkeypatch.setattr(program, "_stage_images", slow)
    images = np.zeros((1, *detector.source.shape.sides), np.float32)
    with ThreadPoolExecutor(3) as threads:
        answer = threads.submit(program.forward, images)
        started.wait(30)
        first = threads.submit(device.close)
        time.sleep(0.1)
        second = threads.submit(device.close)
        time.sleep(0.2)
        assert not second.done()
        may_go.set()
        assert answer.result(30)
        first.result(30)
        second.result(30)
    assert not device.context.driver.live


def test_an_interrupted_load_gives_back_what_was_uploaded(detector, monkeypatch):
    upload = DeviceProgram._upload

    def slow(self, weights):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(0.4)
        upload(self, weights)

    with on_tape(HostDevice(runs_kernels=False)) as device:
        monkeypatch.setattr(DeviceProgram, "_upload", slow)
        with pytest.raises(KeyboardInterrupt):
            device.compile(detector)
        device.context.run(lambda: None)
        assert not device.context.driver.live
        assert not device.context.driver_api.events


def test_answers_reach_the_threads_that_asked(device, cpu, detector):
    program = device.compile(detector)
    reference = cpu.compile(detector)
    given = [images(detector, 1, seed) for seed in range(6)]
    expected = [reference.forward(each) for each in given]
    found = {}

    def ask(index):
        found[index] = [program.forward(given[index]) for _ in range(5)]

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(len(given))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, answers in found.items():
        for answer in answers:
            assert_same(answer, expected[index])


def test_measuring_gives_a_time_for_each_repeat(device, detector):
    times = device.compile(detector).measure(images(detector, 1), repeats=4)
    assert len(times) == 4
    assert min(times) > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((1, 3, 48, 64), np.uint8), "expected float32, got uint8"),
        (np.zeros((1, 3, 64, 48), np.float32), r"expected \(rows, 3, 48, 64\)"),
        (np.zeros((0, 3, 48, 64), np.float32), "expected 1 to 2 rows, got 0"),
        (np.zeros((3, 3, 48, 64), np.float32), "expected 1 to 2 rows, got 3"),
    ],
)
def test_images_that_do_not_fit_are_refused(device, detector, given, message):
    with pytest.raises(InputError, match=message):
        device.compile(detector, batch=2).forward(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "float33"}, "precision: expected .* got 'float33'. Did you mean 'float32'"),
        ({"batch": 0}, "batch: expected at least 1, got 0"),
        ({"batch": 10**6}, "expected at most 2143289344. Try a smaller batch"),
    ],
)
def test_what_cannot_be_compiled_is_refused(device, detector, options, message):
    with pytest.raises(InputError, match=message):
        device.compile(detector, **options)


def test_detecting_without_a_head_is_refused(device, recurrent):
    with pytest.raises(InputError, match="expected a network with a detection layer"):
        device.compile(recurrent).detect(images(recurrent, recurrent.steps), threshold=0.5)


def test_shared_constants_are_uploaded_once(device):
    builder = PlanBuilder(Shape(64))
    weight = builder.constant("weight", np.eye(64, dtype=np.float32))
    tensor = builder.source
    for _ in range(10):
        tensor = builder.emit(ops.MatMul(builder.tensor(Shape(64)), tensor, weight))
    program = device.compile(builder.build((), (tensor,)))
    assert program.memory.weights == 64 * 64 * 4
    given = images(program.plan, 1)
    assert_same(program.forward(given), [given])


# ---------------------------------------------------------------- several cards


class HostDevices(MultiDevice):
    def __init__(self, count):
        self.devices = [HostDevice(name=f"host:{index}") for index in range(count)]
        self.name = ",".join(device.name for device in self.devices)


@pytest.fixture
def several():
    opened = HostDevices(3)
    yield opened
    opened.close()


@pytest.mark.parametrize("rows", range(1, 9))
def test_rows_are_spread_and_their_order_kept(several, cpu, detector, rows):
    program = several.compile(detector, batch=8, graph=False)
    reference = cpu.compile(detector, batch=8)
    given = images(detector, rows)
    assert_same(program.forward(given), reference.forward(given))
    found = program.detect(given, threshold=0.3)
    assert_same(found, reference.detect(given, threshold=0.3))


def test_what_one_card_has_pinned_all_know(several, detector):
    program = several.compile(detector, batch=3, graph=False)
    made = np.zeros((3, 4, 4, 3), np.uint8)
    program.pin(made)
    contexts = [device.context for device in several.devices]
    assert all(context.pinned_memory.contains(list(made)) for context in contexts)
    assert [len(context.driver_api.registered) for context in contexts] == [1, 0, 0]
    del made
    several.devices[0].context.run(lambda: None)
    assert not any(context.driver_api.registered for context in contexts)


def test_no_card_lets_go_of_what_another_may_still_send(several, detector):
    program = several.compile(detector, batch=3, graph=False)
    programs = program._programs
    still_open = []
    for device in several.devices:
        close = device.context.pinned_memory.close
        device.context.pinned_memory.close = lambda close=close: (
            still_open.extend(each for each in programs if not each.is_closed),
            close(),
        )
    several.close()
    assert len(programs) == 3
    assert not still_open


def test_all_cards_are_closed_whatever_becomes_of_one(several):
    def fail():
        raise RuntimeError("lost")

    last = several.devices[-1]
    close, last.close = last.close, fail
    with pytest.raises(RuntimeError, match="lost"):
        several.close()
    for device in several.devices[:-1]:
        with pytest.raises(DeviceError, match="closed"):
            device.context.run(list)
    close()
    last.close = close


def test_single_rows_take_turns_on_the_cards(several, detector):
    program = several.compile(detector, batch=1, graph=False)
    assert isinstance(program, MultiProgram)
    for _ in range(3):
        program.forward(images(detector, 1))
    assert all(device.context.launched for device in several.devices)


@pytest.mark.parametrize(("batch", "expected"), [(1, 4), (2, 3), (3, 2), (8, 2)])
def test_as_many_runs_are_begun_as_it_takes_to_keep_all_cards_busy(
    several, detector, batch, expected
):
    assert several.compile(detector, batch=batch, graph=False).runs_ahead == expected
    assert several.devices[0].compile(detector, batch=batch).runs_ahead == 3


def test_recurrent_networks_stay_on_one_card(several, recurrent):
    with pytest.raises(InputError, match=r"remembers on one device\. Use --device host:0"):
        several.compile(recurrent)


def test_memory_of_several_cards_is_their_sum(several, detector):
    program = several.compile(detector, batch=3)
    each = [device.compile(detector, batch=1).memory for device in several.devices]
    assert program.memory.total == sum(memory.total for memory in each)


# ---------------------------------------------------------------- the borders


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(
    "sides",
    [(3, 12, 9), (3, 5, 7), (1, 6, 6), (255, 26, 20), (33, 50, 81), (70, 64, 32), (40, 5, 700)],
)
def test_what_goes_in_comes_out(device, sides, precision):
    """Four pixels of a picture at once or one; large maps in tiles, which they seldom fill."""
    builder = PlanBuilder(Shape(*sides))
    program = device.compile(
        builder.build([builder.source], [builder.source]), batch=2, precision=precision
    )
    expected = images(program.plan, 2).astype(np.float16).astype(np.float32)
    for rows in (2, 1):
        (found,) = program.forward(expected[:rows])
        np.testing.assert_array_equal(found, expected[:rows])


@pytest.mark.parametrize("offset", [0, 1, 4])
def test_a_picture_may_begin_anywhere(device, offset):
    """Four pixels can be read at once on 16 bytes alone."""
    builder = PlanBuilder(Shape(3, 4, 8))
    program = device.compile(builder.build([builder.source], [builder.source]))
    driver, size = device.context.driver, 3 * 4 * 8
    values = np.random.default_rng(1).random(offset + size, np.float32)
    memory = driver.mem_alloc(values.nbytes), driver.mem_alloc(4 * size)
    driver.memcpy_htod(int(memory[0]), values)
    program.forward_on_card(int(memory[0]) + 4 * offset, int(memory[1]), rows=1)
    found = np.empty(size, np.float32)
    driver.memcpy_dtoh(found, int(memory[1]))
    np.testing.assert_array_equal(found, values[offset:])
