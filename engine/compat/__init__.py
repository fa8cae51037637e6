"""Other programs' interfaces on this engine."""
