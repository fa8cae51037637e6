"""Read machine-readable codes that a detector found, with zxing-cpp."""
