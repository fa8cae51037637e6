"""A network that is not tuned yet runs with few tiles, which take little more time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from engine.backends.cuda import conv, device
from engine.backends.cuda.conv import Choice
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops.target import Target
from engine.backends.cuda.tune import few_tiles
from engine.backends.cuda.tune.few_tiles import with_few_tiles
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import FUSING, optimise
from engine.plan.build import Plan
from engine.plan.ops import Conv2d
from tests.backends.cuda.host_device import HostDevice, on_tape

HOPPER, AMPERE = ((9, 0), 132), ((8, 6), 28)


@cache
def plan_of(name: str) -> Plan:
    network = graph.build(cfg.read(f"cfg/{name}.cfg"))
    return optimise(lower(network, random_weights.arrays(network)), FUSING)


def fused(name: str, precision: str, card: tuple[tuple[int, int], int]) -> Lowered:
    return lowering.fuse(plan_of(name), Target(1, precision, *card))


def convolutions(lowered: Lowered) -> list[Conv2d]:
    return [op for op in lowered.plan.ops if isinstance(op, Conv2d)]


def tiles_of(lowered: Lowered) -> set[Tile | None]:
    target = lowered.target
    chosen = {op: conv.choose(target, op) for op in convolutions(lowered)}
    return {conv.get(choice).tile(target.of(op), op) for op, choice in chosen.items()} - {None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("card", "precision"),
    [(HOPPER, "float32"), (HOPPER, "float16"), (AMPERE, "tf32"), (AMPERE, "float16")],
)
@pytest.mark.parametrize("name", ["codes", "yolov4-tiny"])
def test_fewer_tiles_take_little_longer(name, precision, card):
    usual = fused(name, precision, card)
    few = with_few_tiles(usual)
    assert len(tiles_of(few)) < len(tiles_of(usual))
    for op in convolutions(usual):
        target = usual.target.of(op)
        ours, theirs = (
            conv.get(conv.choose(each.target, op)).estimate(target, op) for each in (few, usual)
        )
        assert ours == theirs or ours <= 1.5 * theirs


@pytest.mark.parametrize("waits", [False, True])
def test_only_a_network_that_is_tuned_later_runs_so(waits, monkeypatch):
    asked = []
    monkeypatch.setattr(
        device, "with_few_tiles", lambda fused: asked.append(fused) or with_few_tiles(fused)
    )
    monkeypatch.setattr(device, "improve_later", lambda *_: None)
    with on_tape(HostDevice(runs_kernels=False)) as host:
        monkeypatch.setattr(HostDevice, "_knows", lambda *_: False)
        monkeypatch.setattr(HostDevice, "_tune", lambda *_, **__: None)
        host.compile(plan_of("codes"), tune=True, waits=waits)
    assert len(asked) == (not waits)


def test_every_choice_is_one_that_can_run():
    few = with_few_tiles(fused("yolov4-tiny", "float16", HOPPER))
    for op in convolutions(few):
        choice = few.target.measured[conv.signature(few.target, op)]
        assert conv.choose(few.target, op) == choice


def test_what_was_measured_stays():
    usual = fused("yolov4-tiny", "float16", HOPPER)
    few = with_few_tiles(usual)
    changed = next(
        op
        for op in convolutions(usual)
        if conv.choose(few.target, op) != conv.choose(usual.target, op)
    )
    measured = {conv.signature(usual.target, changed): conv.choose(usual.target, changed)}
    tuned = replace(usual, target=replace(usual.target, measured=measured))
    assert conv.choose(with_few_tiles(tuned).target, changed) == Choice(*measured.popitem()[1])
    assert not measured


def test_a_tile_much_slower_than_the_usual_one_is_not_taken(monkeypatch):
    usual = fused("yolov4-tiny", "float16", HOPPER)
    monkeypatch.setattr(few_tiles, "_SLOWER", 1.0)
    few = with_few_tiles(usual)
    for op in convolutions(usual):
        ours, theirs = (
            conv.get(conv.choose(each.target, op)).estimate(usual.target.of(op), op)
            for each in (few, usual)
        )
        assert ours == theirs or ours <= theirs
