"""Networks for tests of exported models, and the boxes that the engine finds with them."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from engine.backends import open_device
from engine.backends.host_processing import scaled
from engine.darknet import cfg, graph, random_weights, weights
from engine.darknet.lower import lower
from engine.errors import ConfigError
from engine.export import onnx
from engine.inputs import Intake
from engine.passes import optimise
from engine.vision.postprocess import postprocess
from engine.vision.resize import Placement

HEAD = """
[convolutional]
filters={filters}
activation=linear

[yolo]
mask=0,1
anchors=6,9, 12,7
classes={classes}
num=2
"""
# Two heads with different numbers of classes, at two resolutions.
TWO_HEADS = (
    "[net]\nwidth=64\nheight=32\nchannels=3\n"
    "[convolutional]\nbatch_normalize=1\nfilters=8\nsize=3\npad=1\nstride=2\nactivation=leaky\n"
    "[maxpool]\nsize=2\nstride=2\n"
    + HEAD.format(filters=16, classes=3)
    + "[route]\nlayers=-3\n[upsample]\nstride=2\n"
    + HEAD.format(filters=14, classes=2)
)
REGION = """
[net]
width=64
height=32
channels=3
[convolutional]
batch_normalize=1
filters=8
size=3
pad=1
stride=2
activation=leaky
[reorg]
stride=2
[convolutional]
filters=16
activation=linear
[region]
anchors=1,2, 3,1
classes=3
num=2
softmax=1
"""
GRID = """
[net]
width=32
height=32
channels=3
[convolutional]
filters=4
size=3
stride=8
pad=1
activation=leaky
[connected]
output=208
activation=linear
[detection]
coords=4
classes=3
num=2
side=4
"""
WHOLE = Placement((1, 1), (1, 1), "stretch")  # boxes relative to the network's input


class Network:
    """A network with random or trained weights, its plan, and its definition on the CPU."""

    def __init__(self, cfg_text=None, *, files=None, size=None, arrays=None):
        sections = cfg.read(files[0]) if files else cfg.parse(cfg_text, name="net.cfg")
        self.graph = graph.build(sections, size=size)
        if arrays is None:
            trained = weights.load(files[1], self.graph) if files else None
            arrays = trained or random_weights.arrays(self.graph)
        self.arrays = arrays
        self.plan = lower(self.graph, arrays)
        self.titles = self.graph.titles

    def images(self, rows=1):
        return np.random.default_rng(0).random((rows, *self.plan.source.shape.sides), np.float32)

    def input_of(self, picture):
        return scaled(Intake.of(self.graph).prepare([picture]).placed)

    def build(self, **options):
        return onnx.build(optimise(self.plan, onnx.PASSES), self.titles, **options)

    def built_or_refused(self, **options):
        """Return the model, or None if a layer is refused by its name."""
        try:
            return self.build(**options)
        except ConfigError as refusal:
            if "net.cfg: layer " not in str(refusal):
                raise
            return None

    def outputs(self, images):
        with _program(self.plan, images) as program:
            return program.forward(images)

    def boxes(self, images, threshold, suppression, *, max_detections=None):
        """Return the engine's Boxes of each picture, relative to the input."""
        with _program(self.plan, images) as program:
            found = program.detect(images, threshold=threshold)
        return [
            postprocess(rows, WHOLE, suppression, max_detections=max_detections) for rows in found
        ]


def _program(plan, images):
    device = open_device("cpu:1")
    return closing(device.compile(optimise(plan, device.passes), batch=len(images)))


def corners(boxes, sides):
    """Return left, top, right, bottom in pixels of an input with (width, height)."""
    pixels = boxes.xywh * np.tile(np.array(sides, np.float32), 2)
    half = pixels[:, 2:] / 2
    return np.concatenate([pixels[:, :2] - half, pixels[:, :2] + half], axis=1)
