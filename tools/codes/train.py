"""Train codes.cfg on scenes that are made meanwhile, for a given time; write darknet weights.

One command makes the model anew, with photographs that photographs.py collected:
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
from augment import varied  # noqa: E402
from feed import CHUNK, Feed, Pool  # noqa: E402
from look_alikes import HELD_OUT, Picture, photos  # noqa: E402
from loss import decode_offsets, decode_sizes, loss  # noqa: E402
from net import Network  # noqa: E402
from scoring import Rows, average_precision, overlaps, suppressed  # noqa: E402
from symbols import NAMES  # noqa: E402
from torch import Tensor  # noqa: E402

_WARMUP = 400  # steps
_EMA = 0.9993
_CALM = 0.85  # of the time; then scenes are used as they were made
_LEAST_SCORE = 0.02
_MOST_BOXES = 300  # a picture, before suppression
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
    every = photos(options.photos)
    trained = [each for index, each in enumerate(every) if index % HELD_OUT]
    feed = Feed(options.workers, network.side, options.seed, trained)
    try:
        _train(options, network, feed, every[::HELD_OUT], start)
    finally:
        feed.close()


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
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--photos", type=Path, help="a folder that photographs.py made")
    parser.add_argument("--smoke", action="store_true", help="everything once, in seconds")
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
    feed: Feed,
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
    mean = copy.deepcopy(network).eval()
    optimiser = _optimiser(network, options, fused=device.type == "cuda")
    chunks = 2 if options.smoke else 14
    held_out = _held_out(feed, chunks, photographs, device)
    pool = Pool(options.pool, network.side, device)
    while pool.made < (2 * CHUNK if options.smoke else 4096):
        pool.add(*_taken(feed))
    strides = network.strides()
    seconds = options.minutes * 60
    record: list[Row] = []
    began = time.monotonic()
    print(f"{device}: training starts {began - start:.0f} s after launch", flush=True)
    step, total, counted, reported = 0, torch.zeros((), device=device), 0, began
    period = 8.0 if options.smoke else 60.0
    while (elapsed := time.monotonic() - start) < seconds - (3 if options.smoke else 12):
        _drain(feed, pool)
        part = (time.monotonic() - began) / (seconds - 12 - (began - start) + 1e-9)
        _set_rate(optimiser, options.rate, step, min(part, 1.0))
        chosen, pictures, boxes = pool.draw(options.batch)
        pictures, truth = varied(pictures, boxes, strong=part < _CALM)
        pictures = pictures.contiguous(memory_format=torch.channels_last)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            heads = network(pictures)
        value = loss(heads, network.heads, strides, truth)
        pool.remember(chosen, _highest(heads))
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()
        step += 1
        _average(mean, network, min(_EMA, (1 + step) / (20 + step)))
        total += value.detach()
        counted += 1
        if time.monotonic() - reported > period:
            row = _report(mean, held_out, step, elapsed, pool.made, float(total / counted))
            record.append(row)
            _keep_best(mean, record, options)
            total, counted, reported = torch.zeros_like(total), 0, time.monotonic()
    elapsed = time.monotonic() - start
    value = float(total / max(counted, 1))
    record.append(_report(mean, held_out, step, elapsed, pool.made, value))
    _keep_best(mean, record, options)
    mean.save(options.output / "codes-last.weights", seen=step * options.batch)
    _write_record(options, record, device)


def _set_biases(network: Network) -> None:
    """Start with scores as rare as codes are."""
    for head, stride, node in zip(
        network.heads,
        network.strides(),
        [n for n in network.graph.nodes if n.kind == "yolo"],
        strict=True,
    ):
        bias = network.layers[node.index - 1][0].bias
        rows = bias.data.view(len(head.pick()), -1)
        rows[:, :4] = 0
        rows[:, 4] = math.log(4 / (network.side / stride) ** 2)
        rows[:, 5:] = math.log(0.25)


def _optimiser(
    network: Network, options: argparse.Namespace, *, fused: bool
) -> torch.optim.Optimizer:
    """Only convolutions' weights decay."""
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
        group["lr"] = rate * cosine * min(1.0, (step + 1) / _WARMUP)


