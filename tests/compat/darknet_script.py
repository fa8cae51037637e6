"""A typical script written for darknet.py: it prints and draws the boxes of one picture."""

import sys

import darknet
import numpy as np
from PIL import Image


def detection(path, network, class_names, class_colors, threshold):
    width, height = darknet.network_width(network), darknet.network_height(network)
    darknet_image = darknet.make_image(width, height, 3)
    resized = np.array(Image.open(path).convert("RGB").resize((width, height)))
    darknet.copy_image_from_bytes(darknet_image, resized.tobytes())
    detections = darknet.detect_image(network, class_names, darknet_image, thresh=threshold)
    darknet.free_image(darknet_image)
    return darknet.draw_boxes(detections, resized, class_colors), detections


def main():
    config_file, data_file, weights, picture, out = sys.argv[1:]
    network, class_names, class_colors = darknet.load_network(
        config_file, data_file, weights, batch_size=1
    )
    image, detections = detection(picture, network, class_names, class_colors, 0.25)
    darknet.print_detections(detections, True)
    for label, confidence, bbox in detections:
        left, top, right, bottom = darknet.bbox2points(bbox)
        print(label, float(confidence) / 100, left, top, right, bottom)
    Image.fromarray(image).save(out)


if __name__ == "__main__":
    main()
