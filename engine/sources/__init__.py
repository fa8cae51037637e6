"""Sources of pictures: files, folders, patterns, lists, URLs, videos and cameras.

expand.expand()     →  Media: a picture, video or camera that a name refers to, not opened yet
reader.read_items() →  Item: one picture, or the error that takes its place
"""