def _taken(feed: Feed) -> tuple[np.ndarray, np.ndarray]:
    chunk = feed.take(wait=True)
    assert chunk is not None
    return chunk


def _drain(feed: Feed, pool: Pool) -> None:
    for _ in range(4):
        chunk = feed.take(wait=False)
        if chunk is None:
            return
        pool.add(*chunk)


@torch.no_grad()
def _highest(heads: list[Tensor]) -> Tensor:
    """Of each picture: the highest objectness."""
    return torch.stack([raw[..., 4].flatten(1).amax(1) for raw in heads]).amax(0).sigmoid()


@torch.no_grad()
def _average(mean: Network, network: Network, share: float) -> None:
    kept = [*mean.parameters(), *(b for b in mean.buffers() if b.is_floating_point())]
    new = [*network.parameters(), *(b for b in network.buffers() if b.is_floating_point())]
    torch._foreach_lerp_([t.data for t in kept], [t.data for t in new], 1 - share)


# ---------------------------------------------------------------- how well it goes


def _held_out(feed: Feed, chunks: int, photographs: list[Picture], device: torch.device) -> HeldOut:
    """The first chunks, never trained on. Their symbols recur; evaluate.py is the real test."""
    taken = [_taken(feed) for _ in range(chunks)]
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
def _found(network: Network, pictures: Tensor) -> list[Rows]:
    found: list[Rows] = []
    for part in pictures.split(64):
        heads = network(part.permute(0, 3, 1, 2).float() / 255)
        decoded = []
        for raw, layer, stride in zip(heads, network.heads, network.strides(), strict=True):
            _, _, rows, columns, _ = raw.shape
            row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            cell = torch.stack([column, row], -1).to(raw)
            centre = (decode_offsets(raw[..., :2], layer.scale_x_y) + cell) * stride / network.side
            anchors = raw.new_tensor(layer.pick())[:, None, None] / network.side
            half = decode_sizes(raw[..., 2:4], anchors) / 2
            best, kind = (raw[..., 5:].sigmoid() * raw[..., 4:5].sigmoid()).max(-1)
            boxes = torch.cat([centre - half, centre + half, best[..., None], kind[..., None]], -1)
            decoded.append(boxes.flatten(1, 3))
        every = torch.cat(decoded, 1)
        top = every[..., 4].topk(_MOST_BOXES, 1).indices
        kept = every.gather(1, top[..., None].expand(-1, -1, 6)).double().cpu().numpy()
        found += [suppressed(rows[rows[:, 4] > _LEAST_SCORE]) for rows in kept]
    return found


Row = dict[str, float | dict[str, float]]


def _report(
    mean: Network, held_out: HeldOut, step: int, elapsed: float, made: int, value: float
) -> Row:
    found = _found(mean, held_out.pictures)
    precision = {
        name: round(average_precision(found, held_out.truth, kind), 4)
        for kind, name in enumerate(NAMES)
    }
    alarms = np.concatenate(_found(mean, held_out.photographs))[:, 4]
    pairs = zip(found, held_out.truth, strict=True)
    hits = np.concatenate([_scores_of_hits(*pair) for pair in pairs])
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


def _scores_of_hits(found: Rows, truth: Rows) -> Rows:
    """Of each code: the score of the surest box of its class that overlaps it by half, or 0."""
    overlap = overlaps(truth[:, :4], found[:, :4]) * (truth[:, 4:] == found[None, :, 5])
    return np.where(overlap >= 0.5, found[None, :, 4], 0.0).max(axis=1, initial=0.0)


def _keep_best(mean: Network, record: list[Row], options: argparse.Namespace) -> None:
    """Precision first; a false alarm in a hundred photographs costs a fifth of a point."""

    def merit(row: Row) -> float:
        alarms, precision = row["alarms"], row["ap50"]
        assert isinstance(alarms, dict)
        assert isinstance(precision, float)
        return precision - 0.2 * alarms["0.5"] / row["photographs"]

    if merit(record[-1]) >= max(merit(row) for row in record):
        seen = int(record[-1]["step"]) * options.batch
        mean.save(options.output / "codes.weights", seen=seen)


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
