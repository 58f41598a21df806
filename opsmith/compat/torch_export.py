"""torch.export: the parts of an exported program that have no public setter.

Every name exists in each release from 2.10 on.
"""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule


def updated(
    program: ExportedProgram, module: GraphModule, signature: ExportGraphSignature, **others: Any
) -> ExportedProgram:
    """Return a program with another graph and signature.

    Private: ``torch.export.ExportedProgram._update``. Without it, a model that calls operators that
    write, or methods of custom classes, is not exported.
    """
    return program._update(module, signature, **others)
