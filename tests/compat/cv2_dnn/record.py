"""Write figures.json: what OpenCV 4 gives. Run it with a Python that has OpenCV 4 and Pillow:

    PYTHONPATH=. ENGINE_YOLOV3_TINY=DIR python tests/compat/cv2_dnn/record.py

The small networks need weights, which tests/compat/cv2_dnn/test_net.py makes from a fixed seed.
"""

import json
import tempfile
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np

from tests.compat.cv2_dnn import networks
from tests.compat.cv2_dnn.cases import BLOBS, NMS, blob_of, nms_of, small_model
from tests.compat.cv2_dnn.programs import BEFORE_4_5_4, PROGRAMS


class OldNet:
    """A Net whose numbers of outputs are a column, as before OpenCV 4.5.4."""

    def __init__(self, net):
        self._net = net

    def __getattr__(self, name):
        return getattr(self._net, name)

    def getUnconnectedOutLayers(self):  # noqa: N802
        return self._net.getUnconnectedOutLayers()[:, None]


def old_cv2():
    dnn = SimpleNamespace(**{name: getattr(cv2.dnn, name) for name in dir(cv2.dnn)})
    dnn.readNetFromDarknet = lambda *files: OldNet(cv2.dnn.readNetFromDarknet(*files))
    dnn.NMSBoxes = lambda *args: np.reshape(cv2.dnn.NMSBoxes(*args), (-1, 1)).astype(int)
    return SimpleNamespace(dnn=dnn)


def programs():
    found = {}
    for name, run in PROGRAMS.items():
        module = old_cv2() if name in BEFORE_4_5_4 else cv2
        for network, files in networks.NETWORKS.items():
            for picture in networks.pictures():
                image = networks.read(picture)
                rows = run(module, *map(str, files), image)
                found.setdefault(name, {}).setdefault(network, {})[picture.name] = [
                    [number, round(score, 4), [round(float(each), 2) for each in box]]
                    for number, score, box in rows
                ]
    return found


def small():
    found = {}
    for name in networks.SMALL:
        with tempfile.TemporaryDirectory() as folder:
            cfg, weights = map(str, small_model(Path(folder), name))
            net = cv2.dnn.readNetFromDarknet(cfg, weights)
            layers = {}
            for layer in net.getLayerNames():
                net = cv2.dnn.readNetFromDarknet(cfg, weights)
                net.enableFusion(False)  # otherwise OpenCV returns the memory of another layer
                net.setInput(networks.small_blob(name))
                out = net.forward(layer)
                picked = out.ravel()[:: max(1, out.size // 40)]
                layers[layer] = {
                    "type": net.getLayer(net.getLayerId(layer)).type,
                    "shape": out.shape,
                    "values": [float(f"{each:.6g}") for each in picked],
                }
            found[name] = {
                "layers": layers,
                "outputs": net.getUnconnectedOutLayersNames(),
                "numbers": net.getUnconnectedOutLayers().tolist(),
                **shapes(net, networks.small_blob(name).shape),
            }
    return found


def shapes(net, of_blob):
    one, three = list(of_blob), [3, *of_blob[1:]]
    return {
        "shapes": {
            count: [
                [[each.tolist() for each in layer] for layer in kind]
                for kind in net.getLayersShapes(shape)[1:]
            ]
            for count, shape in (("1", one), ("3", three))
        },
        "flops": [net.getFLOPS(number, one) for number in range(len(net.getLayerNames()) + 1)],
    }


def main():
    path = Path(__file__).with_name("figures.json")
    figures = {
        "opencv": cv2.__version__,
        "programs": programs(),
        "small": small(),
        "blobs": {
            name: sha256(np.ascontiguousarray(blob_of(cv2.dnn, name))).hexdigest()[:16]
            for name in BLOBS
        },
        "nms": {name: np.array(nms_of(cv2.dnn, name), int).ravel().tolist() for name in NMS},
    }
    text = json.dumps(figures, separators=(",", ":")).replace("},", "},\n")
    path.write_text(text + "\n")


if __name__ == "__main__":
    main()
