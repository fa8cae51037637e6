"""Target-aware passes: from an optimised plan to the steps that a card runs."""

# The target-independent passes that run before these, in order.
PASSES = (
    "fold_batchnorm",
    "fuse_activation",
    "fuse_gate",
    "pool_before_concat",
    "fuse_pool",
    "split_shortcut",
    "fuse_residual",
    "chain_pools",
    "merge_siblings",
    "fuse_yolo",
    "fuse_upsample",
    "elide_copies",
    "drop_unread",
)
