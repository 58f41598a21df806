"""The classes of PyTorch's operators, as graphs hold them.

They are in each release from 2.10 on, in ``torch._ops`` alone.
"""

from __future__ import annotations

import torch

#: Private: ``torch._ops.OpOverload``, what ``torch.ops.namespace.name.default`` is. Without it,
#: nothing here knows an operator in a graph.
OpOverload = torch._ops.OpOverload

#: Private: ``torch._ops.OpOverloadPacket``, what ``torch.ops.namespace.name`` is. Without it, calls
#: of operators that write into arguments are not exported.
OpOverloadPacket = torch._ops.OpOverloadPacket

#: Private: ``torch._ops.HigherOrderOperator``, as ``torch.cond`` is. Without it, such steps of a
#: model are not refused by name.
HigherOrderOperator = torch._ops.HigherOrderOperator


def is_builtin(overload: OpOverload) -> bool:
    """Return whether an operator is PyTorch's own.

    Private: ``torch._library.utils.is_builtin``. Without it, adopting an operator of another
    library does not give it a fake kernel, and models that call one are not refused by name.
    """
    from torch._library import utils

    return utils.is_builtin(overload)
