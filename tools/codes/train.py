"""Train codes.cfg on generated scenes for a given time, and write darknet weights.

One command trains the model, with photographs that photographs.py collected:
python tools/codes/train.py --photos PHOTOS --minutes 25 --output FOLDER

It writes a checkpoint every minute. The same command with --resume goes on from there;
--session ends a call before the training ends, for example if a card is rented by the hour. The
learning rate decays to nearly zero until then; with --sessions 2 it decays over this call and the
next, which --resume starts, best with another --seed: the same one would draw the same scenes.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_REPOSITORY))

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from distractors import HELD_OUT, Picture, load_photographs  # noqa: E402
from loss import decode_offsets, decode_sizes  # noqa: E402
from scene_pool import CHUNK, ScenePool, SceneWorkers  # noqa: E402
from scoring import Rows, average_precision, nms, overlaps  # noqa: E402
from symbols import NAMES  # noqa: E402
from torch import Tensor  # noqa: E402
from torch_network import Network  # noqa: E402
from training_step import GRAPHS, TrainingStep  # noqa: E402

_WARM_UP_STEPS = 400
_EMA = 0.9995
_AUGMENTED_SHARE = 0.9  # of the time with strong augmentation
_MIN_SCORE = 0.04
_MAX_BOXES = 100  # per picture, before NMS
_THRESHOLDS = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8)
_SMALL, _LARGE = 0.875, 1.25  # sides of the scenes of the two pools, in sides of the .cfg
_LARGE_WORKERS = 0.4  # share of the processes that make them
# Sides of the input, drawn for each batch: for small scenes and for large ones, in the same unit.
# Large scenes that are scaled down alias as photographs of many pixels do in darknet's resize.
_SIDES, _LARGE_SIDES = (1.0, 1.0, 1.0, 0.625), (1.0, 1.0, 1.0, 1.3125)
_LARGE_SHARE = 0.4  # of the batches
_STRIDE = 32  # of the smallest map that is upsampled
_REPORT_SECONDS = 115.0
_RESERVE = 12.0  # seconds for the last report


@dataclass(frozen=True)
class HeldOut:
    pictures: Tensor
    truth: list[Rows]


@dataclass
class State:
    """The progress of a training, which a checkpoint holds."""

    step: int = 0
    seconds: float = 0.0  # of training so far
    record: list[Row] = field(default_factory=list)


def main() -> None:
    options = _options()
    start = time.monotonic()
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    every = load_photographs(options.photos)
    trained = [each for index, each in enumerate(every) if index % HELD_OUT]
    network = Network(options.cfg)
    large = max(1, round(options.workers * _LARGE_WORKERS))
    seed, side = options.seed, network.side
    # The processes are forked, so they come before CUDA.
    workers = [
        SceneWorkers(max(1, options.workers - large), _scaled(side, _SMALL), seed, trained),
        SceneWorkers(large, _scaled(side, _LARGE), seed + 500, trained),
    ]
    try:
        _train(options, network, workers, every[::HELD_OUT][: 8 if options.smoke else None], start)
    finally:
        for each in workers:
            each.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cfg", type=Path, default=_REPOSITORY / "cfg/codes.cfg")
    parser.add_argument("--output", type=Path, required=True, help="a folder")
    parser.add_argument("--minutes", type=float, default=25.0, help="of the whole training")
    parser.add_argument("--session", type=float, help="minutes of this call, its start included")
    parser.add_argument(
        "--sessions", type=int, default=1, help="calls still to come, with this one"
    )
    parser.add_argument("--resume", type=Path, help="a folder with a checkpoint to go on from")
    parser.add_argument("--start", type=Path, help="weights to start from")
    parser.add_argument("--start-layers", type=int, help="use only the first layers of --start")
    parser.add_argument("--batch", type=int, default=128, help="pictures of the .cfg's size")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--decay", type=float, default=0.02)
    parser.add_argument("--pool", type=int, default=9_000, help="scenes kept on the device")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--photos", type=Path, help="a folder that photographs.py made")
    parser.add_argument("--graphs", choices=GRAPHS, default=GRAPHS[0], help="CUDA graphs to use")
    parser.add_argument("--smoke", action="store_true", help="a short test run")
    options = parser.parse_args()
    if options.smoke:
        options.minutes, options.pool = min(options.minutes, 1.0), 2048
        options.batch = options.batch if torch.cuda.is_available() else 8
    options.pool -= options.pool % CHUNK
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def _train(
    options: argparse.Namespace,
    network: Network,
    workers: list[SceneWorkers],
    photographs: list[Picture],
    start: float,
) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    _set_biases(network)
    if options.start:
        network.load(options.start, options.start_layers)
    network = network.to(device, memory_format=torch.channels_last).train()
    ema = copy.deepcopy(network).eval()
    optimiser = _optimiser(network, options, fused=device.type == "cuda")
    state = _resume(options, network, ema, optimiser) if options.resume else State()
    shares = (1, _SMALL**2 / _LARGE**2)
    pools = [
        ScenePool(max(CHUNK, int(options.pool * share) // CHUNK * CHUNK), each, device)
        for each, share in zip(workers, shares, strict=True)
    ]
    step = TrainingStep(network, pools, options.batch, device)
    if device.type == "cuda" and options.graphs != "none":
        _capture(step, network.side, workers, options, start)
    counts = (1, 1) if options.smoke else (10, 3)
    tests = [_held_out(each, count, device) for each, count in zip(workers, counts, strict=True)]
    tests.append(_without_codes(photographs, network.side, device))
    for pool, scenes in zip(pools, (CHUNK, CHUNK) if options.smoke else (2048, 256), strict=True):
        pool.wait_for(scenes)
    averaged = list(zip(_averaged(ema), _averaged(network), strict=True))
    kept, new = [e for e, _ in averaged], [n for _, n in averaged]
    before, began = state.seconds, time.monotonic()
    end = start + (60 * options.session if options.session else 1e9) - _RESERVE
    total_seconds = min(options.minutes * 60, before + options.sessions * (end - began))
    print(f"{device}: training starts {began - start:.0f} s after launch", flush=True)
    counted, reported = 0, began
    period = 15.0 if options.smoke else _REPORT_SECONDS
    first_step = state.step
    while (now := time.monotonic()) < end and state.seconds < total_seconds:
        state.seconds = before + now - began
        part = min(state.seconds / total_seconds, 1.0)
        _set_rate(optimiser, options.rate, state.step - first_step, part)
        if part >= _AUGMENTED_SHARE:
            step.strength.zero_()
        for pool in pools:
            pool.drain()
        is_large = random.random() < _LARGE_SHARE
        share = random.choice(_LARGE_SIDES if is_large else _SIDES)
        step.run((int(is_large), _scaled(network.side, share)))
        torch.nn.utils.clip_grad_norm_(step.parameters, 5.0)
        optimiser.step()
        state.step += 1
        counted += 1
        decay = min(_EMA, (1 + state.step) / (20 + state.step))
        torch._foreach_lerp_(kept, new, 1 - decay)
        if now - reported > period:
            made = [pool.added for pool in pools]
            rate = counted / (now - reported)
            _report(ema, tests, state, made, float(step.total / counted), rate)
            _save(options, network, ema, optimiser, state, device)
            step.total.zero_()
            counted, reported = 0, time.monotonic()
    made, rate = [pool.added for pool in pools], counted / (time.monotonic() - reported + 1e-9)
    _report(ema, tests, state, made, float(step.total / max(counted, 1)), rate)
    _save(options, network, ema, optimiser, state, device)


def _scaled(side: int, share: float) -> int:
    """Return a share of the input's side, such that upsampled maps fit those at stride 16."""
    return _STRIDE * round(share * side / _STRIDE)


