"""What only a real GPU can show: capture, memory that stays flat, others in the same process."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from engine.backends.cuda import conv
from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver import compiler, cublas
from engine.backends.cuda.driver.compiler import Toolkit
from engine.backends.cuda.driver.cublas import Product
from engine.backends.cuda.driver.launch import Module
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import DeviceError
from engine.passes import optimise
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.shapes import Shape
from tests import needs
from tests.devices import open_or_skip

pytestmark = pytest.mark.cuda

TWO_HEADS = Path(__file__).parents[3] / "cfg" / "yolov3-tiny.cfg"


@pytest.fixture
def device():
    opened = open_or_skip(lambda: CudaDevice(0))
    yield opened
    opened.close()


def small_plan():
    rng = np.random.default_rng(0)
    builder = PlanBuilder(Shape(3, 16, 16))
    weight = builder.constant("weight", rng.standard_normal((8, 3, 3, 3)))
    made = builder.emit(
        ops.Conv2d(builder.tensor(Shape(8, 16, 16)), builder.source, weight, padding=(1, 1, 1, 1))
    )
    out = builder.emit(ops.Activate(builder.tensor(made.shape), made, "leaky"))
    return builder.build((out,), (out,))


def random_images(rows):
    return np.random.default_rng(1).random((rows, 3, 16, 16), dtype=np.float32)


def test_eager_recorded_and_replayed_runs_are_equal_to_the_bit(device):
    program = device.compile(optimise(small_plan(), device.passes), batch=4)
    for rows in (4, 1, 3):
        runs = [program.forward(random_images(rows))[0] for _ in range(4)]
        for run in runs[1:]:
            np.testing.assert_array_equal(run, runs[0])


@pytest.mark.parametrize("slow", ["im2col_gemm", "direct"])
def test_a_batch_has_what_was_made_of_it_whatever_makes_its_detection_layers(device, slow):
    """What a tuner may choose: scratch memory for a detection layer, and none on the way to it."""
    network = graph.build(cfg.read(TWO_HEADS), size=(256, 256))
    plan = optimise(lower(network, random_weights.arrays(network)), device.passes)
    batches = np.random.default_rng(2).random((4, 8, 3, 256, 256), np.float32)
    program = device.compile(plan, batch=8, tune=False, graph=False)
    expected = [program.forward(each) for each in batches]
    program.close()
    target = device._fused(plan, 8, "float32").target
    for op in plan.ops:
        if isinstance(op, ops.Conv2d) and op.yolo is not None:
            device.measured[conv.signature(target, op)] = conv.Choice(slow, unfused=True)
    program = device.compile(plan, batch=8, tune=False)
    for _ in range(2):
        for images, outputs in zip(batches, expected, strict=True):
            for got, wanted in zip(program.forward(images), outputs, strict=True):
                np.testing.assert_allclose(got, wanted, atol=2e-4)


@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="other tests share the card")
def test_opening_and_closing_leaves_no_memory_behind(device):
    readings = []
    for _ in range(6):
        second = CudaDevice(0)
        second.compile(small_plan(), batch=8).forward(random_images(8))
        second.close()
        readings.append(device.free_memory())
    assert len(set(readings[1:])) == 1


def test_sgemm_is_float32_and_tf32_is_not(device):
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((2, 256, 256)).astype(np.float32)
    exact = a.astype(np.float64) @ b.T
    context = device._context

    def error(is_allowed):
        driver = context.driver
        blocks = [driver.mem_alloc(a.nbytes) for _ in range(3)]
        for block, values in zip(blocks, (a, b), strict=False):
            driver.memcpy_htod(block, values)
        driver.Context.synchronize()
        context.blas.allow_tf32(is_allowed)
        context.blas.multiply(Product(256, 256, 256, 256, 256), *map(int, blocks))
        context.blas.allow_tf32(False)
        context.stream.synchronize()
        out = np.empty_like(a)
        driver.memcpy_dtoh(out, blocks[2])
        for block in blocks:
            block.free()
        return np.linalg.norm(out - exact) / np.linalg.norm(exact)

    assert context.run(lambda: error(False)) < 1e-6
    if device.card.capability >= (8, 0):
        assert context.run(lambda: error(True)) > 1e-6


def test_both_compilers_make_kernels_that_load(device):
    source = compiler.source(compiler.unit_of("enter"), device.card.capability, "float32")
    for tools in (compiler.toolkit(), Toolkit(None)):
        try:
            contents = compiler.compile_image(source.text, (), source.capability, tools)
        except DeviceError as error:
            pytest.skip(str(error))

        def load_and_unload(contents=contents):
            module = Module(contents)
            module.function("enter")
            module.close()

        device._context.run(load_and_unload)


def test_scikit_cuda_is_what_multiplies_where_it_is_installed(device):
    if importlib.util.find_spec("skcuda") is None:
        pytest.skip("scikit-cuda is not installed. Run: pip install '.[cuda13]'")
    assert cublas.skcuda_cublas() is not None


def test_other_libraries_keep_their_context(device):
    torch = needs.package("torch")
    program = device.compile(small_plan())
    before = torch.ones(1000, device="cuda")
    program.forward(random_images(1))
    assert float((before + 1).sum()) == 2000
    program.close()
    assert float((before + 1).sum()) == 2000
