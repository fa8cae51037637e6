"""Train codes.cfg on generated scenes for a given time, and write darknet weights.

One command trains the model, with photographs that photographs.py collected:
python tools/codes/train.py --photos PHOTOS --minutes 15 --output weights
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_REPOSITORY))

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from augment import augment  # noqa: E402
from distractors import HELD_OUT, Picture, load_photographs  # noqa: E402
from loss import decode_offsets, decode_sizes, loss  # noqa: E402
from scene_pool import CHUNK, ScenePool, SceneWorkers  # noqa: E402
from scoring import Rows, average_precision, nms, overlaps  # noqa: E402
from symbols import NAMES  # noqa: E402
from torch import Tensor  # noqa: E402
from torch_network import Network  # noqa: E402

_WARM_UP_STEPS = 400
_EMA = 0.9993
_AUGMENTED_SHARE = 0.85  # of the time with strong augmentation
_MIN_SCORE = 0.02
_MAX_BOXES = 300  # per picture, before NMS
_THRESHOLDS = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class HeldOut:
    pictures: Tensor
    truth: list[Rows]
    photographs: Tensor  # without codes


def main() -> None:
    options = _options()
    start = time.monotonic()
    torch.manual_seed(options.seed)
    network = Network(options.cfg)
    every = load_photographs(options.photos)
    trained = [each for index, each in enumerate(every) if index % HELD_OUT]
    workers = SceneWorkers(options.workers, network.side, options.seed, trained)
    try:
        _train(options, network, workers, every[::HELD_OUT], start)
    finally:
        workers.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cfg", type=Path, default=_REPOSITORY / "cfg/codes.cfg")
    parser.add_argument("--output", type=Path, required=True, help="a folder")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.02)
    parser.add_argument("--pool", type=int, default=120_000, help="scenes kept on the device")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--start", type=Path, help="weights to start from")
    parser.add_argument("--photos", type=Path, help="a folder that photographs.py made")
    parser.add_argument("--smoke", action="store_true", help="a short test run")
    options = parser.parse_args()
    if options.smoke:
        options.minutes, options.pool = 0.5, 2048
        options.batch = options.batch if torch.cuda.is_available() else 8
    options.pool -= options.pool % CHUNK
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def _train(
    options: argparse.Namespace,
    network: Network,
    workers: SceneWorkers,
    photographs: list[Picture],
    start: float,
) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    if options.start:
        network.load(options.start)
    else:
        _set_biases(network)
    network = network.to(device, memory_format=torch.channels_last).train()
    ema = copy.deepcopy(network).eval()
    optimiser = _optimiser(network, options, fused=device.type == "cuda")
    chunks = 2 if options.smoke else 14
    held_out = _held_out(workers, chunks, photographs, device)
    pool = ScenePool(options.pool, network.side, device)
    while pool.added < (2 * CHUNK if options.smoke else 4096):
        pool.add(*_wait_for_chunk(workers))
    strides = network.strides()
    seconds = options.minutes * 60
    record: list[Row] = []
    began = time.monotonic()
    print(f"{device}: training starts {began - start:.0f} s after launch", flush=True)
    step, total, counted, reported = 0, torch.zeros((), device=device), 0, began
    period = 8.0 if options.smoke else 60.0
    while (elapsed := time.monotonic() - start) < seconds - (3 if options.smoke else 12):
        _drain(workers, pool)
        part = (time.monotonic() - began) / (seconds - 12 - (began - start) + 1e-9)
        _set_rate(optimiser, options.rate, step, min(part, 1.0))
        chosen, pictures, boxes = pool.sample(options.batch)
        pictures, truth = augment(pictures, boxes, strong=part < _AUGMENTED_SHARE)
        pictures = pictures.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            heads = network(pictures)
        value = loss(heads, network.heads, strides, truth)
        pool.update_weights(chosen, _highest_objectness(heads))
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()
        step += 1
        _update_ema(ema, network, min(_EMA, (1 + step) / (20 + step)))
        total += value.detach()
        counted += 1
        if time.monotonic() - reported > period:
            row = _report(ema, held_out, step, elapsed, pool.added, float(total / counted))
            record.append(row)
            _keep_best(ema, record, options)
            total, counted, reported = torch.zeros_like(total), 0, time.monotonic()
    elapsed = time.monotonic() - start
    value = float(total / max(counted, 1))
    record.append(_report(ema, held_out, step, elapsed, pool.added, value))
    _keep_best(ema, record, options)
    ema.save(options.output / "codes-last.weights", seen=step * options.batch)
    _write_record(options, record, device)


def _set_biases(network: Network) -> None:
    """Initialize the biases so that scores are as rare as codes."""
    for head, stride, node in zip(
        network.heads,
        network.strides(),
        [n for n in network.graph.nodes if n.kind == "yolo"],
        strict=True,
    ):
        bias = network.layers[node.index - 1][0].bias
        rows = bias.data.view(len(head.selected_anchors()), -1)
        rows[:, :4] = 0
        rows[:, 4] = math.log(4 / (network.side / stride) ** 2)
        rows[:, 5:] = math.log(0.25)


def _optimiser(
    network: Network, options: argparse.Namespace, *, fused: bool
) -> torch.optim.Optimizer:
    """Return AdamW with weight decay for the weights of convolutions only."""
    weights = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    groups = [
        {"params": weights, "weight_decay": options.decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.99), fused=fused)


def _set_rate(optimiser: torch.optim.Optimizer, rate: float, step: int, part: float) -> None:
    cosine = 0.01 + 0.99 * (1 + math.cos(math.pi * part)) / 2
    for group in optimiser.param_groups:
        group["lr"] = rate * cosine * min(1.0, (step + 1) / _WARM_UP_STEPS)


def _wait_for_chunk(workers: SceneWorkers) -> tuple[np.ndarray, np.ndarray]:
    chunk = workers.take(wait=True)
    assert chunk is not None
    return chunk


def _drain(workers: SceneWorkers, pool: ScenePool) -> None:
    for _ in range(4):
        chunk = workers.take(wait=False)
        if chunk is None:
            return
        pool.add(*chunk)


@torch.no_grad()
def _highest_objectness(heads: list[Tensor]) -> Tensor:
    """Return the highest objectness of each picture."""
    return torch.stack([raw[..., 4].flatten(1).amax(1) for raw in heads]).amax(0).sigmoid()


@torch.no_grad()
def _update_ema(ema: Network, network: Network, decay: float) -> None:
    kept = [*ema.parameters(), *(b for b in ema.buffers() if b.is_floating_point())]
    new = [*network.parameters(), *(b for b in network.buffers() if b.is_floating_point())]
    torch._foreach_lerp_([t.data for t in kept], [t.data for t in new], 1 - decay)


# ---------------------------------------------------------------- validation


def _held_out(
    workers: SceneWorkers, chunks: int, photographs: list[Picture], device: torch.device
) -> HeldOut:
    """Return the first chunks for validation; unlike in evaluate.py, training has their symbols."""
    taken = [_wait_for_chunk(workers) for _ in range(chunks)]
    truth = []
    for boxes in np.concatenate([boxes for _, boxes in taken]):
        rows = boxes[boxes[:, 0] >= 0].astype(np.float64)
        half = rows[:, 3:5] / 2
        truth.append(np.hstack([rows[:, 1:3] - half, rows[:, 1:3] + half, rows[:, :1]]))
    pictures = torch.from_numpy(np.concatenate([pictures for pictures, _ in taken]))
    side = pictures.shape[1]
    scaled = [cv2.resize(p, (side, side), interpolation=cv2.INTER_AREA) for p in photographs]
    empty = torch.from_numpy(np.stack(scaled)[..., ::-1].copy())
    return HeldOut(pictures.to(device), truth, empty.to(device))


@torch.no_grad()
def _detect(network: Network, pictures: Tensor) -> list[Rows]:
    found: list[Rows] = []
    for part in pictures.split(64):
        heads = network(part.permute(0, 3, 1, 2).float() / 255)
        decoded = []
        for raw, layer, stride in zip(heads, network.heads, network.strides(), strict=True):
            _, _, rows, columns, _ = raw.shape
            row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            cell = torch.stack([column, row], -1).to(raw)
            centre = (decode_offsets(raw[..., :2], layer.scale_x_y) + cell) * stride / network.side
            anchors = raw.new_tensor(layer.selected_anchors())[:, None, None] / network.side
            half = decode_sizes(raw[..., 2:4], anchors) / 2
            best, kind = (raw[..., 5:].sigmoid() * raw[..., 4:5].sigmoid()).max(-1)
            boxes = torch.cat([centre - half, centre + half, best[..., None], kind[..., None]], -1)
            decoded.append(boxes.flatten(1, 3))
        every = torch.cat(decoded, 1)
        top = every[..., 4].topk(_MAX_BOXES, 1).indices
        kept = every.gather(1, top[..., None].expand(-1, -1, 6)).double().cpu().numpy()
        found += [nms(rows[rows[:, 4] > _MIN_SCORE]) for rows in kept]
    return found


Row = dict[str, float | dict[str, float]]


def _report(
    ema: Network, held_out: HeldOut, step: int, elapsed: float, made: int, value: float
) -> Row:
    found = _detect(ema, held_out.pictures)
    precision = {
        name: round(average_precision(found, held_out.truth, kind), 4)
        for kind, name in enumerate(NAMES)
    }
    alarms = np.concatenate(_detect(ema, held_out.photographs))[:, 4]
    pairs = zip(found, held_out.truth, strict=True)
    hits = np.concatenate([_best_scores(*pair) for pair in pairs])
    row: Row = {
        "seconds": round(elapsed),
        "step": step,
        "scenes": made,
        "loss": round(value, 4),
        "ap50": round(float(np.nanmean(list(precision.values()))), 4),
        "classes": precision,
        "photographs": len(held_out.photographs),
        "alarms": {f"{limit:g}": int((alarms >= limit).sum()) for limit in _THRESHOLDS},
        "recall": {f"{limit:g}": round(float((hits >= limit).mean()), 4) for limit in _THRESHOLDS},
    }
    print(json.dumps(row), flush=True)
    return row


def _best_scores(found: Rows, truth: Rows) -> Rows:
    """Return for each code the best score of a box of its class with an IoU of 0.5, or 0."""
    overlap = overlaps(truth[:, :4], found[:, :4]) * (truth[:, 4:] == found[None, :, 5])
    return np.where(overlap >= 0.5, found[None, :, 4], 0.0).max(axis=1, initial=0.0)


def _keep_best(ema: Network, record: list[Row], options: argparse.Namespace) -> None:
    """Save the weights if they are the best: AP less 0.2 times false alarms per photograph."""

    def merit(row: Row) -> float:
        alarms, precision = row["alarms"], row["ap50"]
        assert isinstance(alarms, dict)
        assert isinstance(precision, float)
        return precision - 0.2 * alarms["0.5"] / row["photographs"]

    if merit(record[-1]) >= max(merit(row) for row in record):
        seen = int(record[-1]["step"]) * options.batch
        ema.save(options.output / "codes.weights", seen=seen)


def _write_record(options: argparse.Namespace, record: list, device: torch.device) -> None:
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    document = {
        "device": name,
        "torch": torch.__version__,
        "opencv": cv2.__version__,
        "batch": options.batch,
        "rate": options.rate,
        "decay": options.decay,
        "seed": options.seed,
        "workers": options.workers,
        "minutes": options.minutes,
        "start": options.start.name if options.start else None,
        "progress": record,
    }
    (options.output / "codes.training.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
