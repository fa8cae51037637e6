"""Where results go: one file for each kind of output, all of them a Sink."""
