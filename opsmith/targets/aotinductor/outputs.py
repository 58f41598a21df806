"""Restrict a program to returning tensors, since compiled code cannot return other values."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from opsmith.compat import torch_pytree as pytree
from opsmith.compat.torch_export import updated


def only_tensors(program: ExportedProgram) -> ExportedProgram:
    """Return `program` without the returned values that the export fixed: None, numbers, texts.

    The manifest records them for callers in Python.
    """
    specs = program.graph_signature.output_specs
    keep = [not _is_fixed(spec) for spec in specs]
    if all(keep):
        return program
    module = copy.deepcopy(program.graph_module)
    node = module.graph.output_node()
    returned: Any = node.args[0]
    node.args = (tuple(value for value, kept in zip(returned, keep, strict=True) if kept),)
    node.meta["val"] = tuple(value.meta.get("val") for value in node.args[0])
    module.recompile()
    kept_specs = [spec for spec, kept in zip(specs, keep, strict=True) if kept]
    signature = dataclasses.replace(program.graph_signature, output_specs=kept_specs)
    shorter = updated(program, module, signature)
    call = shorter.module_call_graph[0].signature
    if call is not None:
        call.outputs = [spec.arg for spec in kept_specs if spec.kind is OutputKind.USER_OUTPUT]
        call.out_spec = pytree.tree_structure(tuple(range(len(call.outputs))))
    return shorter


def _is_fixed(spec: OutputSpec) -> bool:
    return spec.kind is OutputKind.USER_OUTPUT and not isinstance(spec.arg, TensorArgument)
