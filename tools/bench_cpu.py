"""Time a network on the CPU with this engine and its peers, interleaved, each in its own process.

Every program runs one forward pass per round, so that the load of the machine affects all alike.
It prints medians and minima, ratios to this engine, processor time and peak memory.
Peers: OpenCV DNN 4.x, ONNX Runtime, and the `darknet` program (its own "Predicted in").
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.plan.build import Plan

_REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_REPOSITORY))
_PAUSE_SECONDS = 0.05  # between programs, so that idle thread pools stop spinning
_DARKNET_ROUNDS = 3
_DARKNET_SECONDS = 300
_PREDICTED = re.compile(r"Predicted in ([0-9.]+) (milli-)?seconds")


@dataclass(frozen=True)
class Network:
    cfg: Path
    weights: Path
    sides: tuple[int, ...] = ()  # channels, height, width of the input
    device: str = "cpu"  # of this engine; ort shows its cost on top of ONNX Runtime


@dataclass
class Times:
    """The times of one program, in milliseconds."""

    engine: str
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    peak_mb: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cfg", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    programs = [*ENGINES, "darknet"]
    parser.add_argument("--engines", nargs="+", choices=programs, default=programs)
    parser.add_argument("--device", choices=("cpu", "ort"), default="cpu", help="of this engine")
    parser.add_argument("--json", type=Path, help="write all times to this file")
    parser.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--sides", type=int, nargs=3, default=(), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name, least in ("rounds", options.rounds), ("threads", min(options.threads)):
        if least < 1:
            parser.error(f"--{name}: expected 1 or more, got {least}")
    network = Network(options.cfg, options.weights, tuple(options.sides), options.device)
    if options.worker:
        return work(options.worker, network, options.threads[0])
    network = replace(network, sides=read_plan(network).source.shape.sides)
    print(conditions())
    all_times = {}
    for threads in options.threads:
        names = [name for name in ENGINES if name in options.engines]
        times = measure(network, names, threads, options.rounds)
        if "darknet" in options.engines and threads == 1:
            times += time_darknet(network)
        report(times, threads)
        all_times[threads] = [vars(each) for each in times]
    if not any(all_times.values()):
        print("Error: no program could be timed", file=sys.stderr)
        return 1
    if options.json:
        options.json.write_text(json.dumps(all_times, indent=1))
    return 0


# ---------------------------------------------------------------- programs, in worker processes


def this_engine(network: Network, threads: int) -> Callable[[], object]:
    import numpy as np

    import engine

    detector = engine.load(network.cfg, network.weights, device=network.device, threads=threads)
    images = np.random.default_rng(0).random((1, *network.sides), np.float32)
    return lambda: detector.forward(images)


def opencv(network: Network, threads: int) -> Callable[[], object]:
    import cv2
    import numpy as np

    cv2.setNumThreads(threads)
    net = cv2.dnn.readNetFromDarknet(str(network.cfg), str(network.weights))
    names = net.getUnconnectedOutLayersNames()
    images = np.random.default_rng(0).random((1, *network.sides), np.float32)

    def run() -> object:
        net.setInput(images)
        return net.forward(names)

    return run


def onnx_runtime(network: Network, threads: int) -> Callable[[], object]:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    path = _onnx_file(network)
    try:
        session = onnxruntime.InferenceSession(path, options, providers=providers)
    finally:
        Path(path).unlink()
    images = np.random.default_rng(0).random((1, *network.sides), np.float32)
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: images})


def _onnx_file(network: Network) -> str:
    """Export in another process, so that it does not count towards the peak memory of this one."""
    handle, path = tempfile.mkstemp(suffix=".onnx")
    os.close(handle)
    code = (
        "import sys; from engine.cli import main\n"
        "cfg, weights, out = sys.argv[1:]\n"
        "sys.exit(main(['export', 'onnx', cfg, weights, '-o', out, '--overwrite']))\n"
    )
    command = [sys.executable, "-c", code, str(network.cfg), str(network.weights), path]
    subprocess.run(command, check=True, env=_environment(), stdout=subprocess.DEVNULL)
    return path


def read_plan(network: Network) -> Plan:
    from engine.darknet import cfg, graph, weights
    from engine.darknet.lower import lower

    layers = graph.build(cfg.read(network.cfg))
    return lower(layers, weights.load(network.weights, layers))


ENGINES: dict[str, Callable[[Network, int], Callable[[], object]]] = {
    "engine": this_engine,
    "opencv": opencv,
    "onnxruntime": onnx_runtime,
}


def work(name: str, network: Network, threads: int) -> int:
    """Run once for every line on stdin and print the times; at the end print the peak memory."""
    try:
        run = ENGINES[name](network, threads)
    except ImportError as error:
        print(f"{name}: skipped, {error}", file=sys.stderr)
        return 1
    run()
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        run()
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(json.dumps([wall * 1e3, processor * 1e3]), flush=True)
    print(peak_mb(), flush=True)
    return 0


def peak_mb() -> float:
    """Return the peak memory of this process; 0 where /proc does not tell it.

    That of getrusage() is at least what the process that started this one had.
    """
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
    except OSError:
        return 0.0
    found = re.search(r"^VmHWM:\s+([0-9]+) kB$", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


# ---------------------------------------------------------------- measurement


def measure(network: Network, names: Sequence[str], threads: int, rounds: int) -> list[Times]:
    running = []
    for name in names:
        process = _start(network, name, threads)
        assert process.stdout is not None
        if process.stdout.readline().strip() == "ready":
            running.append((Times(name), process))
        else:
            with process:
                pass  # the worker has printed the reason
    for _ in range(rounds):
        for times, process in running:
            time.sleep(_PAUSE_SECONDS)
            wall, processor = json.loads(_request_run(process))
            times.wall.append(wall)
            times.processor.append(processor)
    for times, process in running:
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            process.stdin.close()
            times.peak_mb = float(process.stdout.readline())
    return [times for times, _ in running]


def _start(network: Network, name: str, threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--worker", name, "--threads", str(threads)]
    command += ["--cfg", str(network.cfg), "--weights", str(network.weights)]
    command += ["--sides", *map(str, network.sides), "--device", network.device]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_environment())


def _request_run(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("run\n")
    process.stdin.flush()
    return process.stdout.readline()


def _environment() -> dict[str, str]:
    paths = [str(_REPOSITORY), str(_REPOSITORY / "tools"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def time_darknet(network: Network) -> list[Times]:
    """Run `darknet detector test` on a grey picture; its own timing excludes loading."""
    program = shutil.which("darknet")
    if program is None:
        print("darknet: skipped, no such program", file=sys.stderr)
        return []
    from PIL import Image

    times = Times("darknet")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "names").write_text("".join(f"class {k}\n" for k in range(1000)))
        (root / "net.data").write_text("classes=1000\nnames=names\n")
        Image.new("RGB", (640, 480), "grey").save(root / "picture.jpg")
        command = [program, "detector", "test", "net.data", str(network.cfg.resolve())]
        command += [str(network.weights.resolve()), "picture.jpg", "-dont_show"]
        for _ in range(_DARKNET_ROUNDS):
            found = _PREDICTED.search(_output_until(_PREDICTED, command, folder))
            if found is None:
                print("darknet: skipped, it could not run this network", file=sys.stderr)
                return []
            times.wall.append(float(found[1]) * (1 if found[2] else 1e3))
    return [times]


def _output_until(wanted: re.Pattern[str], command: Sequence[str], folder: str) -> str:
    """Run a program, which waits at an open window, and kill it once it has printed `wanted`.

    Its output is a pseudo-terminal, because it would buffer output to a pipe.
    """
    terminal, program_end = pty.openpty()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
        stdin=subprocess.DEVNULL,
        stdout=program_end,
        stderr=program_end,
    )
    os.close(program_end)
    output = ""
    end = time.monotonic() + _DARKNET_SECONDS
    try:
        while not wanted.search(output) and time.monotonic() < end:
            if not select.select([terminal], [], [], 1.0)[0]:
                continue
            output += os.read(terminal, 65536).decode(errors="replace")
    except OSError:
        pass  # on Linux: the program has closed its end
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return output


def conditions() -> str:
    """Describe the processor and NumPy's BLAS kernels, which a variable can force to slow ones."""
    from engine.backends.cpu import blas
    from engine.backends.cpu.device import CpuDevice

    return f"{CpuDevice().describe()}; NumPy's {blas.describe()}"