def _capture(
    step: TrainingStep,
    side: int,
    workers: list[SceneWorkers],
    options: argparse.Namespace,
    start: float,
) -> None:
    """Capture the steps as CUDA graphs; if that fails, start again with less in them."""
    began = time.monotonic()
    try:
        shares = (set(_SIDES), set(_LARGE_SIDES))
        kinds = [
            (pool, _scaled(side, share))
            for pool, each in enumerate(shares)
            for share in sorted(each)
        ]
        step.capture(kinds, options.graphs)
    except Exception:  # whatever it is, less works
        less = GRAPHS[GRAPHS.index(options.graphs) + 1]
        print(f"no CUDA graphs of {options.graphs}, now of {less}:", file=sys.stderr)
        traceback.print_exc()
        for each in workers:
            each.close()
        # A failed capture may leave CUDA's random numbers unusable in this process.
        again = [sys.executable, *sys.argv, "--graphs", less]
        if options.session:
            again += ["--session", f"{options.session - (time.monotonic() - start) / 60:.3f}"]
        os.execv(sys.executable, again)
    times = ", ".join(f"{kind}: {each * 1e3:.1f} ms" for kind, each in step.times.items())
    print(f"CUDA graphs took {time.monotonic() - began:.0f} s; steps: {times}", flush=True)


