"""Worker processes that generate scenes, and a pool of scenes on the GPU for training.

Empty scenes with false alarms are sampled more often (hard negative mining).
"""

from __future__ import annotations

import mmap
import multiprocessing
import sys
import traceback
from collections import deque
from dataclasses import dataclass
from multiprocessing.queues import Queue

import cv2
import numpy as np
import torch
from distractors import Picture
from numpy.typing import NDArray
from scenes import SceneGenerator
from torch import Tensor

CHUNK = 32  # scenes per transfer
MAX_CODES = 24
NONE, FAINT = -1, -2  # instead of the class: no code; one that may be found or not
_SLOTS_PER_WORKER = 4
_HARD_SHARE = 0.3  # of a batch: empty scenes, sampled by the score of their false alarms
_MIN_WEIGHT = 1e-4


@dataclass(frozen=True)
class Chunk:
    pictures: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    slot: int


class SceneWorkers:
    """Processes that generate scenes; they are forked, so create them before CUDA is used."""

    def __init__(self, workers: int, side: int, seed: int, photographs: list[Picture]) -> None:
        self._photographs = photographs
        context = multiprocessing.get_context("fork")
        slots = workers * _SLOTS_PER_WORKER
        self._pictures = _shared_array((slots, CHUNK, side, side, 3), np.uint8)
        self._boxes = _shared_array((slots, CHUNK, MAX_CODES, 5), np.float32)
        self._free: Queue[int] = context.Queue()
        self._full: Queue[int] = context.Queue()
        for slot in range(slots):
            self._free.put(slot)
        self._processes = [
            context.Process(target=self._work, args=(seed, worker, side), daemon=True)
            for worker in range(workers)
        ]
        for process in self._processes:
            process.start()
        self.side = side

    def take(self, *, wait: bool) -> Chunk | None:
        """Return a chunk of pictures and boxes; None if none is ready and not `wait`.

        Its arrays are overwritten after it is given back.
        """
        if not wait and self._full.empty():
            return None
        slot = self._full.get(timeout=120)
        return Chunk(self._pictures[slot], self._boxes[slot], slot)

    def give_back(self, chunk: Chunk) -> None:
        self._free.put(chunk.slot)

    def pin(self) -> None:
        """Pin the memory, so that copies to the device are asynchronous; else they are slower."""
        for array in (self._pictures, self._boxes):
            code = torch.cuda.cudart().cudaHostRegister(array.ctypes.data, array.nbytes, 0)
            if int(code):
                print(f"the memory of the workers is not pinned: {code}", file=sys.stderr)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def _work(self, seed: int, worker: int, side: int) -> None:
        cv2.setNumThreads(1)
        generator = SceneGenerator(seed + worker, photographs=self._photographs)
        number = 0
        while True:
            slot = self._free.get()
            boxes = self._boxes[slot]
            boxes[:] = NONE
            for index in range(CHUNK):
                number += 1
                try:
                    scene = generator.scene(number, (side, side))
                except Exception:  # a rare failure must not end a training run
                    print(f"scene {number} of {seed + worker} failed", file=sys.stderr)
                    traceback.print_exc()
                    continue
                self._pictures[slot, index] = scene.picture[..., ::-1]
                faint = scene.faint_rows()
                faint[:, 0] = FAINT
                rows = np.concatenate([scene.rows(), faint])[:MAX_CODES]
                boxes[index, : len(rows)] = rows
            self._full.put(slot)


def _shared_array(shape: tuple[int, ...], kind: type) -> NDArray:
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer(mmap.mmap(-1, size), kind).reshape(shape)


class ScenePool:
    """A ring buffer of scenes on the device."""

    def __init__(self, capacity: int, workers: SceneWorkers, device: torch.device) -> None:
        side = workers.side
        self._workers = workers
        self._pictures = torch.empty((capacity, side, side, 3), dtype=torch.uint8, device=device)
        self._boxes = torch.full((capacity, MAX_CODES, 5), float(NONE), device=device)
        self._filled = torch.zeros((), device=device)
        self._weights = torch.zeros(capacity, device=device)
        self._device = device
        self._copies: deque[tuple[torch.cuda.Event, Chunk]] = deque()  # under way
        if device.type == "cuda":
            workers.pin()
        self.added = 0

    def drain(self, most: int = 4) -> None:
        """Add the chunks that the workers have finished, at most `most`."""
        for _ in range(most):
            chunk = self._workers.take(wait=False)
            if chunk is None:
                break
            self._add(chunk)
        while self._copies and self._copies[0][0].query():
            self._workers.give_back(self._copies.popleft()[1])

    def wait_for(self, scenes: int) -> None:
        """Add scenes until there are `scenes`."""
        while self.added < scenes:
            chunk = self._workers.take(wait=True)
            assert chunk is not None
            self._add(chunk)
            if self._copies:
                self._copies[-1][0].synchronize()
            self.drain(0)

    def _add(self, chunk: Chunk) -> None:
        at = self.added % len(self._pictures)
        boxes = torch.from_numpy(chunk.boxes)
        is_empty = boxes[:, 0, 0] == NONE
        pictures = torch.from_numpy(chunk.pictures)
        self._pictures[at : at + CHUNK].copy_(pictures, non_blocking=True)
        self._boxes[at : at + CHUNK].copy_(boxes, non_blocking=True)
        self._weights[at : at + CHUNK] = (is_empty * _MIN_WEIGHT).to(self._device)
        self.added += CHUNK
        self._filled.fill_(min(self.added, len(self._pictures)))
        if self._device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self._copies.append((event, chunk))
        else:
            self._workers.give_back(chunk)

    def prime(self) -> None:
        """Put noise with boxes into the pool, to try training steps before there are scenes."""
        self._pictures[:CHUNK].random_()
        self._boxes[:CHUNK, 0] = torch.tensor([0, 0.5, 0.5, 0.3, 0.3], device=self._device)
        self._filled.fill_(CHUNK)

    def sample(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return indices in the pool, pictures (batch, rows, columns, 3) of bytes, and boxes.

        A CUDA graph can hold this: nothing is read back.
        """
        hard = max(1, int(batch * _HARD_SHARE))
        device = self._device
        even = torch.rand(batch - hard, device=device) * self._filled
        total = self._weights.cumsum(0)
        by_weight = torch.searchsorted(total, torch.rand(hard, device=device) * total[-1])
        chosen = torch.cat([even.long(), by_weight])
        chosen = chosen[torch.rand(batch, device=device).argsort()]  # augment() needs that
        chosen = torch.minimum(chosen, (self._filled - 1).long())
        return chosen, self._pictures[chosen], self._boxes[chosen]

    def update_weights(self, chosen: Tensor, scores: Tensor) -> None:
        """Weight the empty pictures among `chosen` by their highest objectness."""
        is_empty = self._boxes[chosen, 0, 0] == NONE
        self._weights[chosen] = (scores.square() + _MIN_WEIGHT) * is_empty
