"""Pictures of codes, drawn by zxing-cpp's own writer."""

import numpy as np
from PIL import Image

from engine.vision.boxes import Boxes
from tests import needs

zxing = needs.package("zxingcpp")

LABELS = ("qr", "datamatrix", "aztec", "pdf417", "barcode")


def symbol(content, name, *, scale=4):
    """Return a grey image of a code with a quiet zone."""
    code = zxing.create_barcode(content, getattr(zxing.BarcodeFormat, name))
    pixels = np.array(zxing.write_barcode_to_image(code, scale=scale))
    return Image.fromarray(np.pad(pixels.reshape(pixels.shape[:2]), 4 * scale, constant_values=255))


def page(*placed, size=(600, 400)):
    """Return RGB pixels with images turned by an angle around their places (x, y)."""
    paper = Image.new("L", size, 200)
    for image, (x, y), angle in placed:
        mask = Image.new("L", image.size, 255).rotate(angle, Image.Resampling.BICUBIC, expand=True)
        turned = image.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor=200)
        paper.paste(turned, (x - turned.width // 2, y - turned.height // 2), mask)
    return np.asarray(paper.convert("RGB"))


def boxes(*rows, size=(600, 400)):
    """Return Boxes for rows of left, top, right, bottom, class and score."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    edges = table[:, :4] / (*size, *size)
    xywh = np.concatenate([(edges[:, :2] + edges[:, 2:]) / 2, edges[:, 2:] - edges[:, :2]], axis=1)
    scores = table[:, 5].astype(np.float32)
    return Boxes(xywh.astype(np.float32), scores, table[:, 4].astype(np.int64), scores)


def texts_alone(pixels):
    """Return what zxing-cpp reads from a whole picture by itself."""
    height, width = pixels.shape[:2]
    view = zxing.ImageView(pixels, width, height, zxing.ImageFormat.RGB)
    return {code.text for code in zxing.read_barcodes(view)}
