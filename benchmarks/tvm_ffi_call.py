"""Measure a call of a tvm-ffi function: declared as an operator, beside the module's own call.

The function is the example in the docstring of `tvm_ffi.cpp.load_inline`, on 16 floats. The
declared call validates its arguments and allocates its result; the module's writes into a tensor
that is there (`own call`), or is allocated for the call as an operator's is (`with a result`).

    python benchmarks/tvm_ffi_call.py
"""

from __future__ import annotations

import argparse
import inspect
import re

import figures
import torch
import tvm_ffi.cpp
from jaxtyping import Float32
from rich.console import Console
from rich.table import Table
from sampling import interleave, machine
from torch import Tensor

import opsmith

EXAMPLE = inspect.cleandoc(inspect.getdoc(tvm_ffi.cpp.load_inline) or "")
SOURCE = re.search(r"cpp_source = '''(.*?)'''", EXAMPLE, re.DOTALL)
assert SOURCE is not None, "tvm-ffi's docstring has another example now"
module = tvm_ffi.cpp.load_inline("opsmith_bench", cpp_sources=SOURCE[1], functions="add_one_cpu")


@opsmith.op("opsmith_bench_tvm::add_one_cpu")
def add_one(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x + 1


add_one.register_kernel("cpu", tvm_ffi=module, function="add_one_cpu")


@opsmith.op("opsmith_bench_tvm::in_cpp")
def in_cpp(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x + 1


IN_CPP = r"""
#include <opsmith/kernel.h>
#include "in_cpp.h"

void in_cpp(const opsmith::Context&, const opsmith_bench_tvm::in_cpp_args& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] + 1;
}
OPSMITH_KERNEL(opsmith_bench_tvm, in_cpp, cpu)
"""
in_cpp.register_kernel("cpu", source=opsmith.cpp(IN_CPP))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    x, out = torch.randn(16), torch.empty(16)
    call = module.add_one_cpu
    compiled, compiled_cpp = (
        torch.compile(lambda x, op=op: op(x).neg(), fullgraph=True) for op in (add_one, in_cpp)
    )
    contestants = {
        "declared": lambda: add_one(x),
        "own call": lambda: call(x, out),
        "with a result": lambda: call(x, torch.empty_like(x)),
        "C++ kernel": lambda: in_cpp(x),
        "compiled": lambda: compiled(x),
        "compiled, C++ kernel": lambda: compiled_cpp(x),
    }
    timings = interleave(contestants, rounds=rounds, calls=50)
    table = Table(title="One call on 16 floats, median")
    table.add_column("")
    for word in ("µs", "declared / it"):
        table.add_column(word, justify="right")
    for name in contestants:
        ratio = timings.ratio("declared", name)
        table.add_row(name, f"{timings.median(name) * 1e6:.2f}", f"{ratio:.2f}")
    console = Console(width=100)
    console.print(table)
    beside = timings.ratio("compiled", "compiled, C++ kernel")
    console.print(f"compiled, beside a kernel in C++ of opsmith's: {beside:.2f}")
    console.print(f"{rounds} interleaved rounds of 50 calls. {machine()}", soft_wrap=True)
    figures.keep(
        __file__,
        machine(),
        {
            "tvm/call": figures.seconds(timings.median("declared")),
            "tvm/own": figures.seconds(timings.median("with a result")),
            "tvm/of-own": f"{timings.ratio('declared', 'with a result'):.2f}",
            "tvm/there": figures.seconds(timings.median("own call")),
            "tvm/compiled": f"{beside:.2f}",
        },
    )


if __name__ == "__main__":
    main()
