"""Output folders: the names of their files, and records of what runs wrote there."""
