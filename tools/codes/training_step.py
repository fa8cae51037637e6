"""The part of a training step that runs on the card as one CUDA graph for each size of the input.

Python starts some two thousand small kernels per step, which takes several times as long as the
kernels themselves. A graph starts all of them at once.
"""

from __future__ import annotations

import math
import time

import torch
from augment import augment
from loss import CodeLoss
from scene_pool import ScenePool
from torch import Tensor
from torch_network import Network

_WARM_UPS = 3  # before a capture: cuDNN chooses its algorithms, and memory is allocated


GRAPHS = ("all", "network", "none")  # what the graphs hold, in the order in which to try it
Kind = tuple[int, int]  # number of the pool, side of the input


class TrainingStep:
    """A step that samples scenes, augments them, and computes the loss and the gradients.

    `run` leaves the gradients in the parameters' `grad`, and adds the loss to `total`.
    """

    def __init__(
        self, network: Network, pools: list[ScenePool], batch: int, device: torch.device
    ) -> None:
        self._network = network
        self._pools = pools
        self._batch = batch
        self._device = device
        self._loss = CodeLoss(network.heads, device)
        self._graphs: dict[Kind, torch.cuda.CUDAGraph] = {}
        self._inputs: dict[Kind, list[Tensor]] = {}  # of graphs that hold the network only
        self._scores: dict[Kind, Tensor] = {}
        self.parameters = list(network.parameters())
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self.gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.strength = torch.ones((), device=device)  # of the augmentation: 0 or 1
        self.total = torch.zeros((), device=device)
        self.times: dict[Kind, float] = {}  # seconds of each graph

    def run(self, kind: Kind) -> None:
        """Compute the gradients for a batch of scenes of a pool, scaled to a side."""
        graph = self._graphs.get(kind)
        if not graph:
            self._compute(kind)
        elif kind not in self._inputs:
            graph.replay()
        else:
            chosen, inputs = self._prepare(kind)
            for kept, new in zip(self._inputs[kind], inputs, strict=True):
                kept.copy_(new)
            graph.replay()
            self._pools[kind[0]].update_weights(chosen, self._scores[kind])

    def capture(self, kinds: list[Kind], what: str) -> None:
        """Capture a graph for each pool and side; RuntimeError if one computes nonsense.

        `what` is one of GRAPHS. After an error, CUDA may be unusable in this process.
        """
        stored = {name: value.clone() for name, value in self._network.state_dict().items()}
        for pool in self._pools:
            pool.prime()
        memory = torch.cuda.graph_pool_handle()
        # Autograd remembers streams: one that it saw before and that is not captured would make
        # the capture invalid, so warm-ups and captures share theirs.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for kind in kinds:
                for _ in range(_WARM_UPS):
                    self._compute(kind)
                expected = self._checked(kind)
                self._graphs[kind] = self._captured(kind, what, memory, stream)
                got = self._checked(kind)
                self.times[kind] = self._time(kind)
                if not expected / 4 < got < expected * 4:
                    raise RuntimeError(f"a captured step of {kind}: {got}, not about {expected}")
        torch.cuda.current_stream().wait_stream(stream)
        self._network.load_state_dict(stored)
        self.total.zero_()

    def _captured(
        self, kind: Kind, what: str, memory: tuple[int, int], stream: torch.cuda.Stream
    ) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        if what == "network":
            inputs = self._prepare(kind)[1]
            with torch.cuda.graph(graph, pool=memory, stream=stream):
                self._scores[kind] = self._learn(inputs, kind)
            self._inputs[kind] = inputs
        else:
            with torch.cuda.graph(graph, pool=memory, stream=stream):
                self._compute(kind)
        return graph

    def _time(self, kind: Kind) -> float:
        began = time.monotonic()
        for _ in range(_WARM_UPS):
            self.run(kind)
        torch.cuda.synchronize()
        return (time.monotonic() - began) / _WARM_UPS

    def _checked(self, kind: Kind) -> float:
        """Return the loss of a step on noise; RuntimeError without finite gradients."""
        self.total.zero_()
        torch._foreach_zero_(self.gradients)
        self.run(kind)
        norm = float(torch.stack(torch._foreach_norm(self.gradients)).norm())
        if not (math.isfinite(norm) and norm > 0):
            raise RuntimeError(f"a step of {kind}: gradients of norm {norm}")
        return float(self.total)

    def _compute(self, kind: Kind) -> None:
        chosen, inputs = self._prepare(kind)
        self._pools[kind[0]].update_weights(chosen, self._learn(inputs, kind))

    def _prepare(self, kind: Kind) -> tuple[Tensor, list[Tensor]]:
        """Return indices in the pool; the pictures, and what augment() tells of their codes."""
        number, side = kind
        count = max(1, round(self._batch * min(1.0, (self._network.side / side) ** 2)))
        chosen, pictures, boxes = self._pools[number].sample(count)
        pictures, *told = augment(pictures, boxes, side, self.strength)
        kept = torch.bfloat16 if self._device.type == "cuda" else torch.float32
        return chosen, [pictures.to(dtype=kept, memory_format=torch.channels_last), *told]

    def _learn(self, inputs: list[Tensor], kind: Kind) -> Tensor:
        """Compute the gradients; return the highest objectness of each picture."""
        pictures, truth, is_code, is_faint = inputs
        is_cuda = self._device.type == "cuda"
        with torch.autocast(self._device.type, torch.bfloat16, is_cuda, cache_enabled=False):
            heads = self._network(pictures)
        value = self._loss(heads, truth, is_code, is_faint, kind[1])
        gradients = torch.autograd.grad(value, self.parameters)
        torch._foreach_copy_(self.gradients, list(gradients))
        self.total.add_(value.detach())
        return _highest_objectness(heads)


@torch.no_grad()
def _highest_objectness(heads: list[Tensor]) -> Tensor:
    """Return the highest objectness of each picture."""
    return torch.stack([raw[..., 4].flatten(1).amax(1) for raw in heads]).amax(0).sigmoid()
