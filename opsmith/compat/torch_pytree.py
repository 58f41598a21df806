"""Nested arguments as flat lists, in the form in which ``torch.export`` describes arguments.

Private: ``torch.utils._pytree``, in each release from 2.10 on. Without it, no model is exported.
The public ``torch.utils.pytree`` has another implementation if an environment variable asks for it,
and cannot read descriptions.
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
