"""A typical video script for darknet.py: threads that read, detect and draw, joined by queues."""

import argparse
import queue
import threading

import darknet
import numpy as np
from PIL import Image


def read(paths, size, frames, images):
    for path in paths:
        frame = np.asarray(Image.open(path).convert("RGB"))
        frames.put(frame)
        image = darknet.make_image(*size, 3)
        darknet.copy_image_from_bytes(image, Image.fromarray(frame).resize(size).tobytes())
        images.put(image)
    images.put(None)


def detect(network, class_names, thresh, images, results):
    while (image := images.get()) is not None:
        detections = darknet.detect_image(network, class_names, image, thresh=thresh)
        darknet.print_detections(detections, True)
        darknet.free_image(image)
        results.put(detections)
    results.put(None)


def draw(class_colors, size, frames, results, drawn):
    while (detections := results.get()) is not None:
        frame = frames.get()
        height, width = frame.shape[:2]
        adjusted = [
            (
                str(label),
                confidence,
                (
                    int(box[0] / size[0] * width),
                    int(box[1] / size[1] * height),
                    int(box[2] / size[0] * width),
                    int(box[3] / size[1] * height),
                ),
            )
            for label, confidence, box in detections
        ]
        drawn.append(darknet.draw_boxes(adjusted, frame, class_colors))


def main(words=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--config_file")
    parser.add_argument("--data_file")
    parser.add_argument("--weights")
    parser.add_argument("--thresh", type=float, default=0.25)
    parser.add_argument("pictures", nargs="+")
    args = parser.parse_args(words)
    network, class_names, class_colors = darknet.load_network(
        args.config_file, args.data_file, args.weights, batch_size=1
    )
    size = darknet.network_width(network), darknet.network_height(network)
    frames, images, results = queue.Queue(), queue.Queue(maxsize=1), queue.Queue(maxsize=1)
    drawn = []
    threads = [
        threading.Thread(target=read, args=(args.pictures, size, frames, images)),
        threading.Thread(target=detect, args=(network, class_names, args.thresh, images, results)),
        threading.Thread(target=draw, args=(class_colors, size, frames, results, drawn)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return drawn


if __name__ == "__main__":
    main()
