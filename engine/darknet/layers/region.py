"""[region]: YOLOv2's boxes relative to anchors, with flat classes or a class tree."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.anchors import check_filters, select_anchors
from engine.darknet.layers.base import DetectionLayer, Weights, layer
from engine.darknet.options import option
from engine.darknet.tree import Tree, read_tree
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape

# `map` translates the classes of the training set to classes of the tree
_TRAINING = """
    log sqrt thresh jitter resize rescore absolute random max focal_loss map bias_match
    coord_scale object_scale noobject_scale mask_scale class_scale
"""


@layer("region", training=_TRAINING)
@dataclass(frozen=True)
class Region(DetectionLayer):
    classes: int = option(20, at_least=1)
    num: int = option(1, at_least=1)
    coords: int = option(4, at_least=4)
    anchors: tuple[float, ...] = option(())  # in cells
    softmax: bool = False
    background: bool = False  # use the objectness without the logistic function
    classfix: int = option(0)  # -1: set objectness below 0.5 to zero
    tree: str | None = None

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        check_filters(self, shape, anchors=self.num, box_values=self.coords + 1)
        select_anchors(self, self.anchors, self.num)
        self._read_tree()
        return shape

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        tree = self._read_tree()
        out = plan.emit(
            ops.RegionOutput(
                plan.tensor(src.shape),
                src,
                anchors=self.num,
                classes=self.classes,
                coords=self.coords,
                background=self.background,
                runs=tree.group_sizes if tree else (self.classes,) if self.softmax else (),
            )
        )
        plan.head(
            ops.RegionHead(
                out,
                self.classes,
                anchors=select_anchors(self, self.anchors, self.num),
                grid=(src.shape.width, src.shape.height),
                coords=self.coords,
                classfix=self.classfix,
                tree_parents=tree.parents if tree else (),
            )
        )
        return out

    def _read_tree(self) -> Tree | None:
        if self.tree is None:
            return None
        where = self.at("tree")
        tree = read_tree(self.context.find_tree(self.tree, where), where)
        if len(tree) != self.classes:
            raise self.error(
                "tree", f"expected {self.classes} entries, one for each class, got {len(tree)}"
            )
        return tree
