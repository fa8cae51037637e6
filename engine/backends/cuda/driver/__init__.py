"""Access to the machine: driver, compilers, streams, graphs and cuBLAS."""
