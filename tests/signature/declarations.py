"""Declarations in one line, and what opsmith answers to them."""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import torch

import opsmith
from opsmith import DeclarationError
from opsmith.signature import Signature, annotations, signature_of

PAGE = Path(__file__).with_suffix(".md")
NAMES: dict[str, Any] = {
    **vars(typing),
    **vars(jaxtyping),
    **{name: getattr(opsmith, name) for name in opsmith.__all__},
    **vars(annotations),
    "Sequence": Sequence,
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


def cases() -> list[tuple[str, str]]:
    """The declarations of the page, and the words that it has for each."""
    found = re.findall(r"^    (f\(.*)\n\n((?:> .*\n)+)", PAGE.read_text(), flags=re.MULTILINE)
    return [(line, re.sub(r"^> ", "", said, flags=re.MULTILINE).rstrip()) for line, said in found]
