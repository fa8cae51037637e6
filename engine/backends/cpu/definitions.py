"""The table of definitions: which function prepares which op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.backends.cpu import channels, moving, outputs, products, values, windows
from engine.backends.cpu.storage import Buffers, Step
from engine.plan import ops

# Conv2d is not here: program.py prepares it once for all numbers of rows, with cpu/conv.
DEFINITIONS: Mapping[type[ops.Op], Callable[[Any, Buffers], Step]] = {
    ops.Deconv2d: products.deconv2d,
    ops.LocalConv2d: products.local_conv2d,
    ops.MatMul: products.matmul,
    ops.Gate: products.gate,
    ops.Normalise: values.normalise,
    ops.Activate: values.activate,
    ops.Add: values.add,
    ops.Multiply: values.multiply,
    ops.Mix: values.mix,
    ops.Clip: values.clip,
    ops.Repair: values.repair,
    ops.Load: moving.load,
    ops.NormaliseChannels: channels.normalise_channels,
    ops.L2Norm: channels.l2_norm,
    ops.LocalNorm: channels.local_norm,
    ops.Softmax: channels.softmax,
    ops.MaxPool: windows.max_pool,
    ops.MaxPoolDepth: windows.max_pool_depth,
    ops.AveragePool: windows.average_pool,
    ops.Concat: moving.concat,
    ops.Reshape: moving.reshape,
    ops.Upsample: moving.upsample,
    ops.BlockSum: moving.block_sum,
    ops.Reorg: moving.reorg,
    ops.Crop: moving.crop,
    ops.TakeStep: moving.take_step,
    ops.JoinSteps: moving.join_steps,
    ops.Store: moving.store,
    ops.YoloOutput: outputs.yolo_output,
    ops.RegionOutput: outputs.region_output,
}
