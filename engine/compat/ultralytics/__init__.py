"""ultralytics' YOLO class for darknet's networks: scripts only need to change one import.

    from engine.compat.ultralytics import YOLO  # instead of: from ultralytics import YOLO

    model = YOLO("yolov4-tiny.cfg")  # or .weights, or a name of the zoo
    for result in model("street.jpg", conf=0.4):
        for box in result.boxes:
            print(result.names[int(box.cls)], float(box.conf), box.xyxy[0].tolist())

As in ultralytics, arrays are in BGR order, a call always gives a list, plot() gives an array in BGR
order, and saved pictures land in runs/detect/predict, predict2, …, those of a classifier in
runs/classify/predict. Unlike there, nothing is printed, the overlap of NMS is darknet's 0.45 unless
`iou` is given, and there is no training.
"""

from engine.compat.ultralytics.boxes import Boxes
from engine.compat.ultralytics.metrics import Metrics
from engine.compat.ultralytics.model import YOLO
from engine.compat.ultralytics.probs import Probs
from engine.compat.ultralytics.results import Results

__all__ = ["YOLO", "Boxes", "Metrics", "Probs", "Results"]
