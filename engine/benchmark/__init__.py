"""Benchmarks of a network: stages, ops, convolution algorithms, and other programs.

stages.py      the stages of a run, from pictures to boxes
layers.py      the time of each op, compared with its lower bound in roofline.py
algorithms.py  every convolution with every algorithm
peers/         other programs that run the same network
chart.py       bar charts
"""
