"""Driver, compilers, streams, graphs and cuBLAS: what the CUDA backend needs of a machine."""
