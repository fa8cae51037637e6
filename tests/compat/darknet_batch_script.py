"""A typical script for darknet.py: several pictures of one size at once, and their labels."""

import sys
from pathlib import Path

import darknet
import numpy as np
from PIL import Image


def prepare_batch(images, network):
    size = darknet.network_width(network), darknet.network_height(network)
    planes = [np.asarray(Image.fromarray(each).resize(size)).transpose(2, 0, 1) for each in images]
    batch = np.ascontiguousarray(np.concatenate(planes, axis=0).flat, dtype=np.float32) / 255.0
    return batch.ctypes.data_as(darknet.POINTER(darknet.c_float))


def batch_detection(network, images, class_names, class_colors, thresh, nms=0.45):
    height, width, _ = images[0].shape
    darknet_images = darknet.IMAGE(width, height, 3, prepare_batch(images, network))
    batch = darknet.network_predict_batch(
        network, darknet_images, len(images), width, height, thresh, 0.5, None, 0, 0
    )
    predictions = []
    for index, image in enumerate(images):
        num = batch[index].num
        detections = batch[index].dets
        darknet.do_nms_obj(detections, num, len(class_names), nms)
        predictions.append(darknet.remove_negatives(detections, class_names, num))
        darknet.draw_boxes(predictions[-1], image, class_colors)
    darknet.free_batch_detections(batch, len(images))
    return predictions


def save_annotations(name, image, detections, class_names):
    height, width, _ = image.shape
    with Path(name).with_suffix(".txt").open("w") as file:
        for label, confidence, (x, y, w, h) in detections:
            place = f"{x / width:.4f} {y / height:.4f} {w / width:.4f} {h / height:.4f}"
            file.write(f"{class_names.index(label)} {place} {float(confidence):.4f}\n")


def main(config_file, data_file, weights, names):
    network, class_names, class_colors = darknet.load_network(
        config_file, data_file, weights, batch_size=len(names)
    )
    images = [np.array(Image.open(name).convert("RGB")) for name in names]
    found = batch_detection(network, images, class_names, class_colors, thresh=0.5)
    for name, image, detections in zip(names, images, found, strict=True):
        save_annotations(name, image, detections, class_names)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
