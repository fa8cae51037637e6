"""Use cv2.dnn's functions on a darknet network without OpenCV."""

from pathlib import Path

import numpy as np
from PIL import Image

from engine.compat import cv2_dnn as dnn

frame = np.asarray(Image.open("docs/parcel.jpg").convert("RGB"))[:, :, ::-1]
model = dnn.DetectionModel("weights/codes.weights", "cfg/codes.cfg")
model.setInputParams(size=(416, 416), scale=1 / 255, swapRB=True)
names = Path("cfg/codes.names").read_text().splitlines()
classes, scores, boxes = model.detect(frame, 0.5, 0.4)
for number, score, box in zip(classes, scores, boxes, strict=True):
    print(names[int(number)], f"{score:.3f}", box.tolist())
