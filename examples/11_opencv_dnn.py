"""Use cv2.dnn's functions on a darknet network without OpenCV."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from engine.compat import cv2_dnn as dnn

picture = ImageOps.exif_transpose(Image.open("docs/parcel.jpg"))  # upright, as imread() returns it
frame = np.asarray(picture.convert("RGB"))[:, :, ::-1]  # BGR
model = dnn.DetectionModel("weights/codes.weights", "cfg/codes.cfg")
model.setInputParams(size=(416, 416), scale=1 / 255, swapRB=True)
names = Path("cfg/codes.names").read_text().splitlines()
classes, scores, boxes = model.detect(frame, 0.5, 0.4)
for number, score, box in zip(classes, scores, boxes, strict=True):
    print(names[int(number)], f"{score:.3f}", box.tolist())
