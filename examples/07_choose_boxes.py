"""Select detections by class, by score and by their place in the picture."""

import numpy as np

import engine

with engine.load() as detector:
    result = detector("docs/parcel.jpg")
codes = result.filter(classes=["barcode", "qr"], min_score=0.5)
width, height = result.size
upper = result[result.xywh[:, 1] < height / 2]
largest = result[np.argsort(-result.xywhn[:, 2:].prod(axis=1))[:1]]
print(codes, upper, largest, sep="\n")
for box in result.boxes:
    print(int(box.cls), float(box.conf), box.xyxy[0].tolist())
