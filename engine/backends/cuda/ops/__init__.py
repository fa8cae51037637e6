"""The host side of every kernel that is not a convolution: one file for each family of ops.

Importing this package registers how each op and head is run.
"""

from engine.backends.cuda.ops import average_pool as average_pool
from engine.backends.cuda.ops import data_movement as data_movement
from engine.backends.cuda.ops import elementwise as elementwise
from engine.backends.cuda.ops import heads as heads
from engine.backends.cuda.ops import matmul as matmul
from engine.backends.cuda.ops import max_pool as max_pool
from engine.backends.cuda.ops import normalisation as normalisation
from engine.backends.cuda.ops import rare_convolutions as rare_convolutions
from engine.backends.cuda.ops import softmax as softmax
from engine.backends.cuda.ops import squeeze_excite as squeeze_excite