def report(times: Sequence[Times], threads: int) -> None:
    """Print a line for each program; ratios compare this engine with it, round by round."""
    print(f"{threads} thread{'s' * (threads > 1)}")
    print(
        f"  {'':12} {'median ms':>10} {'min ms':>8} {'processor ms':>13} {'peak MB':>8}"
        f" {'engine / it: median':>20} {'min':>6} {'processor':>10}"
    )
    ours = next((each for each in times if each.engine == "engine"), None)
    for each in times:
        line = f"  {each.engine:12} {median(each.wall):10.1f} {min(each.wall):8.1f}"
        line += f" {min(each.processor):13.1f}" if each.processor else f" {'':13}"
        line += f" {each.peak_mb:8.0f}" if each.peak_mb else f" {'':8}"
        if ours is not None:
            line += f" {_ratio(ours, each):20.2f} {min(ours.wall) / min(each.wall):6.2f}"
            if each.processor:
                line += f" {min(ours.processor) / min(each.processor):10.2f}"
        print(line, flush=True)


def _ratio(ours: Times, other: Times) -> float:
    if len(ours.wall) != len(other.wall):
        return median(ours.wall) / median(other.wall)
    return median(a / b for a, b in zip(ours.wall, other.wall, strict=True))


if __name__ == "__main__":
    from engine.errors import EngineError

    try:
        sys.exit(main())
    except EngineError as error:
        sys.exit(f"Error: {error}")
