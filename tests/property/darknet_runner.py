"""Run networks through a darknet library: python darknet_runner.py LIBRARY FOLDER.

For each NAME.cfg in the folder it reads NAME.first.weights, NAME.inputs.npy (a float32 row for each
call) and NAME.size (of the last layer), and writes the outputs of the last layer to
NAME.outputs.npy. It is a separate process because darknet calls exit() on errors.
"""

import ctypes
import os
import sys
from pathlib import Path

import numpy as np

FLOATS = ctypes.POINTER(ctypes.c_float)


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    library.load_network.restype = ctypes.c_void_p
    library.load_network.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)
    library.network_predict.restype = FLOATS
    library.network_predict.argtypes = (ctypes.c_void_p, FLOATS)
    library.free_network.argtypes = (ctypes.c_void_p,)
    for path in sorted(Path(sys.argv[2]).glob("*.cfg")):
        inputs = np.load(path.with_suffix(".inputs.npy"))
        size = int(path.with_suffix(".size").read_text())
        weights = path.with_suffix(".first.weights")
        network = library.load_network(os.fsencode(path), os.fsencode(weights), 0)
        outputs = []
        for row in inputs:
            row = np.ascontiguousarray(row, np.float32)
            found = library.network_predict(network, row.ctypes.data_as(FLOATS))
            outputs.append(np.ctypeslib.as_array(found, (size,)).copy())
        np.save(path.with_suffix(".outputs.npy"), outputs)
        library.free_network(network)


if __name__ == "__main__":
    main()
