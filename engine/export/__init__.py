"""Export of a plan to ONNX.

onnx.py           the model: opset, inputs and outputs
graph_builder.py  nodes and constants, with the registry of exporters
layouts.py        the outputs: raw, or boxes as darknet, YOLOv5 and YOLOv8 have them
suppression.py    non-maximum suppression in the graph
metadata.py    class names, anchors, description of the input
linear.py, elementwise.py, pooling.py, data_movement.py, heads.py, activations.py: the ops
"""
