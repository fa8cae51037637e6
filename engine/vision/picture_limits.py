"""How large a picture may be; checked before it is decoded.

Who reads pictures of strangers sets these lower before: `picture_limits.PIXELS = 2**24`.
"""

PIXELS = 89_478_485  # 256 MiB of RGB
BYTES = 1 << 30  # of a file
