"""Nested arguments as flat lists, in the form in which ``torch.export`` describes arguments.

Private: ``torch.utils._pytree``, in each release from 2.10 on. Without it, no model is exported.
The public ``torch.utils.pytree`` has another implementation if an environment variable asks for it,
and cannot read descriptions.
"""

from torch.utils._pytree import (
    SequenceKey as SequenceKey,
    tree_flatten as tree_flatten,
    tree_flatten_with_path as tree_flatten_with_path,
    tree_leaves as tree_leaves,
    tree_map as tree_map,
    tree_map_only as tree_map_only,
    tree_structure as tree_structure,
    tree_unflatten as tree_unflatten,
    treespec_dumps as treespec_dumps,
    treespec_loads as treespec_loads,
)
