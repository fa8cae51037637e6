"""Small networks that tests damage, and short names for their cases."""

NET = "[net]\nwidth=32\nheight=32\nchannels=3\n"
CONV = "[convolutional]\nfilters=6\nactivation=linear\n"
YOLO = "[yolo]\nclasses=1\nnum=1\nanchors=8,8\nmask=0\n"
END = CONV + YOLO
GOOD = NET + END


def short(value):
    return str(value) if isinstance(value, int) else ""
