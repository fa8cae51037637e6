"""Twelve ways in which public scripts use cv2.dnn with darknet's files, as small programs.

Each takes the module cv2, the files and a picture (BGR), and returns (class, score, box) of each
detection, the box being left, top, width and height in pixels.
"""

from pathlib import Path

import numpy as np

CONFIDENCE, OVERLAP = 0.3, 0.4


def numbers_of_columns(cv2, cfg, weights, image):
    """A tutorial of 2018: output numbers and kept indices are columns."""
    height, width = image.shape[:2]
    net = cv2.dnn.readNetFromDarknet(cfg, weights)
    names = net.getLayerNames()
    names = [names[i[0] - 1] for i in net.getUnconnectedOutLayers()]
    blob = cv2.dnn.blobFromImage(image, 1 / 255.0, (416, 416), swapRB=True, crop=False)
    net.setInput(blob)
    boxes, scores, classes = [], [], []
    for output in net.forward(names):
        for row in output:
            number = np.argmax(row[5:])
            if row[5 + number] > CONFIDENCE:
                x, y, w, h = (row[:4] * np.array([width, height, width, height])).astype("int")
                boxes.append([int(x - w / 2), int(y - h / 2), int(w), int(h)])
                scores.append(float(row[5 + number]))
                classes.append(int(number))
    kept = cv2.dnn.NMSBoxes(boxes, scores, CONFIDENCE, OVERLAP)
    found = []
    if len(kept) > 0:
        for i in kept.flatten():
            found.append((classes[i], scores[i], boxes[i]))
    return found


def membership(cv2, cfg, weights, image):
    """A tutorial of 2019: weights first, positional arguments, `if i in indexes`."""
    net = cv2.dnn.readNet(weights, cfg)
    names = net.getLayerNames()
    outputs = [names[i - 1] for i in net.getUnconnectedOutLayers()]
    height, width, _channels = image.shape
    blob = cv2.dnn.blobFromImage(image, 0.00392, (416, 416), (0, 0, 0), True, crop=False)
    net.setInput(blob)
    classes, scores, boxes = [], [], []
    for out in net.forward(outputs):
        for detection in out:
            values = detection[5:]
            number = np.argmax(values)
            if values[number] > CONFIDENCE:
                x, y = int(detection[0] * width), int(detection[1] * height)
                w, h = int(detection[2] * width), int(detection[3] * height)
                boxes.append([int(x - w / 2), int(y - h / 2), w, h])
                scores.append(float(values[number]))
                classes.append(int(number))
    indexes = cv2.dnn.NMSBoxes(boxes, scores, CONFIDENCE, OVERLAP)
    return [(classes[i], scores[i], boxes[i]) for i in range(len(boxes)) if i in indexes]


def framework_and_gpu(cv2, cfg, weights, image):
    """A service: the framework is named, a GPU is asked for, NMS runs for all classes at once."""
    net = cv2.dnn.readNet(cfg, weights, "darknet")
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.setPreferableTarget(cv2.dnn.DNN_TARGET_CPU)
    height, width = image.shape[:2]
    net.setInput(cv2.dnn.blobFromImage(image, 1 / 255.0, (320, 320), swapRB=True))
    rows = np.vstack(net.forward(net.getUnconnectedOutLayersNames()))
    classes = rows[:, 5:].argmax(axis=1)
    scores = rows[:, 5:].max(axis=1)
    boxes = rows[:, :4] * [width, height, width, height]
    boxes[:, :2] -= boxes[:, 2:] / 2
    kept = cv2.dnn.NMSBoxesBatched(
        boxes.tolist(), scores.tolist(), classes.tolist(), CONFIDENCE, OVERLAP
    )
    return [(int(classes[i]), float(scores[i]), boxes[i].tolist()) for i in kept]


def detection_model(cv2, cfg, weights, image):
    """The sample of yolov4: a DetectionModel and zip()."""
    net = cv2.dnn.readNet(weights, cfg)
    model = cv2.dnn_DetectionModel(net)
    model.setInputParams(size=(416, 416), scale=1 / 255, swapRB=True)
    classes, scores, boxes = model.detect(image, CONFIDENCE, OVERLAP)
    return [
        (int(number), float(score), [int(each) for each in box])
        for number, score, box in zip(classes, scores, boxes, strict=True)
    ]


