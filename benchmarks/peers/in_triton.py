"""opsmith, triton-viz's sanitizer and ttsem over the faulty Triton kernels of tests/in_triton.

Each kernel is launched once, over 21 elements by blocks of 8, by a program that compares the result
with what is right, as a test does: ``by comparing`` is what that finds, without help of the tool.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "tests" / "in_triton" / "triton_kernels.py"
#: The commands of triton-viz import pytest, which it does not ask for.
TRITON_VIZ = ("torch==2.13.0", "triton==3.6.0", "triton-viz==3.0", "pytest", ".[check]")
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
#: Runs under every tool; a line of JSON for each kernel. The tools end a launch by an exception.
_PROGRAM = """\
import json
import sys
import time

import kernels
import torch
import triton

device = sys.argv[1]
if device == "cpu":
    import triton_viz
    from triton_viz.clients import Sanitizer


def launch(name):
    n = 20 if name == "takes_memory_as_contiguous" else 21
    x = torch.arange(n, dtype=torch.float32, device=device) + 0.5
    right, out, kernel = x.clone(), torch.empty(n, device=device), name
    if name == "takes_memory_as_contiguous":
        x = x.view(4, 5).T
        right, out, kernel = x.contiguous(), torch.empty(5, 4, device=device), "copy_kernel"
    elif "total" in name:
        right, out = x.sum().reshape(1), torch.zeros(1, device=device)
    kernel = getattr(kernels, kernel)
    if device == "cpu":
        kernel = triton_viz.trace(client=Sanitizer(abort_on_error=True))(kernel)
    kernel[(triton.cdiv(n, 8),)](x, out, n, BLOCK=8)
    # triton-viz's sanitizer looks at addresses, and computes no results.
    return device == "cpu" or torch.equal(out, right)


for name in sys.argv[2:]:
    started = time.monotonic()
    try:
        said = ["passes", ""] if launch(name) else ["by comparing", ""]
    except BaseException as error:
        ends = type(error).__name__ in ("KernelFault", "SystemExit")
        said = ["flags" if ends else "fails", f"{type(error).__name__}: {error}"[:200]]
    print("SAID", json.dumps([name, *said, round(time.monotonic() - started, 2)]), flush=True)
"""
_OPSMITH = """\
import json
import sys
import time

import torch
import triton_kernels as kernels

import opsmith
from opsmith import checks


def checked(name):
    if "total" in name:
        operator, out = getattr(kernels, name.removesuffix("_kernel")), torch.zeros(1)
        try:
            with opsmith.emulate("cuda"):
                operator(torch.ones(20), out)
        except opsmith.OpsmithError as error:
            return ["flags", str(error).partition("\\n")[0]]
        return ["passes" if out.item() == 20 else "by comparing", ""]
    operator = kernels.FAULTY.get(name) or kernels._copy(name, getattr(kernels, name))
    report = checks.run(operator, select=["triton-interpreter"], examples=20, isolate=False)
    (row,) = [row for row in report.rows if row.check == "triton-interpreter"]
    return [{"failed": "flags", "passed": "passes"}.get(row.status, row.status), row.code or ""]


for name in sys.argv[1:]:
    started = time.monotonic()
    said = checked(name)
    print("SAID", json.dumps([name, *said, round(time.monotonic() - started, 2)]), flush=True)
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
    names = (*FAULTS, *RIGHT)
    first, second = (str(path / "bin" / "python") for path in (triton_viz, ttsem))
    ran_by_ttsem = [second, "-m", "ttsem.sanitize", "program.py", "--", "cuda", *names]
    said = {
        "opsmith": _said([first, "by_opsmith.py", *names], folder / "opsmith.txt"),
        "triton-viz": _said([first, "program.py", "cpu", *names], folder / "triton-viz.txt"),
        "ttsem": _said(ran_by_ttsem, folder / "ttsem.txt"),
    }
    for name in names:
        line: dict[str, Any] = {"set": "triton", "fault": name}
        line["kind"] = FAULTS.get(name, "right kernels")
        for tool, lines in said.items():
            line[tool] = lines.get(name, ["fails", "its process ended", 0])
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


def _said(command: list[str], log: Path) -> dict[str, list[Any]]:
    """Run a program; return what it said of each kernel."""
    done = subprocess.run(
        command,
        cwd=log.parent,
        env={**os.environ, "PYTHONPATH": str(KERNELS.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ).stdout
    log.write_text(done)
    lines = [json.loads(line[5:]) for line in done.splitlines() if line.startswith("SAID ")]
    return {name: verdict for name, *verdict in lines}
