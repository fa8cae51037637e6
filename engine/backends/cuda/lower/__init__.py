"""Target-aware passes: from an optimised plan to the steps that a card runs."""