def setters(cv2, cfg, weights, image):
    """A camera: the model reads the files itself, each parameter has a setter."""
    model = cv2.dnn.DetectionModel(weights, cfg)
    model.setPreferableTarget(cv2.dnn.DNN_TARGET_CPU)
    model.setInputSize((320, 320))
    model.setInputScale(1 / 255)
    model.setInputSwapRB(True)
    model.setNmsAcrossClasses(True)
    classes, scores, boxes = model.detect(image, confThreshold=CONFIDENCE, nmsThreshold=OVERLAP)
    if len(classes) == 0:
        return []
    rows = zip(classes.flatten(), scores.flatten(), boxes, strict=True)
    return [(int(number), float(score), box.tolist()) for number, score, box in rows]


def profiled(cv2, cfg, weights, image):
    """A tutorial with a time on the picture: flat output numbers, a mean as a list."""

    def output_names(net):
        names = net.getLayerNames()
        return [names[i - 1] for i in net.getUnconnectedOutLayers().flatten()]

    net = cv2.dnn.readNetFromDarknet(cfg, weights)
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.setPreferableTarget(cv2.dnn.DNN_TARGET_CPU)
    blob = cv2.dnn.blobFromImage(image, 1 / 255, (352, 352), [0, 0, 0], 1, crop=False)
    net.setInput(blob)
    outs = net.forward(output_names(net))
    ticks, layers = net.getPerfProfile()
    milliseconds = ticks * 1000.0 / cv2.getTickFrequency()
    assert 0 < milliseconds < 60_000
    assert len(layers) > 0
    height, width = image.shape[0], image.shape[1]
    rows = [row for out in outs for row in out if row[5:].max() > CONFIDENCE]
    boxes = [
        [
            int(row[0] * width - row[2] * width / 2),
            int(row[1] * height - row[3] * height / 2),
            int(row[2] * width),
            int(row[3] * height),
        ]
        for row in rows
    ]
    scores = [float(row[5:].max()) for row in rows]
    kept = cv2.dnn.NMSBoxes(boxes, scores, CONFIDENCE, OVERLAP)
    return [(int(rows[i][5:].argmax()), scores[i], boxes[i]) for i in np.array(kept).ravel()]


def batch(cv2, cfg, weights, image):
    """A batch of two pictures; only the first counts."""
    net = cv2.dnn.readNetFromDarknet(cfg, weights)
    images = [image, image[:, ::-1]]
    net.setInput(cv2.dnn.blobFromImages(images, 1 / 255, (320, 320), swapRB=True))
    outputs = net.forward(net.getUnconnectedOutLayersNames())
    assert all(output.ndim == 3 and len(output) == 2 for output in outputs)
    return _found(cv2, np.concatenate([output[0] for output in outputs]), image)


def buffers(cv2, cfg, weights, image):
    """Files that are in memory already."""
    config, model = (np.fromfile(path, np.uint8) for path in (cfg, weights))
    net = cv2.dnn.readNetFromDarknet(config, model)
    other = cv2.dnn.readNet("darknet", model, config)
    assert not net.empty()
    assert tuple(net.getLayerNames()) == tuple(other.getLayerNames())
    net.setInput(cv2.dnn.blobFromImage(image, 1 / 255, (416, 416), swapRB=True))
    return _found(cv2, np.concatenate(net.forward(net.getUnconnectedOutLayersNames())), image)


def scaled_by_the_network(cv2, cfg, weights, image):
    """OpenCV's sample: a blob of bytes that setInput() scales, and the type of the last layer."""
    net = cv2.dnn.readNet(weights, cfg)
    names = net.getUnconnectedOutLayersNames()
    blob = cv2.dnn.blobFromImage(image, size=(416, 416), swapRB=True, ddepth=cv2.CV_8U)
    net.setInput(blob, scalefactor=1 / 255, mean=[0, 0, 0])
    assert net.getLayer(0).outputNameToIndex("im_info") == -1
    outs = net.forward(names)
    layers = net.getLayerNames()
    assert net.getLayer(net.getLayerId(layers[-1])).type == "Region"
    return _found(cv2, np.concatenate(outs), image)


