"""Threads: a pool, a cache of reusable workers, locks that survive a fork, a pipeline."""
