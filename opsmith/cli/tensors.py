"""Read the inputs and write the outputs of `opsmith run`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.targets.exporting.artifact import TensorSpec
from opsmith.untyped import Value


def read_inputs(files: Sequence[str], specs: Sequence[TensorSpec]) -> list[Tensor]:
    """Return one tensor for each input of an artifact, in the order of the inputs.

    Args:
        files: one ``.npz`` file of arrays, or one ``.pt`` file of a dictionary of tensors, both
            with the names of the inputs; or a ``.npy`` or ``.pt`` file for each input, in order or
            as ``name=file``.
        specs: the inputs.
    """
    named: dict[str, Value] = {}
    for position, given in enumerate(files):
        name, equals, file = given.partition("=")
        if not equals or Path(given).exists():
            name, file = "", given
        value = _read(file)
        if isinstance(value, dict):
            named.update(value)
        elif isinstance(value, list | tuple):
            if len(value) > len(specs):
                raise ArgumentError(
                    f"{file} holds {len(value)} tensors; the model takes {_list(specs)}"
                )
            named.update(zip((spec.name for spec in specs), value, strict=False))
        elif name:
            named[name] = value
        elif position < len(specs):
            named[specs[position].name] = value
        else:
            raise ArgumentError(f"{file}: the model has {len(specs)} inputs, {_list(specs)}")
    unknown = sorted(set(named) - {spec.name for spec in specs})
    if unknown:
        raise ArgumentError(f"no input is called {unknown[0]!r}; the model takes {_list(specs)}")
    missing = [spec for spec in specs if spec.name not in named]
    if missing:
        raise ArgumentError(f"the input {missing[0]} is missing; the model takes {_list(specs)}")
    return [named[spec.name] for spec in specs]


def write_outputs(path: Path, names: Sequence[str], tensors: Sequence[Tensor]) -> None:
    """Write outputs: ``.npz`` or ``.pt`` by name, or ``.npy`` for a single output."""
    from opsmith.system.files import write_output

    file = io.BytesIO()
    if path.suffix == ".pt":
        torch.save(dict(zip(names, tensors, strict=True)), file)
        write_output(path, file.getvalue())
        return
    narrow = [n for n, t in zip(names, tensors, strict=True) if t.dtype is torch.bfloat16]
    if narrow:
        raise ArgumentError(f"{path}: NumPy has no bfloat16 ({narrow[0]!r}); write a .pt file")
    arrays: list[Value] = [tensor.numpy() for tensor in tensors]
    if path.suffix == ".npz":
        np.savez(file, **dict(zip(names, arrays, strict=True)))
    elif path.suffix == ".npy" and len(arrays) == 1:
        np.save(file, arrays[0])
    else:
        raise ArgumentError(f"{path}: outputs go into .npz or .pt, a single one into .npy too")
    write_output(path, file.getvalue())


def _read(file: str) -> object:
    path = Path(file)
    try:
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path))
        if path.suffix == ".pt":
            return torch.load(path, weights_only=True)
    except Exception as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise ArgumentError(f"{file} cannot be read: {why}") from error
    raise ArgumentError(f"{file}: inputs come from .npz, .npy and .pt files")


def _list(specs: Sequence[TensorSpec]) -> str:
    return "; ".join(str(spec) for spec in specs) or "none"
