"""torch.library: its records of the operators that were registered with it.

Every name exists in each release from 2.10 on.
"""

from __future__ import annotations

import torch
from torch._library import simple_registry
from torch._library.custom_ops import CustomOpDef as _CustomOpDef

#: Private: ``torch._library.custom_ops.CustomOpDef``, the result of ``torch.library.custom_op``.
#: Without it, operators are not such objects, and torch.library's functions refuse them.
CustomOpDef = _CustomOpDef


def has_fake_kernel(operator: str) -> bool:
    """Return whether ``torch.library.register_fake`` was called for an operator.

    Private: ``torch._library.simple_registry.singleton``. Without it, adopting an operator replaces
    the fake kernel of its library.
    """
    return simple_registry.singleton.find(operator).fake_impl.kernel is not None


def is_written_in_python(operator: str) -> bool:
    """Return whether ``torch.library.custom_op`` defined an operator.

    Private: ``torch._library.custom_ops._maybe_get_opdef``. Without it, an AOTInductor artifact of
    such an operator fails where it runs.
    """
    from torch._library import custom_ops

    return custom_ops._maybe_get_opdef(operator) is not None


def destroy(library: torch.library.Library) -> None:
    """Take back all registrations of a library.

    Private: ``torch.library.Library._destroy``. Without it, an operator that is declared again
    keeps kernels and rules of its first declaration.
    """
    library._destroy()


def let_an_argument_be_called_mode() -> None:
    """Let PyTorch compile operators that write into arguments and have one called ``mode``.

    Private: ``torch._higher_order_ops.auto_functionalize``. Its functions pass an operator's
    arguments by name, along with an argument of their own, ``mode``, which is always passed by
    position: make that one positional-only. The change stays until the process ends, because
    PyTorch may compile at any time.
    """
    from torch._higher_order_ops import auto_functionalize

    for name in ("auto_functionalized", "auto_functionalized_v2"):
        made = getattr(auto_functionalize, name, None)
        for table in ("python_key_table", "py_kernels"):
            for function in getattr(made, table, {}).values():
                code = getattr(function, "__code__", None)
                if code is not None and code.co_varnames[:1] == ("mode",):
                    function.__code__ = code.replace(co_posonlyargcount=1)
