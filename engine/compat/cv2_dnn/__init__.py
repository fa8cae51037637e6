"""cv2.dnn for darknet's files, with and without OpenCV.

OpenCV 5 no longer has readNetFromDarknet(). Scripts keep working with one more line:

    from engine.compat import cv2_dnn

    cv2_dnn.install()  # into the installed cv2, of any version

    net = cv2.dnn.readNetFromDarknet("yolov4.cfg", "yolov4.weights")

or, without OpenCV, through its names in this module:

    from engine.compat import cv2_dnn as dnn

    model = dnn.DetectionModel(dnn.readNet("yolov4.weights", "yolov4.cfg"))
    model.setInputParams(size=(416, 416), scale=1 / 255, swapRB=True)
    classes, scores, boxes = model.detect(frame, 0.5, 0.4)  # frame: (height, width, 3), BGR

Layer names, the rows of outputs, NMS and the scaling of pictures are as in OpenCV. Two things are
as in darknet: the epsilon of batch normalisation, unless `epsilon=1e-6` asks for OpenCV's, and what
OpenCV cannot read. New programs should use engine.load(), which gives the numbers of the darknet
command.
"""

from engine.compat.cv2_dnn.blob import blobFromImage, blobFromImages
from engine.compat.cv2_dnn.constants import (
    CV_8U,
    CV_32F,
    DNN_BACKEND_CUDA,
    DNN_BACKEND_DEFAULT,
    DNN_BACKEND_HALIDE,
    DNN_BACKEND_INFERENCE_ENGINE,
    DNN_BACKEND_OPENCV,
    DNN_BACKEND_VKCOM,
    DNN_TARGET_CPU,
    DNN_TARGET_CPU_FP16,
    DNN_TARGET_CUDA,
    DNN_TARGET_CUDA_FP16,
    DNN_TARGET_FPGA,
    DNN_TARGET_MYRIAD,
    DNN_TARGET_OPENCL,
    DNN_TARGET_OPENCL_FP16,
    DNN_TARGET_VULKAN,
)
from engine.compat.cv2_dnn.installation import install
from engine.compat.cv2_dnn.models import ClassificationModel, DetectionModel
from engine.compat.cv2_dnn.net import Layer, Net, readNet, readNetFromDarknet
from engine.compat.cv2_dnn.suppression import NMSBoxes, NMSBoxesBatched

__all__ = [
    "CV_8U",
    "CV_32F",
    "DNN_BACKEND_CUDA",
    "DNN_BACKEND_DEFAULT",
    "DNN_BACKEND_HALIDE",
    "DNN_BACKEND_INFERENCE_ENGINE",
    "DNN_BACKEND_OPENCV",
    "DNN_BACKEND_VKCOM",
    "DNN_TARGET_CPU",
    "DNN_TARGET_CPU_FP16",
    "DNN_TARGET_CUDA",
    "DNN_TARGET_CUDA_FP16",
    "DNN_TARGET_FPGA",
    "DNN_TARGET_MYRIAD",
    "DNN_TARGET_OPENCL",
    "DNN_TARGET_OPENCL_FP16",
    "DNN_TARGET_VULKAN",
    "ClassificationModel",
    "DetectionModel",
    "Layer",
    "NMSBoxes",
    "NMSBoxesBatched",
    "Net",
    "blobFromImage",
    "blobFromImages",
    "install",
    "readNet",
    "readNetFromDarknet",
]
