"""Run every op test case once on a device, under compute-sanitizer.

    python tools/run_op_cases_cuda.py [--algorithms] [--every N]
        [--precisions float32,float16,tf32,int8]
    python tools/run_op_cases_cuda.py --fault TOOL

Results are not checked, since the tests do that. `--algorithms` runs each convolution with every
supported algorithm; `--every 3` runs every third case. `--fault memcheck` only runs a kernel with a
fault that this tool of compute-sanitizer must find.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.backends.base import Placed
from engine.backends.cuda import conv
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.driver.launch import Module
from engine.calibrate.collect import ranges_of_noise
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import FUSING, optimise
from engine.passes.quantise import quantise
from engine.plan import ops
from engine.plan.build import Plan, PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape, Window
from engine.vision.resize import Placement
from tests.backends.cases import all_cases, missing_pass
from tests.backends.cuda import test_int8_kernels, test_int8_on_card, test_int8_ops
from tests.backends.cuda.test_chains import FIRST, REST, SECOND, plan_of, squeeze
from tests.backends.cuda.test_mma_kernels import convolution
from tests.backends.head_cases import HEADS, values_for
from tests.backends.layouts import INSIDE_ALIGNED, laid_out

ROOT = Path(__file__).resolve().parent.parent
SEQUENCES = 2
INTEGERS = [
    op
    for table in (test_int8_kernels.WHOLE, test_int8_kernels.SWAPPED, test_int8_kernels.GEMMS)
    for op in table.values()
]
INTEGERS += [
    convolution(src, filters, (size, size), padding=(size // 2,) * 4, has_residual=True)
    for _, src, filters, size in test_int8_kernels.PATCHES
]
ROWS, FEW = 9, 2  # of integers, and multiprocessors: with these, small maps meet every algorithm

# The body of a faulty kernel that runs with 64 threads on 64 uninitialized floats.
FAULTS = {
    "memcheck": "values[threadIdx.x + 64] = 1.f;",
    "racecheck": "__shared__ volatile float one; one = threadIdx.x; values[threadIdx.x] = one;",
    "initcheck": "values[threadIdx.x] = values[63 - threadIdx.x] + 1.f;",
    # The 17th thread of each warp waits at a barrier whose mask excludes it. Threads that exit
    # before a barrier are not a fault since Volta.
    "synccheck": "const unsigned lane = threadIdx.x % 32, few = __ballot_sync(~0u, lane < 16);"
    " if (lane <= 16) __syncwarp(few); values[threadIdx.x] = 1.f;",
}


def run(device: CudaDevice, plan: Plan, call: Any, **options: Any) -> None:
    program = device.compile(plan, batch=SEQUENCES, graph=False, tune=False, **options)
    call(program)
    program.close()


def op_cases(
    device: CudaDevice, precision: str, *, all_algorithms: bool, every: int
) -> Iterator[str]:
    cases = [case for case in all_cases() if missing_pass(case, device.passes) is None]
    for case in cases[::every]:
        plan, images = laid_out(case, sequences=SEQUENCES, layout=INSIDE_ALIGNED)
        names: tuple[str | None, ...] = (None,)
        if all_algorithms and isinstance(case.op, ops.Conv2d):
            names = device.algorithms(plan, case.op, batch=SEQUENCES, precision=precision)
        for name in names:
            run(
                *(device, plan, lambda program, images=images: program.forward(images)),
                precision=precision,
                algorithm=name,
            )
            yield f"{case} {name or ''}"


def products(device: CudaDevice, precision: str) -> Iterator[str]:
    """Run convolutions whose input is the product of a map and its channel means."""
    random = np.random.default_rng(0)
    for channels, filters in ((32, 16), (96, 24), (192, 40)):
        builder = PlanBuilder(Shape(channels, 9, 7))
        source = builder.source
        means, product, out = map(
            builder.tensor, (Shape(channels, 1, 1), source.shape, Shape(filters, 9, 7))
        )
        builder.emit(ops.AveragePool(means, source, Window((9, 7), (1, 1))))
        builder.emit(ops.Multiply(product, source, means))
        weight = builder.constant("weight", random.standard_normal((filters, channels, 1, 1)))
        builder.emit(ops.Conv2d(out, product, weight))
        plan = builder.build((out,), (out,))
        images = random.standard_normal((SEQUENCES, *source.shape.sides), np.float32)
        for name in (
            "few_channels_32",
            "implicit_gemm_64x32x6_split1",
            "implicit_gemm_64x32x4_split1",
        ):
            run(
                *(device, plan, lambda program, images=images: program.forward(images)),
                precision=precision,
                algorithm=name,
            )
            yield f"product of {channels} channels {name}"


def chains(device: CudaDevice, precision: str) -> Iterator[str]:
    """Run chains of convolutions, which a card fuses into one kernel."""
    plan = plan_of(FIRST + SECOND + squeeze() + REST, (45, 63))
    random = np.random.default_rng(0)
    images = random.random((SEQUENCES, *plan.source.shape.sides), np.float32)
    run(device, plan, lambda program: program.forward(images), precision=precision)
    yield "chains"


def heads(device: CudaDevice, precision: str) -> Iterator[str]:
    for name, head in HEADS.items():
        plan = Plan(head.src, (), (head.src,), (head.src,), heads=(head,))
        images = values_for(head)[None]
        run(
            *(device, plan, lambda program, images=images: program.detect(images, threshold=0.1)),
            precision=precision,
        )
        yield name


def pictures(device: CudaDevice, precision: str) -> Iterator[str]:
    source = Tensor(-1, Shape(3, 20, 30))
    plan = Plan(source, (), (source,), (source,))
    for kind in ("stretch", "letterbox", "crop"):
        placed = [
            Placed(np.full((*size, 3), 7, np.uint8), Placement(size[::-1], (30, 20), kind))
            for size in ((1, 1), (50, 31))
        ]
        run(
            *(device, plan, lambda program, placed=placed: program.start_forward(placed).result()),
            precision=precision,
        )
        yield kind


def integers(device: CudaDevice, *, all_algorithms: bool, every: int) -> Iterator[str]:
    """Run 8-bit convolutions and other ops, and networks of them."""
    facts = {"capability": device.card.capability, "multiprocessors": FEW}
    runs = []
    for op, writes in [(op, writes) for op in INTEGERS for writes in ("int8", "float16")][::every]:
        problem = test_int8_kernels.Problem(op, ROWS, writes)
        target = problem.target(**facts)
        able = [each for each in conv.candidates(target, op) if not each.unfused]
        families = {conv.ALGORITHMS[each.algorithm].family: each for each in able}
        choices = able if all_algorithms else families.values()
        runs += [(problem, target, choice) for choice in choices]
    wanted = {conv.get(choice).tile(target, problem.op) for problem, target, choice in runs}
    facts = device.card.capability, "int8"
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda tile: compiler.source(tile, *facts).image(), wanted - {None}))
    for problem, target, choice in runs:
        job = partial(test_int8_on_card.run, device, target, problem, choice)
        device._context.run(job)
        yield f"{problem.op} {problem.writes} {choice}"
    for name, op in test_int8_ops.OPS.items():
        plan = test_int8_ops.plan_of(op)
        images = np.ones((SEQUENCES, *plan.source.shape.sides), np.float32)
        run(
            *(device, plan, lambda program, images=images: program.forward(images)),
            precision="int8",
        )
        yield name
    for name, side in (("yolov3-tiny", 96), ("yolov4-tiny", 96), ("resnet50", 64)):
        network = graph.build(cfg.read(ROOT / f"cfg/{name}.cfg"), size=(side, side))
        written = lower(network, random_weights.arrays(network))
        plan = quantise(optimise(written, FUSING), ranges_of_noise(written))
        images = np.full((SEQUENCES, *plan.source.shape.sides), 0.5, np.float32)
        run(
            *(device, plan, lambda program, images=images: program.forward(images)),
            precision="int8",
        )
        yield name


def parts_of(device: CudaDevice, precision: str, **options: Any) -> tuple[Iterator[str], ...]:
    if precision == "int8":
        return (integers(device, **options),)
    return (
        op_cases(device, precision, **options),
        products(device, precision),
        chains(device, precision),
        heads(device, precision),
        pictures(device, precision),
    )


def faulty_kernel(name: str) -> str:
    """Return the source of a kernel with this fault."""
    return f'extern "C" __global__ void fault(float* values) {{ {FAULTS[name]} }}'


def run_faulty_kernel(device: CudaDevice, name: str) -> None:
    source = faulty_kernel(name)
    contents = compiler.compile_image(source, (), device.card.capability, compiler.toolkit())
    pointer, free = device.allocate(64 * 4)
    stream = device._context.stream

    def launch() -> None:
        module = Module(contents)
        function = module.function("fault")
        function.launch((1, 1, 1), 64, [ctypes.c_void_p(pointer)], stream=stream.handle)
        stream.synchronize()
        module.close()

    device._context.run(launch)
    free()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--algorithms", action="store_true")
    parser.add_argument("--precisions", default="float32,float16,int8")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--fault", choices=FAULTS)
    arguments = parser.parse_args()
    start = time.perf_counter()
    device = CudaDevice(0)
    if arguments.fault:
        run_faulty_kernel(device, arguments.fault)
        device.close()
        return 0
    count = 0
    for precision in arguments.precisions.split(","):
        options = {"all_algorithms": arguments.algorithms, "every": arguments.every}
        for part in parts_of(device, precision, **options):
            count += sum(1 for _ in part)
    device.close()
    print(f"{count} cases in {time.perf_counter() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
