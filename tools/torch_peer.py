"""PyTorch as a peer of bench_cuda.py, with the same networks, weights and input.

    python -m tools.bench_cuda NET.cfg[@SIZE] ... --precisions float16 --peer tools/torch_peer.py
        --compile NET,... --ahead 3

fp32 (TF32 off), tf32 and fp16 (channels last) are replayed CUDA graphs. fp16-compile is
torch.compile(mode="max-autotune"), which takes minutes. Needs PyTorch with CUDA: pip install torch

Each line of the input is a JSON object, and is answered by one:

    {"about": true}                                      {"peer": "PyTorch 2.11"}
    {"net": "NET.cfg@416", "batch": 8, "variants": []}   {}; they take the place of those before
    {"time": "fp16", "repeats": 50}                      {"ms": [0.2, ...]}
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.benchmark.peers.pytorch_peer import TorchNetwork, prepare_plan
from engine.errors import EngineError
from tools.bench_cuda import plan_of, random_images

PRECISIONS = {"fp32": "float32", "tf32": "tf32", "fp16": "float16", "fp16-compile": "float16"}
WARM_UPS = 10

Run = Callable[[], object]


def main(words: list[str] | None = None) -> int:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    device = parser.parse_args(words).device
    torch.backends.cudnn.benchmark = True
    answers, sys.stdout = sys.stdout, sys.stderr  # PyTorch prints to stdout as it compiles
    runs: dict[str, Run] = {}
    for line in sys.stdin:
        question = json.loads(line)
        answer: dict[str, Any] = {}
        if "about" in question:
            answer["peer"] = version(torch)
        elif "net" in question:
            runs.clear()
            torch.cuda.empty_cache()
            for variant in question["variants"]:
                runs[variant] = build(torch, device, question["net"], question["batch"], variant)
        else:
            answer["ms"] = measure(torch, runs[question["time"]], question["repeats"])
        print(json.dumps(answer), file=answers, flush=True)
    return 0


def version(torch: Any) -> str:
    return f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"


def build(torch: Any, device: str, spec: str, batch: int, variant: str) -> Run:
    """Return a function that runs a network once, warmed up."""
    plan = prepare_plan(plan_of(spec))
    is_tf32 = variant != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_tf32
    network = TorchNetwork(torch, plan, device, PRECISIONS[variant])
    source = network.to_device(random_images(plan, batch))
    if variant == "fp16-compile":
        run = compile_network(torch, network, source)
    else:
        graph, _ = network.capture(source)
        run = graph.replay
    with torch.no_grad():
        for _ in range(WARM_UPS):
            run()
        torch.cuda.synchronize()
    return run


def compile_network(torch: Any, network: TorchNetwork, source: Any) -> Run:
    from torch._inductor import config
    from torch._inductor.runtime.benchmarking import benchmarker

    # Kernels that other processes compile are compiled again, one by one, to be timed.
    config.compile_threads = 1
    # Several processes may compile ahead; only one at a time may time kernels on the card.
    benchmarker.benchmark_gpu = alone(benchmarker.benchmark_gpu)
    compiled = torch.compile(trace(torch, network, source), mode="max-autotune")
    return lambda: compiled(source)


def alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that only one process of this user can run at a time."""
    path = Path(tempfile.gettempdir()) / f"torch-peer-{os.getuid()}.lock"

    def locked(*values: Any, **options: Any) -> Any:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return function(*values, **options)

    return locked


def trace(torch: Any, network: TorchNetwork, source: Any) -> Any:
    """Return the network as a module that contains PyTorch calls only."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        return make_fx(lambda values: network.forward(values))(source)


def measure(torch: Any, run: Run, repeats: int) -> list[float]:
    """Return the milliseconds between CUDA events of each run."""
    with torch.no_grad():
        pairs = [[torch.cuda.Event(enable_timing=True) for _ in "ab"] for _ in range(repeats)]
        for start, end in pairs:
            start.record()
            run()
            end.record()
        torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in pairs]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EngineError as error:
        sys.exit(f"Error: {error}")
