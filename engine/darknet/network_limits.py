"""Upper bounds on the size of a network, checked in Python's integers before any allocation.

Each is several times what the largest published network needs. A program that runs untrusted
networks can lower them before it loads one: `network_limits.ACTIVATIONS = 2**24`.
"""

CFG_BYTES = 16 * 2**20
LINES = 300_000
SECTIONS = 10_000
LIST = 4096  # numbers in one option
INTEGER = 2**31 - 1  # the largest integer in an option
VALUES = 2**31 - 1  # in one layer's output, in its padded input, and in one of its arrays
PARAMETERS = 2**32  # total of all layers
ACTIVATIONS = 2**34  # total of all layers, for one sample
OPERATIONS = 2**43  # total of all layers, for one sample
CLASSES = 2**20  # in a detector or classifier
TREES = 100  # options tree=, each of which reads a file of up to 16 MiB
REFERENCES = 200_000  # references from all layers to earlier ones