# ---------------------------------------------------------------- checkpoints


def _save(
    options: argparse.Namespace,
    network: Network,
    ema: Network,
    optimiser: torch.optim.Optimizer,
    state: State,
    device: torch.device,
) -> None:
    """Write the averaged weights, which are the result, and what --resume needs."""
    seen = state.step * options.batch
    ema.save(options.output / "codes.weights", seen=seen)
    network.save(options.output / "codes-raw.weights", seen=seen)
    moments = {
        f"{name}.{index}": value.float().cpu().numpy()
        for index, values in optimiser.state_dict()["state"].items()
        for name, value in values.items()
    }
    unfinished = options.output / "optimiser.part.npz"
    np.savez(unfinished, **moments)
    unfinished.replace(options.output / "optimiser.npz")
    document = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "torch": torch.__version__,
        "opencv": cv2.__version__,
        "batch": options.batch,
        "rate": options.rate,
        "decay": options.decay,
        "seed": options.seed,
        "workers": options.workers,
        "minutes": options.minutes,
        "start": options.start.name if options.start else None,
        "start_layers": options.start_layers,
        "step": state.step,
        "seconds": round(state.seconds, 1),
        "progress": state.record,
    }
    (options.output / "codes.training.json").write_text(json.dumps(document, indent=1) + "\n")


def _resume(
    options: argparse.Namespace, network: Network, ema: Network, optimiser: torch.optim.Optimizer
) -> State:
    folder = options.resume
    ema.load(folder / "codes.weights")
    network.load(folder / "codes-raw.weights")
    state: dict[int, dict[str, Tensor]] = {}
    with np.load(folder / "optimiser.npz") as moments:
        for key in moments.files:
            name, index = key.rsplit(".", 1)
            state.setdefault(int(index), {})[name] = torch.from_numpy(moments[key])
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    for parameter, values in optimiser.state.items():  # the fused step needs equal strides
        for name in ("exp_avg", "exp_avg_sq"):
            values[name] = torch.empty_like(parameter).copy_(values[name])
    stored = json.loads((folder / "codes.training.json").read_text())
    return State(stored["step"], stored["seconds"], stored["progress"])


def _set_biases(network: Network) -> None:
    """Initialize the biases so that scores are as rare as codes."""
    for head, rows_of_cells, node in zip(
        network.heads,
        network.grids(network.side),
        [n for n in network.graph.nodes if n.kind == "yolo"],
        strict=True,
    ):
        bias = network.layers[node.index - 1][0].bias
        rows = bias.data.view(len(head.selected_anchors()), -1)
        rows[:, :4] = 0
        rows[:, 4] = math.log(min(0.1, 4 / rows_of_cells**2))
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


def _averaged(network: Network) -> list[Tensor]:
    """Return the tensors whose average over the steps is the result."""
    return [
        *(each.data for each in network.parameters()),
        *(each for each in network.buffers() if each.is_floating_point()),
    ]


# ---------------------------------------------------------------- validation


