"""A plan in the formats of other programs."""
