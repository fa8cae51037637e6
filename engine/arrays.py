"""Type aliases for NumPy arrays of any dtype, of float32 and of int64."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]
