"""The training loss: CIoU of boxes, cross-entropy of objectness and classes.

A code is assigned to each anchor whose width and height are within a factor of four, in the cell of
its centre and in the two nearest neighbours, which can reach it because scale_x_y is 2.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.darknet.layers.yolo import Yolo

_MAX_RATIO = 4.0
_BOX_WEIGHT, _OBJECTNESS_WEIGHT, _CLASS_WEIGHT = 0.08, 0.7, 0.25
_BALANCE = {8: 4.0, 16: 1.0, 32: 0.4}  # of objectness by stride; fine maps have more empty cells
_MAX_EXPONENT = 4.0


def decode_sizes(raw: Tensor, anchors: Tensor) -> Tensor:
    return raw.clamp(-_MAX_EXPONENT, _MAX_EXPONENT).exp() * anchors


def decode_offsets(raw: Tensor, scale: float) -> Tensor:
    return raw.sigmoid() * scale - (scale - 1) / 2


def loss(heads: list[Tensor], layers: list[Yolo], strides: list[int], truth: Tensor) -> Tensor:
    """Return the loss; rows of `truth` are picture, class, centre x, y, width, height in pixels."""
    total = truth.new_zeros(())
    for raw, layer, stride in zip(heads, layers, strides, strict=True):
        anchors = truth.new_tensor(layer.selected_anchors()) / stride
        picture, kind, anchor, row, column, box = _assign(truth, anchors, stride, raw.shape[2:4])
        objectness = torch.zeros_like(raw[..., 4])
        if len(picture):
            own = raw[picture, anchor, row, column]
            offsets = decode_offsets(own[:, :2], layer.scale_x_y)
            sizes = decode_sizes(own[:, 2:4], anchors[anchor])
            overlap = ciou(torch.cat([offsets, sizes], 1), box)
            total = total + _BOX_WEIGHT * (1 - overlap).mean()
            target = torch.full_like(own[:, 5:], 0.0)
            target[torch.arange(len(kind), device=kind.device), kind] = 1.0
            total = total + _CLASS_WEIGHT * F.binary_cross_entropy_with_logits(own[:, 5:], target)
            objectness[picture, anchor, row, column] = overlap.detach().clamp(0, 1)
        objectness_loss = F.binary_cross_entropy_with_logits(raw[..., 4], objectness)
        total = total + _OBJECTNESS_WEIGHT * _BALANCE[stride] * objectness_loss
    return total


def _assign(
    truth: Tensor, anchors: Tensor, stride: int, grid: torch.Size
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the indices of each pair of code and predictor, and the box relative to the cell."""
    count = len(anchors)
    rows = truth.repeat(count, 1)
    anchor = torch.arange(count, device=truth.device).repeat_interleave(len(truth))
    boxes = rows[:, 2:] / stride
    ratio = boxes[:, 2:] / anchors[anchor]
    fits = torch.maximum(ratio, 1 / ratio).amax(1) < _MAX_RATIO
    rows, anchor, boxes = rows[fits], anchor[fits], boxes[fits]
    centre = boxes[:, :2]
    inside = centre % 1
    shift = torch.where(inside < 0.5, -1.0, 1.0)
    cell = centre.floor()
    cells = torch.cat(
        [cell, cell + shift * shift.new_tensor([1, 0]), cell + shift * shift.new_tensor([0, 1])]
    )
    rows, anchor, boxes = rows.repeat(3, 1), anchor.repeat(3), boxes.repeat(3, 1)
    height, width = grid
    is_valid = (
        (cells[:, 0] >= 0) & (cells[:, 0] < width) & (cells[:, 1] >= 0) & (cells[:, 1] < height)
    )
    rows, anchor, boxes, cells = rows[is_valid], anchor[is_valid], boxes[is_valid], cells[is_valid]
    box = torch.cat([boxes[:, :2] - cells, boxes[:, 2:]], 1)
    column, row = cells.long().unbind(1)
    return rows[:, 0].long(), rows[:, 1].long(), anchor, row, column, box


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
