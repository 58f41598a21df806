"""A declaration to start from, of an operator that exists: what `opsmith adopt` prints.

Parameters and defaults come from the schema. Everything else is found by calling: which sizes are
free and which are alike, what the sizes of results follow from, which values and dtypes are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from opsmith.drafting import describing, dimensions, examples, limits, writing
from opsmith.drafting.subject import Subject, of_function, of_overload
from opsmith.operators.adopt import overload_of

__all__ = ["draft_function", "draft_operator"]


def draft_operator(name: str, example: str | None = None, modules: Sequence[str] = ()) -> str:
    """The declaration of an operator that PyTorch knows, as a Python file.

    Args:
        name: ``aten::gather``; with an overload: ``aten::add.Tensor``.
        example: the arguments of a call as Python, ``torch.rand(5, 4), 0.5``; by default a call
            that the operator takes is looked for.
        modules: what the file has to import so that the operator is there.

    Raises:
        DeclarationError: there is no such operator; no declaration can say what it takes or
            returns; or no call of it was found.
    """
    overload = overload_of(name)
    draft = replace(_draft(of_overload(name, overload), example), modules=modules)
    return writing.operator(draft, name, overload)


def draft_function(
    module: str, function: type[torch.autograd.Function], example: str | None = None
) -> str:
    """The same of a ``torch.autograd.Function`` that `module` has.

    Raises:
        DeclarationError: as `draft_operator`.
    """
    name = function.__name__
    return writing.function(_draft(of_function(name, function), example), module, name)


def _draft(subject: Subject, example: str | None) -> writing.Draft:
    subject, given = examples.found(subject, example, subject.name)
    values = limits.with_optional(subject, dimensions.specs(given))
    sizes, device = describing.sizes_of(subject, values)
    draft = describing.described(subject, sizes, device, given)
    return replace(draft, sources=examples.sources(subject, example))
