"""Benchmarks of a network: stages, ops, convolution algorithms, and other programs.

stages.py      the stages of a run, from pictures to boxes
sources.py     streams of arrays, files and videos, and the stage that bounds each
layers.py      the time of each op, compared with its lower bound in roofline.py
algorithms.py  every convolution with every algorithm
peers/         other programs that run the same network
chart.py       bar charts
"""
