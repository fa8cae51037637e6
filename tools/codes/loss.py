"""The training loss: CIoU of boxes, cross-entropy of objectness and classes.

A code is assigned to each anchor whose width and height are within a factor of four, or else
to the nearest anchor, in the cell of its centre and in the two nearest neighbours, which
can reach it because scale_x_y is 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.darknet.layers.yolo import Yolo

_MAX_RATIO = 4.0
_BOX_WEIGHT, _OBJECTNESS_WEIGHT, _CLASS_WEIGHT = 0.12, 0.7, 0.25
# Weights of objectness at strides 64, 32, 16 and 8: fine maps have more empty cells.
_BALANCE = (0.12, 0.4, 1.0, 4.0)
_MAX_EXPONENT = 4.0


def decode_sizes(raw: Tensor, anchors: Tensor) -> Tensor:
    return raw.clamp(-_MAX_EXPONENT, _MAX_EXPONENT).exp() * anchors


def decode_offsets(raw: Tensor, scale: float) -> Tensor:
    return raw.sigmoid() * scale - (scale - 1) / 2


@dataclass(frozen=True)
class Targets:
    """The predictors of one head that shall find codes, and the boxes relative to their cells."""

    picture: Tensor
    kind: Tensor
    anchor: Tensor
    row: Tensor
    column: Tensor
    box: Tensor
    anchors: Tensor  # of the head, in cells


def assign(truth: Tensor, layers: list[Yolo], side: int, grids: list[int]) -> list[Targets]:
    """Return the targets of each head; rows of `truth` are picture, class, x, y, width, height.

    `layers` are those of the heads, for the largest codes first; `side` is that of the pictures in
    pixels, `grids` are the numbers of cells.
    """
    every = [truth.new_tensor(layer.selected_anchors()) for layer in layers]
    fitting = _fits(truth, torch.cat(every)).split([len(each) for each in every], 1)
    return [
        _assign(truth, fits, anchors, side / grid, grid)
        for fits, anchors, grid in zip(fitting, every, grids, strict=True)
    ]


def loss(heads: list[Tensor], layers: list[Yolo], targets: list[Targets]) -> Tensor:
    total = heads[0].new_zeros(())
    for raw, layer, wanted, balance in zip(heads, layers, targets, _BALANCE, strict=True):
        objectness = torch.zeros_like(raw[..., 4])
        if len(wanted.picture):
            places = wanted.picture, wanted.anchor, wanted.row, wanted.column
            own = raw[places]
            offsets = decode_offsets(own[:, :2], layer.scale_x_y)
            sizes = decode_sizes(own[:, 2:4], wanted.anchors[wanted.anchor])
            overlap = ciou(torch.cat([offsets, sizes], 1), wanted.box)
            total = total + _BOX_WEIGHT * (1 - overlap).mean()
            kinds = F.one_hot(wanted.kind, own.shape[1] - 5).to(own)
            total = total + _CLASS_WEIGHT * F.binary_cross_entropy_with_logits(own[:, 5:], kinds)
            objectness[places] = overlap.detach().clamp(0, 1)
        objectness_loss = F.binary_cross_entropy_with_logits(raw[..., 4], objectness)
        total = total + _OBJECTNESS_WEIGHT * balance * objectness_loss
    return total


def _fits(truth: Tensor, anchors: Tensor) -> Tensor:
    """Return for each code and each anchor of all heads whether they belong together."""
    ratio = truth[:, None, 4:] / anchors
    worst = torch.maximum(ratio, 1 / ratio).amax(2)
    return (worst < _MAX_RATIO) | (worst == worst.amin(1, keepdim=True))


def _assign(truth: Tensor, fits: Tensor, anchors: Tensor, size: float, grid: int) -> Targets:
    code, anchor = fits.nonzero(as_tuple=True)
    rows = truth[code]
    boxes = rows[:, 2:] / size
    centre = boxes[:, :2]
    inside = centre % 1
    shift = torch.where(inside < 0.5, -1.0, 1.0)
    cell = centre.floor()
    cells = torch.cat(
        [cell, cell + shift * shift.new_tensor([1, 0]), cell + shift * shift.new_tensor([0, 1])]
    )
    rows, anchor, boxes = rows.repeat(3, 1), anchor.repeat(3), boxes.repeat(3, 1)
    good = ((cells >= 0) & (cells < grid)).all(1).nonzero()[:, 0]
    rows, anchor, boxes, cells = rows[good], anchor[good], boxes[good], cells[good]
    box = torch.cat([boxes[:, :2] - cells, boxes[:, 2:]], 1)
    column, row = cells.long().unbind(1)
    picture, kind = rows[:, :2].long().unbind(1)
    return Targets(picture, kind, anchor, row, column, box, anchors / size)


def ciou(first: Tensor, second: Tensor) -> Tensor:
    """Return the complete IoU of pairs of boxes x, y, w, h."""
    low_1, high_1 = first[:, :2] - first[:, 2:] / 2, first[:, :2] + first[:, 2:] / 2
    low_2, high_2 = second[:, :2] - second[:, 2:] / 2, second[:, :2] + second[:, 2:] / 2
    common = (torch.minimum(high_1, high_2) - torch.maximum(low_1, low_2)).clamp(min=0).prod(1)
    union = first[:, 2:].prod(1) + second[:, 2:].prod(1) - common + 1e-7
    overlap = common / union
    hull = torch.maximum(high_1, high_2) - torch.minimum(low_1, low_2)
    distance = (first[:, :2] - second[:, :2]).square().sum(1) / (hull.square().sum(1) + 1e-7)
    angle_1 = torch.atan(first[:, 2] / (first[:, 3] + 1e-7))
    angle_2 = torch.atan(second[:, 2] / (second[:, 3] + 1e-7))
    shape = 4 / math.pi**2 * (angle_2 - angle_1).square()
    with torch.no_grad():
        weight = shape / (shape - overlap + 1 + 1e-7)
    return overlap - distance - weight * shape
