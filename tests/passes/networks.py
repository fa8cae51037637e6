"""A builder for small plans: each method appends an op and returns its output."""

from collections.abc import Sequence

import numpy as np

from engine.plan import ops
from engine.plan.build import Plan, PlanBuilder
from engine.plan.ops import ConcatPart, Constant, Tensor
from engine.plan.shapes import Shape, Window, window_count


class Network:
    def __init__(self, channels: int = 4, side: int = 6, *, seed: int = 0, steps: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.builder = PlanBuilder(Shape(channels, side, side), steps)
        self.source = self.builder.source

    def plan(self, *outputs: Tensor) -> Plan:
        return self.builder.build(layers=outputs, outputs=outputs)

    def new(self, shape: Shape, like: Tensor) -> Tensor:
        return self.builder.tensor(shape, steps=like.steps)

    def state(self, shape: Shape) -> Tensor:
        return self.builder.tensor(shape, steps=1, is_state=True)

    def array(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Constant:
        name = f"constant {len(self.builder._constants)}"
        values = self.random.uniform(low, high, shape).astype(np.float32)
        return self.builder.constant(name, values)

    def conv(
        self,
        src: Tensor,
        filters: int = 4,
        size: int = 3,
        *,
        stride: int = 1,
        weight: Constant | None = None,
        has_bias: bool = False,
        is_depthwise: bool = False,
    ) -> Tensor:
        groups = src.shape.channels if is_depthwise else 1
        filters = groups if is_depthwise else filters
        weight = weight or self.array(filters, src.shape.channels // groups, size, size)
        filters, _, size, _ = weight.shape
        pad = size // 2
        sides = (window_count(extent, size, stride, 2 * pad) for extent in src.shape.sides[1:])
        return self.builder.emit(
            ops.Conv2d(
                self.new(Shape(filters, *sides), src),
                src,
                weight,
                self.array(filters) if has_bias else None,
                stride=(stride, stride),
                padding=(pad, pad, pad, pad),
                groups=groups,
            )
        )

    def dense(self, src: Tensor, outputs: int) -> Tensor:
        weight = self.array(outputs, src.shape.size)
        return self.builder.emit(ops.MatMul(self.new(Shape(outputs), src), src, weight))

    def yolo(self, src: Tensor) -> Tensor:
        classes = src.shape.channels - 5
        return self.builder.emit(ops.YoloOutput(self.new(src.shape, src), src, 1, classes))

    def norm_constants(self, channels: int) -> tuple[Constant, Constant, Constant, Constant]:
        return (
            self.array(channels),
            self.array(channels, low=0.2, high=2.0),
            self.array(channels),
            self.array(channels),
        )

    def norm(self, src: Tensor, constants: Sequence[Constant] | None = None) -> Tensor:
        constants = constants or self.norm_constants(src.shape.channels)
        return self.builder.emit(ops.Normalise(self.new(src.shape, src), src, *constants))

    def activate(self, src: Tensor, activation: str = "leaky") -> Tensor:
        return self.builder.emit(ops.Activate(self.new(src.shape, src), src, activation))

    def add(self, *sources: Tensor, is_weighted: bool = False) -> Tensor:
        weights = self.array(len(sources), 1) if is_weighted else None
        return self.builder.emit(ops.Add(self.new(sources[0].shape, sources[0]), sources, weights))

    def multiply(self, src: Tensor, factor: Tensor) -> Tensor:
        return self.builder.emit(ops.Multiply(self.new(src.shape, src), src, factor))

    def pool(
        self, src: Tensor, size: int = 2, stride: int = 2, padding: int | None = None
    ) -> Tensor:
        total = size - 1 if padding is None else padding
        before = total // 2
        sides = (window_count(extent, size, stride, total) for extent in src.shape.sides[1:])
        window = Window(
            (size, size), (stride, stride), (before, before, total - before, total - before)
        )
        return self.builder.emit(
            ops.MaxPool(self.new(Shape(src.shape.channels, *sides), src), src, window)
        )

    def concat(self, *sources: Tensor) -> Tensor:
        return self.ranges(*((source, 0, source.shape.channels) for source in sources))

    def ranges(self, *ranges: tuple[Tensor, int, int]) -> Tensor:
        parts = []
        at = 0
        for src, first, count in ranges:
            parts.append(ConcatPart(src, first, count, at))
            at += count
        like = parts[0].src
        out = self.new(Shape(at, *like.shape.sides[1:]), like)
        return self.builder.emit(ops.Concat(out, tuple(parts)))

    def upsample(self, src: Tensor) -> Tensor:
        channels, height, width = src.shape.sides
        out = self.new(Shape(channels, 2 * height, 2 * width), src)
        return self.builder.emit(ops.Upsample(out, src, 2))

    def store(self, state: Tensor, src: Tensor) -> None:
        self.builder.emit(ops.Store(state, src))

    def take_step(self, src: Tensor, step: int) -> Tensor:
        return self.builder.emit(ops.TakeStep(self.builder.tensor(src.shape, steps=1), src, step))

    def join_steps(self, *sources: Tensor) -> Tensor:
        return self.builder.emit(ops.JoinSteps(self.builder.tensor(sources[0].shape), sources))


def random_plan(
    seed: int, length: int = 24, *, steps: int = 1, has_states: bool = False, channels: int = 1
) -> Plan:
    """Return a random plan of ops that passes rewrite; some tensors are outputs.

    With states, ops read them before and after they are stored, which happens at any time and more
    than once. With several time steps, most ops run on one of them. Maps have a few times
    `channels`.
    """
    net = Network(channels=int(2 + seed % 5) * channels, side=8, seed=seed, steps=steps)
    random = net.random
    known = [net.source]
    states: list[Tensor] = []
    ends: list[Tensor] = []  # which nothing reads
    shared = net.array(4 * channels, 4 * channels, 1, 1)

    def pick(*, like: Tensor | None = None) -> Tensor:
        """Return a tensor, preferably a late one; with `like`, one of its height and width."""
        fit = [each for each in known if like is None or _are_alike(each, like)]
        return fit[-1 - min(int(random.exponential(2)), len(fit) - 1)]

    def conv() -> Tensor:
        src = pick()
        if src.shape.channels == 4 * channels and random.random() < 0.3:
            return net.conv(src, weight=shared, has_bias=random.random() < 0.5)
        return net.conv(
            src,
            int(random.integers(2, 6)) * channels,
            int(random.choice([1, 3])),
            stride=int(random.choice([1, 1, 1, 2])),
            has_bias=random.random() < 0.5,
        )

    def add() -> Tensor:
        one = pick()
        fit = (each for each in reversed(known) if each.shape == one.shape)
        two = next((each for each in fit if each.steps == one.steps), one)
        return net.add(one, two, is_weighted=random.random() < 0.2)

    def joined() -> Tensor:
        one = pick()
        return net.concat(one, *(pick(like=one) for _ in range(random.integers(0, 3))))

    def ranged() -> Tensor:
        one = pick()
        half = (one.shape.channels + 1) // 2
        ranges = [(one, one.shape.channels - half, half)]
        if random.random() < 0.5:
            two = pick(like=one)
            ranges.append((two, 0, two.shape.channels))
        return net.ranges(*ranges)

    def multiplied() -> Tensor:
        one = pick()
        return net.multiply(one, one)

    def pooled() -> Tensor:
        return net.pool(pick(), padding=int(random.integers(0, 2)))

    def pooled_state() -> Tensor:
        return net.pool(states[-1] if states else pick(), int(random.choice([3, 5])), 1)

    def stored() -> Tensor:
        """Store to an old or a new state, and return it to be read."""
        src = next(each for each in reversed(known) if each.steps == 1)
        fit = [each for each in states if each.shape == src.shape and each != src]
        if not fit or random.random() < 0.2:
            states.append(net.state(src.shape))
            return states[-1]
        state = fit[int(random.integers(len(fit)))]
        known.append(net.activate(src, "tanh"))  # so that no state grows from run to run
        net.store(state, known[-1])
        return state

    kinds = [conv, conv, conv, add, joined, ranged, multiplied]
    kinds += [lambda: net.norm(pick())] * 3
    kinds += [lambda: net.activate(pick(), str(random.choice(["leaky", "tanh", "mish"])))] * 3
    kinds += [pooled]
    if steps > 1:
        known += [net.take_step(net.source, number) for number in range(steps)]
    if has_states:
        kinds += [stored] * 4 + [add] * 2 + [pooled_state] * 3
    for _ in range(length):
        if states and random.random() < 0.1:
            ends.append(net.conv(states[-1], 4 * channels))
        if known[-1].shape.channels < 40 * channels and known[-1].shape.height > 1:
            known.append(kinds[random.integers(len(kinds))]())
        else:
            known.append(net.conv(known[int(random.integers(0, min(4, len(known))))]))
    if known[-1].is_state:
        known.append(net.activate(known[-1]))
    if steps > 1:
        last = next(each for each in reversed(known) if each.steps == 1)
        known += [net.join_steps(*[last] * steps), net.conv(net.source)]
    kept = [*ends, *(each for each in known[1:] if random.random() < 0.1)]
    return net.plan(*(each for each in kept if not each.is_state), *known[-min(steps, 2) :])


def _are_alike(one: Tensor, other: Tensor) -> bool:
    return (one.shape.area, one.steps) == (other.shape.area, other.steps)
