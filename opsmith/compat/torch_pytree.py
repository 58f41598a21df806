"""Nested arguments as flat lists: what ``torch.export`` describes a model's arguments by.

Private: ``torch.utils._pytree``, in each release from 2.10 on. Without it, no model is exported.
``torch.utils.pytree``, which is public, has another implementation where an environment variable
says so, and reads no descriptions.
"""

from __future__ import annotations

from torch.utils._pytree import (
    SequenceKey,
    TreeSpec,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_map,
    tree_map_only,
    tree_structure,
    tree_unflatten,
    treespec_dumps,
    treespec_loads,
)

__all__ = [
    "SequenceKey",
    "TreeSpec",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "tree_structure",
    "tree_unflatten",
    "treespec_dumps",
    "treespec_loads",
]
