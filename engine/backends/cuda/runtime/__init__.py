"""A compiled program on a card: memory, slots, tickets and runs."""