def _held_out(workers: SceneWorkers, chunks: int, device: torch.device) -> HeldOut:
    """Return the first chunks for validation; unlike in evaluate.py, training has their symbols."""
    taken = []
    for _ in range(chunks):
        chunk = workers.take(wait=True)
        assert chunk is not None
        taken.append((chunk.pictures.copy(), chunk.boxes.copy()))
        workers.give_back(chunk)
    truth = []
    for boxes in np.concatenate([boxes for _, boxes in taken]):
        rows = boxes[boxes[:, 0] >= 0].astype(np.float64)
        half = rows[:, 3:5] / 2
        truth.append(np.hstack([rows[:, 1:3] - half, rows[:, 1:3] + half, rows[:, :1]]))
    pictures = torch.from_numpy(np.concatenate([pictures for pictures, _ in taken]))
    return HeldOut(pictures.to(device), truth)


def _without_codes(photographs: list[Picture], side: int, device: torch.device) -> HeldOut:
    scaled = [cv2.resize(p, (side, side), interpolation=cv2.INTER_AREA) for p in photographs]
    empty = torch.from_numpy(np.stack(scaled)[..., ::-1].copy())
    return HeldOut(empty.to(device), [np.zeros((0, 5))] * len(photographs))


@torch.no_grad()
def _detect(network: Network, pictures: Tensor) -> list[Rows]:
    found: list[Rows] = []
    for part in pictures.split(32):
        side = part.shape[1]
        heads = network(part.permute(0, 3, 1, 2).float() / 255)
        decoded = []
        for raw, layer in zip(heads, network.heads, strict=True):
            _, _, rows, columns, _ = raw.shape
            row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            cell = torch.stack([column, row], -1).to(raw)
            centre = (decode_offsets(raw[..., :2], layer.scale_x_y) + cell) / rows
            anchors = raw.new_tensor(layer.selected_anchors())[:, None, None] / side
            half = decode_sizes(raw[..., 2:4], anchors) / 2
            best, kind = (raw[..., 5:].sigmoid() * raw[..., 4:5].sigmoid()).max(-1)
            boxes = torch.cat([centre - half, centre + half, best[..., None], kind[..., None]], -1)
            decoded.append(boxes.flatten(1, 3))
        every = torch.cat(decoded, 1)
        top = every[..., 4].topk(_MAX_BOXES, 1).indices
        kept = every.gather(1, top[..., None].expand(-1, -1, 6)).double().cpu().numpy()
        found += [nms(rows[rows[:, 4] > _MIN_SCORE]) for rows in kept]
    return found


Row = dict[str, Any]


def _report(
    ema: Network,
    tests: list[HeldOut],
    state: State,
    made: list[int],
    value: float,
    rate: float,
) -> None:
    """Print and record the accuracy on scenes of both sizes and on photographs without codes."""
    test, large, empty = tests
    found = _detect(ema, test.pictures)
    precision = _precision(found, test.truth)
    alarms = np.concatenate(_detect(ema, empty.pictures))[:, 4]
    pairs = zip(found, test.truth, strict=True)
    hits = np.concatenate([_best_scores(*pair) for pair in pairs])
    large_precision = _precision(_detect(ema, large.pictures), large.truth)
    row: Row = {
        "seconds": round(state.seconds),
        "step": state.step,
        "steps_per_second": round(rate, 1),
        "scenes": made,
        "loss": round(value, 4),
        "ap50": round(float(np.nanmean(list(precision.values()))), 4),
        "classes": precision,
        "ap50_large": round(float(np.nanmean(list(large_precision.values()))), 4),
        "photographs": len(empty.pictures),
        "alarms": {f"{limit:g}": int((alarms >= limit).sum()) for limit in _THRESHOLDS},
        "recall": {f"{limit:g}": round(float((hits >= limit).mean()), 4) for limit in _THRESHOLDS},
    }
    state.record.append(row)
    print(json.dumps(row), flush=True)


def _precision(found: list[Rows], truth: list[Rows]) -> dict[str, float]:
    return {
        name: round(average_precision(found, truth, kind), 4) for kind, name in enumerate(NAMES)
    }


def _best_scores(found: Rows, truth: Rows) -> Rows:
    """Return for each code the best score of a box of its class with an IoU of 0.5, or 0."""
    overlap = overlaps(truth[:, :4], found[:, :4]) * (truth[:, 4:] == found[None, :, 5])
    return np.where(overlap >= 0.5, found[None, :, 4], 0.0).max(axis=1, initial=0.0)


if __name__ == "__main__":
    main()
