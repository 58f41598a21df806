"""Declarations in one line, calls of them, and what opsmith answers."""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import torch
import typing_extensions

import opsmith
from opsmith import ArgumentError, DeclarationError
from opsmith.operators.core.argument_errors import refusal
from opsmith.operators.core.validation import Validator
from opsmith.signature import (
    Signature,
    TensorInfo,
    annotations,
    bind,
    result_shapes,
    signature_of,
)
from opsmith.signature.solving.folding import fold


def _tensor(*shape: int, dtype: str = "float32", device: str = "cpu") -> TensorInfo:
    return TensorInfo(shape, dtype, device)


NAMES: dict[str, Any] = {
    **vars(typing),
    **vars(jaxtyping),
    **{name: getattr(opsmith, name) for name in opsmith.__all__},
    **vars(annotations),
    "Doc": typing_extensions.Doc,
    "Sequence": Sequence,
    "T": _tensor,
    "Tensor": torch.Tensor,
    "jaxtyping": jaxtyping,
    "np": np,
    "torch": torch,
}


def declared(line: str) -> Signature:
    """The signature of ``f(x: Tensor) -> Tensor; option=value``."""
    head, _, options = line.partition("; ")
    scope = dict(NAMES)
    exec(f"def f{head[1:]}: ...", scope)
    return signature_of(scope["f"], "ns::f", **eval(f"dict({options})", scope))


def message_of(line: str) -> str | None:
    """What the declaration is refused with."""
    try:
        declared(line)
    except DeclarationError as error:
        return str(error)
    return None


def outcome_of(line: str, call: str) -> str:
    """What comes of calling the declared operator with ``name=value, ...``."""
    signature = declared(line)
    arguments = eval(f"dict({call})", dict(NAMES))
    try:
        bound = bind(signature, arguments)
        shapes = result_shapes(signature, bound, arguments) if signature.shaped else "any"
    except ArgumentError as error:
        return str(error)
    return f"binds {bound.text() or 'nothing'}; dtype {bound.dtype}; results {shapes}"


def fold_of(line: str, batched: str) -> str:
    """Where a batch of the arguments named lies, as ``x at 0, y at 1; results at 0``."""
    found = fold(declared(line), batched.split())
    if found is None:
        return "one call per sample"
    axes = ", ".join(f"{name} at {axis}" for name, axis in found.axes.items())
    kind = "of its own" if found.variadic else "multiplied"
    return f"{axes}; results at {', '.join(map(str, found.out_axes)) or 'none'}; {kind}"


def values_of(line: str, call: str) -> str:
    """What validation in Python says of a call with real tensors: ``I([1, 2])``, ``t(values)``."""
    arguments = eval(f"dict({call})", {**NAMES, "t": torch.tensor, "I": _integers})
    try:
        valid = Validator(declared(line))(arguments)
    except ArgumentError as error:
        return str(error)
    return f"fits; results {valid.shapes}"


def refusal_of(line: str, call: str) -> str:
    """What a call that PyTorch refused is answered with."""

    def capture(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, kwargs

    scope = {**NAMES, "t": torch.tensor, "I": _integers, "capture": capture}
    args, kwargs = eval(f"capture({call})", scope)
    refused = refusal(declared(line), args, kwargs, TypeError("PyTorch's own words"))
    return "nothing to say" if refused is None else str(refused)


def _integers(values: Any, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def cases(page: Path) -> list[tuple[str, ...]]:
    """The blocks of a page: the indented lines, and the words quoted under them."""
    text = page.read_text()
    found = re.findall(r"((?:^    .*\n)+)\n((?:^> .*\n)+)", text, flags=re.MULTILINE)
    return [
        (*code.replace("    ", "").splitlines(), re.sub(r"(?m)^> ", "", said).rstrip())
        for code, said in found
    ]
