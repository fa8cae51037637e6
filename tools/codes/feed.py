"""Processes that make scenes all the time, and the pool on the GPU that training draws from.

Scenes without codes in which the network saw some anyway are drawn more often.
"""

from __future__ import annotations

import mmap
import multiprocessing
import sys
import traceback
from multiprocessing.queues import Queue

import cv2
import numpy as np
import torch
from look_alikes import Picture
from numpy.typing import NDArray
from scenes import Studio
from torch import Tensor

CHUNK = 32  # scenes that travel together
MOST_CODES = 24
_SLOTS_EACH = 3
_HARD = 0.18  # of a batch, drawn by how sure the network was of codes that are not there
_LEAST_FEAR = 1e-4


class Feed:
    """Must be made before CUDA is used, because the processes are forked."""

    def __init__(self, workers: int, side: int, seed: int, photographs: list[Picture]) -> None:
        self._photographs = photographs
        context = multiprocessing.get_context("fork")
        slots = workers * _SLOTS_EACH
        self._pictures = _shared((slots, CHUNK, side, side, 3), np.uint8)
        self._boxes = _shared((slots, CHUNK, MOST_CODES, 5), np.float32)
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

    def take(self, *, wait: bool) -> tuple[NDArray[np.uint8], NDArray[np.float32]] | None:
        """A chunk of pictures and boxes, copied; None if there is none and `wait` is false."""
        if not wait and self._full.empty():
            return None
        slot = self._full.get(timeout=120)
        result = self._pictures[slot].copy(), self._boxes[slot].copy()
        self._free.put(slot)
        return result

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def _work(self, seed: int, worker: int, side: int) -> None:
        cv2.setNumThreads(1)
        studio = Studio(seed + worker, photographs=self._photographs)
        number = 0
        while True:
            slot = self._free.get()
            boxes = self._boxes[slot]
            boxes[:] = -1
            for index in range(CHUNK):
                number += 1
                try:
                    scene = studio.scene(number, (side, side))
                except Exception:  # one scene in a million must not end an expensive run
                    print(f"scene {number} of {seed + worker} failed", file=sys.stderr)
                    traceback.print_exc()
                    continue
                self._pictures[slot, index] = scene.picture[..., ::-1]
                rows = scene.rows()[:MOST_CODES]
                boxes[index, : len(rows)] = rows
            self._full.put(slot)


def _shared(shape: tuple[int, ...], kind: type) -> NDArray:
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer(mmap.mmap(-1, size), kind).reshape(shape)


class Pool:
    """Scenes on the device; new ones take the place of the oldest."""

    def __init__(self, capacity: int, side: int, device: torch.device) -> None:
        self._pictures = torch.empty((capacity, side, side, 3), dtype=torch.uint8, device=device)
        self._boxes = torch.empty((capacity, MOST_CODES, 5), device=device)
        self._fears = torch.zeros(capacity, device=device)
        self._device = device
        self.made = 0

    def add(self, pictures: NDArray[np.uint8], boxes: NDArray[np.float32]) -> None:
        at = self.made % len(self._pictures)
        self._pictures[at : at + CHUNK].copy_(torch.from_numpy(pictures))
        self._boxes[at : at + CHUNK].copy_(torch.from_numpy(boxes))
        is_empty = torch.from_numpy(boxes[:, 0, 0] < 0)
        self._fears[at : at + CHUNK] = is_empty.to(self._device) * _LEAST_FEAR
        self.made += len(pictures)

    def draw(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Places in the pool, pictures, boxes."""
        filled = min(self.made, len(self._pictures))
        hard = int(batch * _HARD)
        chosen = torch.cat(
            [
                torch.randint(0, filled, (batch - hard,), device=self._device),
                torch.multinomial(self._fears[:filled] + 1e-9, hard, replacement=True),
            ]
        )
        pictures = self._pictures[chosen].permute(0, 3, 1, 2).float() / 255
        return chosen, pictures, self._boxes[chosen]

    def remember(self, chosen: Tensor, scores: Tensor) -> None:
        """The highest objectness in each picture drawn; it counts where there is no code."""
        is_empty = self._boxes[chosen, 0, 0] < 0
        self._fears[chosen] = (scores.square() + _LEAST_FEAR) * is_empty
