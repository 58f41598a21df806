"""opsmith, triton-viz's sanitizer and ttsem over the faulty Triton kernels of tests/in_triton.

Each kernel is launched once, over 20 elements by blocks of 8, by a program that compares the result
with what is right, as a test does: ``by comparing`` is what that finds, without help of the tool.
"""

from __future__ import annotations

import ast
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "tests" / "in_triton" / "triton_kernels.py"
TRITON_VIZ = ("torch==2.13.0", "triton==3.6.0", "triton-viz==3.0", ".[check]")
#: ttsem is tested by its author with Python 3.12, torch 2.14 and Triton 3.8.
TTSEM = ("torch==2.13.0", "triton==3.8.0", "numpy", "pytest")
TTSEM_ITSELF = "ttsem==0.1.0"
#: By kernel: the kind of its fault. The others are right.
FAULTS = {
    "reads_beside": "bounds",
    "writes_beside": "bounds",
    "leaves_some_unwritten": "wrong or unwritten results",
    "one_place_for_two_lanes": "races",
    "reads_what_the_next_writes": "races",
    "total_kernel": "races",
    "takes_memory_as_contiguous": "wrong or unwritten results",
    "wrong_value": "wrong or unwritten results",
}
RIGHT = ("copy_kernel", "atomic_total_kernel")
_PROGRAM = """\
import sys

import kernels
import torch
import triton

name, device = sys.argv[1:]
n = 20
x = torch.arange(n, dtype=torch.float32, device=device) + 0.5
right = x.clone()
if name == "takes_memory_as_contiguous":
    x = x.view(4, 5).T
    right = x.clone().contiguous()
    out, kernel = torch.empty(5, 4, device=device), kernels.copy_kernel
elif "total" in name:
    out, right = torch.zeros(1, device=device), x.sum().reshape(1)
    kernel = getattr(kernels, name)
else:
    out, kernel = torch.empty(n, device=device), getattr(kernels, name)
kernel[(triton.cdiv(n, 8),)](x, out, n, BLOCK=8)
if not torch.equal(out, right):
    raise SystemExit("DIFFERS")
print("SAME")
"""
_OPSMITH = """\
import sys

import torch
import triton_kernels as kernels

import opsmith
from opsmith import checks

name = sys.argv[1]
if "total" in name:
    operator = getattr(kernels, name.removesuffix("_kernel"))
    try:
        with opsmith.emulate("cuda"):
            operator(torch.ones(20), out := torch.zeros(1))
        print("SAID", "" if out.item() == 20 else "wrong results")
    except opsmith.OpsmithError as error:
        print("SAID", "a race" if "a race" in str(error) else error)
else:
    operator = kernels.FAULTY.get(name) or kernels._copy(name, getattr(kernels, name))
    report = checks.run(operator, select=["triton-interpreter"], examples=20, isolate=False)
    (row,) = [row for row in report.rows if row.check == "triton-interpreter"]
    print("SAID", row.code if row.status == "failed" else "" if row.status == "passed" else row)
"""


def results(triton_viz: Path, ttsem: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a line for each kernel.

    Args:
        triton_viz: the environment with triton-viz and opsmith.
        ttsem: that with ttsem.
        folder: for the programs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernels.py").write_text(_jitted(KERNELS.read_text()))
    (folder / "program.py").write_text(_PROGRAM)
    (folder / "by_opsmith.py").write_text(_OPSMITH)
    for name in (*FAULTS, *RIGHT):
        line: dict[str, Any] = {"set": "triton", "fault": name}
        line["kind"] = FAULTS.get(name, "right kernels")
        line["opsmith"] = _of_opsmith(triton_viz, folder, name)
        command = [str(triton_viz / "bin" / "triton-sanitizer"), "program.py", name, "cpu"]
        line["triton-viz"] = _of_peer(command, folder, "Out-Of-Bounds|out-of-bounds|OOB")
        command = [str(ttsem / "bin" / "python"), "-m", "ttsem.sanitize", "program.py", "--"]
        line["ttsem"] = _of_peer([*command, name, "cuda"], folder, "KernelFault|oob_|race")
        yield line


def _jitted(text: str) -> str:
    """Return the kernels alone, without the operators that they belong to."""
    functions = [
        ast.get_source_segment(text, node, padded=True)
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(d) == "triton.jit" for d in node.decorator_list)
    ]
    body = "\n\n\n".join(f"@triton.jit\n{function}" for function in functions)
    return f"import triton\nimport triton.language as tl\n\n\n{body}\n"


def _of_opsmith(environment: Path, folder: Path, name: str) -> list[Any]:
    command = [str(environment / "bin" / "python"), "by_opsmith.py", name]
    done, seconds = _run(command, folder, {"PYTHONPATH": str(KERNELS.parent)})
    said = next((line[5:] for line in done.splitlines() if line.startswith("SAID")), None)
    if said is None:
        return ["fails", done[-300:], seconds]
    return ["flags" if said else "passes", said, seconds]


def _of_peer(command: list[str], folder: Path, words: str) -> list[Any]:
    import re

    done, seconds = _run(command, folder, {})
    (folder / f"{Path(command[0]).name}-{command[-2]}.txt").write_text(done)
    if "DIFFERS" in done:
        return ["by comparing", "", seconds]
    if re.search(words, done):
        found = next(line for line in done.splitlines() if re.search(words, line))
        return ["flags", found.strip()[:160], seconds]
    return ["passes" if "SAME" in done else "fails", done.strip()[-160:], seconds]


def _run(command: list[str], folder: Path, more: dict[str, str]) -> tuple[str, float]:
    import os

    started = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
        ).stdout
    except subprocess.TimeoutExpired:
        done = "no answer in 180 s"
    return done, round(time.monotonic() - started, 1)
