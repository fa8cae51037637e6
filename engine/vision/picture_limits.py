"""Upper bounds on the size of a picture, checked before it is decoded.

A program that reads untrusted pictures can lower them first: `picture_limits.PIXELS = 2**24`.
"""

PIXELS = 89_478_485  # 256 MiB of RGB
BYTES = 1 << 30  # in a file
