"""The CUDA C++ text of the kernels, and the Python that reads and generates it."""
