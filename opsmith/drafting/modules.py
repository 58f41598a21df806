"""Draft declarations of the functions of a tvm-ffi module, as far as their types tell."""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# A function that is compiled from types says what it takes where it is given another number.
_ASK = r"""
import json, re, sys, tvm_ffi
module = tvm_ffi.load_module(sys.argv[1])
for name in sys.argv[2:]:
    try:
        module[name](*[None] * 65)
    except Exception as error:
        found = re.search(r"calling: `.*?\((.*)\) -> (.*)`\. Expected", str(error))
        if found:
            takes = re.findall(r"(?:^|, )\d+: (.*?)(?=, \d+: |$)", found[1])
            doc = module.get_function_doc(name)
            print(json.dumps([name, takes, found[2], doc or ""]), flush=True)
"""
#: How long all functions of a module may take.
_SECONDS = 60.0
_TENSOR = 'Float32[Tensor, "N{}"]'
_KINDS = {kind: kind for kind in ("int", "float", "bool", "str")}
_KINDS |= {"DLTensor*": _TENSOR, "Tensor": _TENSOR}


def draft_module(path: Path, names: Sequence[str]) -> str:
    """Return declarations of functions of a module, as a Python file; empty if none says types."""
    words = [sys.executable, "-c", _ASK, str(path.resolve()), *names]
    try:
        said = subprocess.run(words, capture_output=True, timeout=_SECONDS).stdout
    except subprocess.TimeoutExpired as error:  # a function without types may wait for something
        said = error.stdout or b""
    lines = said.decode(errors="replace").splitlines()
    known = [json.loads(line) for line in lines if line.startswith('["')]
    drafts = [_drafted(*one) for one in known]
    unknown = ", ".join(sorted({*names} - {name for name, *_ in known}))
    drafts += [f"# The types of {unknown} are not known."] if unknown and drafts else []
    return "\n\n".join([_HEAD.format(path, path.resolve()), *drafts, ""]) if drafts else ""


_HEAD = '''\
"""Functions of {0}, whose types say no dtype, shape or meaning.

Fill in: names in place of a0, a1, …; the dtype and the dimensions of each tensor, which are Float32
and a single one here; which argument is the result; and the body, which says what is right.
"""

import opsmith
from jaxtyping import Float32
from torch import Tensor

MODULE = "{1}"
'''


def _drafted(name: str, takes: Sequence[str], gives: str, doc: str) -> str:
    kinds = [re.sub(r"Optional<(.*)>", r"\1", one.replace("ffi.", "")) for one in takes]
    types = [_KINDS.get(kind, "").format(k) for k, kind in enumerate(kinds)]
    absent = ["Optional" in one for one in takes]
    tensors = [k for k, one in enumerate(types) if "Tensor" in one and not absent[k]]
    returned, heading = "Tensor" in gives, f"# {name}({', '.join(takes)}) -> {gives}"
    out = -1 if returned or not tensors else tensors.pop()
    if not all(types) or not tensors:
        return f"{heading}: no declaration was found that fits."
    result, short = _TENSOR.format(tensors[0]), name + "_" * keyword.iskeyword(name)
    named = [f"a{k}: {one}{' | None' * absent[k]}" for k, one in enumerate(types) if k != out]
    args = tuple("out" if k == out else f"a{k}" for k in range(len(takes)))
    return f'''\
{heading}{"" if returned else f", where a{out} is taken for the result"}
@opsmith.op("my_ops::{short}")
def {short}({", ".join(named)}) -> {f"tuple[{result}, {result}]" if "Array" in gives else result}:
    {(doc or name)!r}
    raise NotImplementedError("my_ops::{short}: write what is right, in PyTorch")


{short}.register_kernel("cpu", tvm_ffi=MODULE, function="{name}", args={args})'''
