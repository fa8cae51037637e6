"""Small networks with weights from a fixed seed, which darknet itself has run for recorded/."""

import numpy as np

from engine.darknet import cfg, graph, weights

_BODY = """
[net]
width=48
height=48
channels=3
batch=4
subdivisions=2

[convolutional]
batch_normalize=1
filters=8
size=3
pad=1
stride=4
activation=leaky

[maxpool]
size=2
stride=2
"""

CLASSIFIER = f"""{_BODY}
[convolutional]
filters=6
size=1
activation=linear

[avgpool]

[softmax]
"""

YOLO_V1 = f"""{_BODY}
[connected]
output=270
activation=linear

[detection]
classes=20
coords=4
rescore=1
side=3
num=2
softmax=0
sqrt=1
"""


def write(folder, name, text):
    """Write name.cfg and name.weights; return their names."""
    path = folder / f"{name}.cfg"
    path.write_text(text)
    network = graph.build(cfg.read(path))
    random = np.random.default_rng(7)
    arrays = []
    for layer in weights.initial(network):
        arrays.append({})
        for key, each in layer.items():
            low, high = (-0.5, 0.5) if key == "weight" else (0.1, 0.9)
            arrays[-1][key] = random.uniform(low, high, each.shape).astype(np.float32)
    weights.save(folder / f"{name}.weights", network, arrays, seen=6_400_000)
    return f"{name}.cfg", f"{name}.weights"
