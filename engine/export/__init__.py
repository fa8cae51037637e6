"""Export of a plan to ONNX.

onnx.py           the model: opset, inputs and outputs
graph_builder.py  nodes and constants, with the registry of exporters
linear.py, elementwise.py, pooling.py, data_movement.py, heads.py, activations.py: the ops
"""
