"""PyTorch as a peer of bench_cuda.py, with the same networks, weights and input.

    python -m tools.bench_cuda NET.cfg[@SIZE] ... --precisions float16 --peer tools/torch_peer.py
        --peer-arguments=--compile=NET,...

fp32 (TF32 off), tf32 and fp16 (channels last) are replayed CUDA graphs. fp16-compile is
torch.compile(mode="max-autotune"), which takes minutes and therefore only runs for the networks of
--compile; TORCHINDUCTOR_CACHE_DIR keeps its results. Needs PyTorch with CUDA: pip install torch
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
    document: dict[str, Any] = {"peer": version(torch), "rows": []}
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
            source = network.to_device(random_images(plan, batch))
            run = make_run(torch, network, source, is_compiled=variant == "fp16-compile")
            row = {"net": Path(name).stem, "batch": batch, "variant": variant}
            row["ms"] = measure(torch, run, arguments.repeats)
            document["rows"].append(row)
            print(row, flush=True)
            if arguments.out:  # after each row, so that an aborted run keeps its rows
                arguments.out.write_text(json.dumps(document, indent=1))
            del network, source, run
            torch.cuda.empty_cache()
    return 0


def version(torch: Any) -> str:
    return f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--batches", default="1,8,64")
    parser.add_argument("--only", default="fp32,tf32,fp16", help="also fp16-compile")
    parser.add_argument("--compile", default="", help="names of networks, without .cfg")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--out", type=Path)
    return parser.parse_args(words)


def make_run(
    torch: Any, network: TorchNetwork, source: Any, *, is_compiled: bool
) -> Callable[[], object]:
    if not is_compiled:
        graph, _ = network.capture(source)
        return lambda: graph.replay()
    from torch._inductor import config

    # Kernels that other processes compile are compiled again, one by one, to be timed.
    config.compile_threads = 1
    compiled = torch.compile(trace(torch, network, source), mode="max-autotune")
    return lambda: compiled(source)


def trace(torch: Any, network: TorchNetwork, source: Any) -> Any:
    """Return the network as a module that contains PyTorch calls only."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return make_fx(lambda values: network.forward(values))(source)


def measure(torch: Any, run: Callable[[], object], repeats: int) -> float:
    """Return the median milliseconds between CUDA events, after a warm-up."""
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
