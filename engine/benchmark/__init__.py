"""How fast a network runs, what its time goes into, and beside which other programs."""
