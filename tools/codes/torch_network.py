"""A .cfg as a PyTorch module, for the sections in codes.cfg, which reads and writes .weights."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from engine.darknet import cfg, graph, weights

_MOMENTUM = 0.03
_EPSILON = 1e-5  # darknet's, added to the variance


class Network(nn.Module):
    """A network that returns the raw input of every [yolo].

    Its shape is (batch, anchors, rows, columns, entries).
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.graph = graph.build(cfg.read(path))
        self.side = self.graph.net.width
        self.heads = [node.layer for node in self.graph.nodes if node.kind == "yolo"]
        self.layers = nn.ModuleList(_module(node) for node in self.graph.nodes)
        readers = {source for node in self.graph.nodes for source in node.sources}
        self._kept = {n.index for n in self.graph.nodes if n.index in readers}

    def forward(self, pictures: Tensor) -> list[Tensor]:
        kept: dict[int, Tensor] = {-1: pictures}
        heads = []
        for node, layer in zip(self.graph.nodes, self.layers, strict=True):
            sources = [kept[index] for index in node.sources]
            if node.kind == "yolo":
                batch, channels, rows, columns = sources[0].shape
                anchors = len(node.layer.selected_anchors())
                shape = (batch, anchors, channels // anchors, rows, columns)
                heads.append(sources[0].view(shape).permute(0, 1, 3, 4, 2).float())
            else:
                result = torch.cat(sources, 1) if node.kind == "route" else layer(sources[0])
                if node.index in self._kept:
                    kept[node.index] = result
        return heads

    def grids(self, side: int) -> list[int]:
        """Return the rows of every head's output for pictures of `side` pixels."""
        grids = []
        for node in self.graph.nodes:
            if node.kind == "yolo":
                stride = 2 ** round(math.log2(self.side / node.shape.height))
                grids.append(-(-side // stride))
        return grids

    def save(self, path: Path, seen: int) -> None:
        arrays = [_arrays(layer) for layer in self.layers]
        weights.save(path, self.graph, arrays, seen=seen, overwrite=True)

    def load(self, path: Path, layers: int | None = None) -> None:
        """Load weights; with `layers` only those layers, which the file may end after."""
        stored = weights.load(path, self.graph, least=layers)
        for layer, arrays in zip(self.layers[:layers], stored[:layers], strict=True):
            for name, tensor in _tensors(layer).items():
                values = torch.from_numpy(np.array(arrays[name]))
                tensor.data.copy_(values.reshape(tensor.shape))


def _module(node: graph.Node) -> nn.Module:
    layer = node.layer
    if node.kind == "convolutional":
        convolution = nn.Conv2d(
            node.shapes[0].channels,
            layer.filters,
            layer.size,
            layer.stride,
            layer.size // 2 if layer.pad else layer.padding,
            bias=not layer.batch_normalize,
        )
        parts: list[nn.Module] = [convolution]
        if layer.batch_normalize:
            parts.append(nn.BatchNorm2d(layer.filters, eps=_EPSILON, momentum=_MOMENTUM))
        if layer.activation == "leaky":
            parts.append(nn.LeakyReLU(0.1, inplace=True))
        elif layer.activation != "linear":
            raise ValueError(f"activation {layer.activation} is not supported in training")
        return nn.Sequential(*parts)
    if node.kind == "upsample":
        return nn.Upsample(scale_factor=layer.stride, mode="nearest")
    if node.kind in ("route", "yolo"):
        return nn.Identity()
    raise ValueError(f"[{node.kind}] is not supported in training")


def _tensors(layer: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of a layer by the engine's names."""
    if not isinstance(layer, nn.Sequential):
        return {}
    convolution = layer[0]
    if convolution.bias is not None:
        return {"bias": convolution.bias, "weight": convolution.weight}
    norm = layer[1]
    return {
        "bias": norm.bias,
        "scale": norm.weight,
        "mean": norm.running_mean,
        "variance": norm.running_var,
        "weight": convolution.weight,
    }


def _arrays(layer: nn.Module) -> dict[str, np.ndarray]:
    return {
        name: tensor.detach().float().cpu().contiguous().numpy()
        for name, tensor in _tensors(layer).items()
    }
