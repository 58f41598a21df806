"""Draft a declaration of an existing operator to start from, as `opsmith adopt` prints it.

Parameters and defaults come from the schema. Everything else is found by calling the operator: the
free sizes and which of them are equal, how the sizes of results follow from them, and which values
and dtypes the operator accepts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from opsmith.drafting import describing, dimensions, examples, limits, writing
from opsmith.drafting.subject import Origin, of_function, of_overload, refuse_written
from opsmith.errors import DeclarationError
from opsmith.kernels import HOST
from opsmith.operators.adoption.adopt import overload_of

__all__ = ["draft_function", "draft_operator"]


def draft_operator(name: str, example: str | None = None, modules: Sequence[str] = ()) -> str:
    """Return the declaration of an operator of PyTorch, as the text of a Python file.

    Args:
        name: ``aten::gather``; with an overload: ``aten::add.Tensor``.
        example: the arguments of a call as Python, ``torch.rand(5, 4), 0.5``; by default a call
            that the operator accepts is searched for.
        modules: the modules that the file has to import so that the operator exists.

    Raises:
        DeclarationError: the operator does not exist, a declaration cannot express its parameters
            or results, or no call was found that it accepts.
    """
    overload = overload_of(name)
    draft = replace(_draft(of_overload(name, overload), example), modules=modules)
    return writing.operator(draft, name, overload)


def draft_function(
    module: str, function: type[torch.autograd.Function], example: str | None = None, name: str = ""
) -> str:
    """Return the declaration of a ``torch.autograd.Function`` in `module`, as a Python file.

    In the module it has another `name` than its own if a function made it.

    Raises:
        DeclarationError: as for `draft_operator`.
    """
    name = name or function.__name__
    subject = of_function(name, function)
    refuse_written(*examples.found(subject, example, name))
    try:
        draft = _draft(of_function(name, function, backward=True), example)
    except DeclarationError:  # it has no backward, or a wrong one, which a check will find
        draft = _draft(subject, example)
    return writing.function(draft, module, name)


def _draft(subject: Origin, example: str | None) -> writing.Draft:
    subject, given = examples.found(subject, example, subject.name)
    values = limits.with_optional(subject, dimensions.specs(given))
    if subject.takes([values])[0]:
        sizes, device = describing.sizes_of(subject, values)
    else:  # it takes the example's numbers alone, so that no other size can be tried
        sizes, device = dimensions.Sizes({}, given), HOST
    draft = describing.described(subject, sizes, device, given)
    return replace(draft, sources=examples.sources(subject, example))
