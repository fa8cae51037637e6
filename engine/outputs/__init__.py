"""Folders of outputs: the names of their files, and records of what runs wrote there."""
