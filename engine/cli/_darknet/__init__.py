"""Darknet's commands with darknet's own syntax, options and output.

options.py   the options that darknet accepts, and what becomes of them here
files.py     DATA CFG WEIGHTS IMAGE, and what the .data file names
network.py   a loaded network, the lines that darknet prints about it, and one picture's rows
lines.py     the lines that darknet prints about a picture
The other modules are one command each. engine/cli/detector.py and its neighbours choose them.
"""
