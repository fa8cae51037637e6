"""How large a network may be; checked in Python's integers, before any memory is asked for."""

CFG_BYTES = 16 * 2**20
LINES = 300_000
SECTIONS = 10_000
LIST = 4096  # numbers in one option
INTEGER = 2**31 - 1  # the largest whole number an option may hold
VALUES = 2**31 - 1  # of one layer's output, and of one of its arrays
PARAMETERS = 2**33  # of all layers together
ACTIVATIONS = 2**35  # of all layers together, for one sample
READS = 200_000  # references from all layers to earlier ones
