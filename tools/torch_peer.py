"""PyTorch as the peer of bench_cuda.py: the same networks, weights and pictures, timed alike.

    python -m tools.bench_cuda NET.cfg[@SIZE] ... --precisions float16 --peer tools/torch_peer.py
        --peer-arguments=--compile=NET,...

fp32 (TF32 off), tf32 and fp16 (channels last) are replayed from a CUDA graph. fp16-compile is
torch.compile(mode="max-autotune"), for networks named by --compile alone: one takes minutes.
TORCHINDUCTOR_CACHE_DIR keeps what it made. Needs PyTorch with CUDA: pip install torch
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.benchmark.peers.pytorch_peer import TorchNetwork, prepare_plan
from engine.errors import EngineError
from tools.bench_cuda import random_images, random_plan

PRECISIONS = {"fp32": "float32", "tf32": "tf32", "fp16": "float16", "fp16-compile": "float16"}
WARM_UPS = 10


def main(words: list[str] | None = None) -> int:
    import torch

    arguments = parse(words)
    compiled = arguments.compile.split(",")
    torch.backends.cudnn.benchmark = True
    document: dict[str, Any] = {"peer": about(torch), "rows": []}
    for spec in arguments.nets:
        name, _, size = spec.partition("@")
        plan = prepare_plan(random_plan(Path(name), int(size) if size else None))
        variants = arguments.only.split(",")
        for batch, variant in product(map(int, arguments.batches.split(",")), variants):
            if variant == "fp16-compile" and Path(name).stem not in compiled:
                continue
            is_tf32 = variant != "fp32"
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_tf32
            network = TorchNetwork(torch, plan, arguments.device, PRECISIONS[variant])
            given = network.to_device(random_images(plan, batch))
            run = ready(torch, network, given, is_compiled=variant == "fp16-compile")
            row = {"net": Path(name).stem, "batch": batch, "variant": variant}
            row["ms"] = timed(torch, run, arguments.repeats)
            document["rows"].append(row)
            print(row, flush=True)
            if arguments.out:  # at once, so that a run that is cut short leaves its rows
                arguments.out.write_text(json.dumps(document, indent=1))
            del network, given, run
            torch.cuda.empty_cache()
    return 0


def about(torch: Any) -> str:
    return f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--only", default="fp32,tf32,fp16", help="of fp32,tf32,fp16,fp16-compile")
    parser.add_argument("--compile", default="", help="names of networks, without .cfg")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--out", type=Path)
    return parser.parse_args(words)


def ready(
    torch: Any, network: TorchNetwork, given: Any, *, is_compiled: bool
) -> Callable[[], object]:
    if not is_compiled:
        graph, _ = network.capture(given)
        return lambda: graph.replay()
    from torch._inductor import config

    # By threads: what it lets other processes compile, it compiles again to time it, one by one.
    config.compile_threads = 1
    compiled = torch.compile(traced(torch, network, given), mode="max-autotune")
    return lambda: compiled(given)


def traced(torch: Any, network: TorchNetwork, given: Any) -> Any:
    """The network as a module of PyTorch's own calls, with nothing left that is ours."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return make_fx(lambda source: network.forward(source))(given)


def timed(torch: Any, run: Callable[[], object], repeats: int) -> float:
    """Median milliseconds between events of the card, after it has warmed up."""
    with torch.no_grad():
        for _ in range(WARM_UPS):
            run()
        torch.cuda.synchronize()
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in "ab"] for _ in range(repeats)]
        for start, end in pairs:
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in pairs)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EngineError as error:
        sys.exit(f"Error: {error}")
