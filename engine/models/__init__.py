"""The official zoo: what there is, where it comes from and where it lies.

Nothing is fetched when this is imported; see `store.pull`.
"""
