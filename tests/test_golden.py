"""Darknet's small golden cases through the adapter; .ci/run checks the large ones."""

import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.backends import open_device
from engine.calibrate.collect import ranges_of_noise
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import EngineError
from engine.passes import FUSING, optimise
from engine.passes.quantise import quantise
from tests import needs
from tests.lanes import slow_except

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT.parent / "shared" / "golden"


@needs.shared("golden")
@pytest.mark.parametrize("passes", slow_except(["1"], ["1", "0"]))
def test_every_small_case_agrees_with_darknet(passes):
    command = [GOLDEN / "check.py", ROOT / "tests/golden_adapter.py"]
    options = ["--root", GOLDEN / "open", "--suite", "micro", "--optional"]
    done = subprocess.run(
        [sys.executable, *command, *options],
        env={**os.environ, "ENGINE_GOLDEN_PASSES": passes, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    failures = [line for line in done.stdout.splitlines() if not line.startswith("pass")]
    assert done.returncode == 0, "\n".join(failures) + done.stderr
    assert failures[-1].endswith(" 0 failed")
    assert int(failures[-1].split()[0]) > 100


@pytest.mark.slow
@needs.shared("golden")
def test_every_small_network_runs_in_int8():
    """With random weights, for which it has to run and to be near float32, but no more."""
    cpu = open_device("cpu")
    counts = Counter()
    for path in sorted((GOLDEN / "open/micro").rglob("*.cfg")):
        try:
            network = graph.build(cfg.read(path))
        except EngineError:  # cases of bad files
            continue
        plan = lower(network, random_weights.arrays(network))
        ranges = ranges_of_noise(plan)
        random = np.random.default_rng(1)
        x = random.random((plan.steps, *plan.source.shape.sides), np.float32)
        with closing(cpu.compile(optimise(plan, cpu.passes))) as program:
            expected = program.forward(x)
        for each in (plan, plan.keeping_layers()):
            ready = quantise(optimise(each, FUSING), ranges)
            with closing(cpu.compile(ready, precision="int8")) as program:
                found = program.forward(x)
        if not ready.scales:
            continue
        counts["int8"] += 1
        of_network = {tensor: found[n] for n, tensor in enumerate(ready.outputs)}
        for tensor, values in zip(plan.outputs, expected, strict=True):
            error = np.linalg.norm(of_network[tensor] - values)
            assert error < 0.1 * np.linalg.norm(values), path
    cpu.close()
    assert counts["int8"] > 20
