"""The function that binds each op to its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.backends.cpu import (
    channelwise,
    conversion,
    data_movement,
    detection_outputs,
    elementwise,
    linear,
    pooling,
)
from engine.backends.cpu.storage import Buffers, Kernel
from engine.plan import ops

# Conv2d and Chain are missing: program.py prepares them once for all numbers of rows, with conv/.
DEFINITIONS: Mapping[type[ops.Op], Callable[[Any, Buffers], Kernel]] = {
    ops.Deconv2d: linear.deconv2d,
    ops.LocalConv2d: linear.local_conv2d,
    ops.MatMul: linear.matmul,
    ops.Gate: linear.gate,
    ops.Normalise: elementwise.normalise,
    ops.Activate: elementwise.activate,
    ops.Add: elementwise.add,
    ops.Multiply: elementwise.multiply,
    ops.Mix: elementwise.mix,
    ops.Clip: elementwise.clip,
    ops.Repair: elementwise.repair,
    ops.Load: data_movement.load,
    ops.NormaliseChannels: channelwise.normalise_channels,
    ops.L2Norm: channelwise.l2_norm,
    ops.LocalNorm: channelwise.local_norm,
    ops.Softmax: channelwise.softmax,
    ops.Convert: conversion.convert,
    ops.MaxPool: pooling.max_pool,
    ops.MaxPoolDepth: pooling.max_pool_depth,
    ops.AveragePool: pooling.average_pool,
    ops.Concat: data_movement.concat,
    ops.Reshape: data_movement.reshape,
    ops.Upsample: data_movement.upsample,
    ops.BlockSum: data_movement.block_sum,
    ops.Reorg: data_movement.reorg,
    ops.Crop: data_movement.crop,
    ops.TakeStep: data_movement.take_step,
    ops.JoinSteps: data_movement.join_steps,
    ops.Store: data_movement.store,
    ops.YoloOutput: detection_outputs.yolo_output,
    ops.RegionOutput: detection_outputs.region_output,
}
