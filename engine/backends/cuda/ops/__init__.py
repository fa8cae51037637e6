"""The host side of every kernel that is not a convolution: one file for each op family."""