def one_by_one(cv2, cfg, weights, image):
    """Outputs by their names, alone and nested."""
    net = cv2.dnn.readNetFromDarknet(cfg, weights)
    names = [name for name in net.getLayerNames() if name.startswith("yolo_")]
    net.setInput(cv2.dnn.blobFromImage(image, 1 / 255, (320, 320), swapRB=True), "data")
    alone = [np.array(net.forward(name)) for name in names]
    nested = [group[0] for group in net.forwardAndRetrieve(names)]
    for first, second in zip(alone, nested, strict=True):
        np.testing.assert_allclose(first, second, atol=1e-4)
    np.testing.assert_allclose(net.forward(), alone[-1], atol=1e-4)
    return _found(cv2, np.concatenate(alone), image)


def rows_of_columns(cv2, cfg, weights, image):
    """A class of 2020: arrays instead of loops, and `i[0]` for kept indices."""
    net = cv2.dnn.readNetFromDarknet(str(Path(cfg)), str(Path(weights)))
    names = net.getLayerNames()
    layers = [names[i[0] - 1] for i in net.getUnconnectedOutLayers()]
    net.setInput(cv2.dnn.blobFromImage(image, 1 / 255, (416, 416), (0, 0, 0), swapRB=True))
    rows = np.concatenate(net.forward(layers), axis=0)
    rows = rows[rows[:, 5:].max(axis=1) > CONFIDENCE]
    size = np.array(image.shape[1::-1] * 2)
    centres = rows[:, :4] * size
    boxes = np.hstack([centres[:, :2] - centres[:, 2:] / 2, centres[:, 2:]]).astype(int)
    scores = rows[:, 5:].max(axis=1)
    found = []
    for i in cv2.dnn.NMSBoxes(boxes.tolist(), scores.tolist(), CONFIDENCE, OVERLAP):
        i = i[0]
        found.append((int(rows[i, 5:].argmax()), float(scores[i]), boxes[i].tolist()))
    return found


def any_version(cv2, cfg, weights, image):
    """A program for old and new OpenCV, with an NMS of its own."""
    net = cv2.dnn.readNet(model=weights, config=cfg)
    names = net.getLayerNames()
    try:
        layers = [names[i - 1] for i in net.getUnconnectedOutLayers()]
    except TypeError:
        layers = [names[i[0] - 1] for i in net.getUnconnectedOutLayers()]
    blob = cv2.dnn.blobFromImage(image, scalefactor=1 / 255, size=(320, 320), swapRB=True)
    net.setInput(blob)
    rows = np.concatenate(net.forward(outBlobNames=layers))
    rows = rows[rows[:, 5:].max(axis=1) > CONFIDENCE]
    rows = rows[np.argsort(-rows[:, 5:].max(axis=1), kind="stable")]
    size = np.array(image.shape[1::-1])
    starts, ends = rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2
    found = []
    while len(rows):
        box = [*(starts[0] * size).tolist(), *((ends[0] - starts[0]) * size).tolist()]
        found.append((int(rows[0, 5:].argmax()), float(rows[0, 5:].max()), box))
        sides = np.minimum(ends, ends[0]) - np.maximum(starts, starts[0])
        both = sides.clip(0).prod(axis=1)
        areas = (ends - starts).prod(axis=1)
        keep = both / (areas + areas[0] - both) <= OVERLAP
        rows, starts, ends = rows[keep], starts[keep], ends[keep]
    return found


def _found(cv2, rows, image):
    rows = rows[rows[:, 5:].max(axis=1) > CONFIDENCE]
    height, width = image.shape[:2]
    boxes = rows[:, :4] * [width, height, width, height]
    boxes[:, :2] -= boxes[:, 2:] / 2
    scores = rows[:, 5:].max(axis=1)
    kept = cv2.dnn.NMSBoxes(boxes.tolist(), scores.tolist(), CONFIDENCE, OVERLAP)
    return [
        (int(rows[i, 5:].argmax()), float(scores[i]), boxes[i].tolist())
        for i in np.array(kept, int).ravel()
    ]


PROGRAMS = {
    each.__name__: each
    for each in (
        numbers_of_columns,
        membership,
        framework_and_gpu,
        detection_model,
        setters,
        profiled,
        batch,
        buffers,
        scaled_by_the_network,
        one_by_one,
        rows_of_columns,
        any_version,
    )
}
BEFORE_4_5_4 = ("numbers_of_columns", "rows_of_columns")
