"""Read machine-readable codes that a detector found, by zxing-cpp."""
