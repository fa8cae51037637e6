"""Where pictures come from: files, folders, patterns, lists, addresses, videos and cameras.

names.places()  →  Place: what a name stands for, told without opening it
opening.items() →  Item: one picture, or the error that stands in its place
"""
