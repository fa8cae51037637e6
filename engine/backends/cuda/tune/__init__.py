"""Autotuning: choose algorithms by timing layers, then whole networks."""
