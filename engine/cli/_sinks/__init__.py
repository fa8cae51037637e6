"""Sinks for the results of a run, one module for each kind of output."""
