"""The bundled model in Debian's darknet gives the same values at every head.

That darknet (2018) does not know `scale_x_y`, so the test applies it to darknet's outputs. It adds
1e-6 to the root of the variance instead of 1e-5 to the variance, so it gets other variances.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import bundled
from engine.darknet import cfg, graph, weights
from engine.vision import image, resize
from tests.property import darknet_runner
from tests.property.darknet import find_darknet

PICTURE = Path(__file__).parents[1] / "docs/parcel.jpg"


def test_darknet_computes_the_same_at_every_head(tmp_path):
    library = find_darknet()
    if library is None:
        pytest.skip("darknet is not installed. On Debian: apt install darknet")
    model = bundled.default_model()
    with engine.load(model.cfg, model.weights, names=model.names, device="cpu") as detector:
        scaled, _ = resize.stretch(image.read(PICTURE), detector.size)
        last, *others = detector.forward(scaled[None])
    ours = [*others, last]
    text = model.cfg.read_text(encoding="utf-8")
    ends = [found.end() for found in re.finditer(r"^\[yolo\]\n(\S.*\n)*", text, re.M)]
    assert len(ends) == len(ours) == 4
    for_it = write_for_first_darknet(model, tmp_path / "for_it.weights")
    for number, (end, output) in enumerate(zip(ends, ours, strict=True)):
        path = tmp_path / f"{number}.cfg"
        path.write_text(text[:end], encoding="utf-8")
        shutil.copy(for_it, path.with_suffix(".first.weights"))
        np.save(path.with_suffix(".inputs.npy"), scaled[None])
        path.with_suffix(".size").write_text(str(output.size))
    runner = [sys.executable, darknet_runner.__file__, library, str(tmp_path)]
    subprocess.run(runner, check=True, capture_output=True)
    for number, output in enumerate(ours):
        theirs = np.load(tmp_path / f"{number}.outputs.npy")
        theirs = theirs.reshape(3, 10, *output.shape[-2:])
        theirs[:, :2] = theirs[:, :2] * 2 - 0.5
        np.testing.assert_allclose(output.reshape(theirs.shape), theirs, atol=1e-4)


def write_for_first_darknet(model, path):
    network = graph.build(cfg.read(model.cfg))
    arrays = weights.load(model.weights, network)
    for each in arrays:
        if "variance" in each:
            root = np.sqrt(each["variance"].astype(np.float64) + 1e-5) - 1e-6
            each["variance"] = (root**2).astype(np.float32)
    weights.save(path, network, arrays)
    return path
