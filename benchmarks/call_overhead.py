"""What a call costs: the identity operator on 16 floats, four ways of registering it.

`by hand` is benchmarks/identity_stable.cpp, written against PyTorch's stable ABI; `custom_op` is
`torch.library.custom_op` over `Tensor.clone`, as the tutorial has it, and `opsmith, Python` the
same as a Python kernel of opsmith, whose arguments and results are compared with the declaration.

    python benchmarks/call_overhead.py
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import figures
import torch
from jaxtyping import Float32
from rich.console import Console
from rich.table import Table
from sampling import Timings, interleave, machine
from torch import Tensor
from torch.library import custom_op

import opsmith

HERE = Path(__file__).parent
CALLS = 50
Operator = Callable[[Tensor], Tensor]
Contestants = Mapping[str, Operator]


def pass_gradient(ctx: object, grad: Tensor) -> Tensor:
    return grad


@opsmith.op("opsmith_bench::identity")
def identity(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x.clone()


identity.register_kernel("cpu", source=HERE / "identity_opsmith.cpp")


@opsmith.op("opsmith_bench::identity_backward")
def identity_backward(grad: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return grad.clone()


identity_backward.register_kernel("cpu", source=HERE / "identity_backward_opsmith.cpp")


@opsmith.op("opsmith_bench::identity_into", mutates_args=("out",))
def identity_into(x: Float32[Tensor, "N"], out: Float32[Tensor, "N"]) -> None:
    out.copy_(x)


identity_into.register_kernel("cpu", source=HERE / "identity_into_opsmith.cpp")


@opsmith.op("opsmith_bench::python_identity")
def python_identity(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x.clone()


@python_identity.register_kernel("cpu")
def clone(x: Tensor) -> Tensor:
    return x.clone()


@custom_op("opsmith_bench_custom::identity", mutates_args=())
def custom_identity(x: Tensor) -> Tensor:
    return x.clone()


@custom_op("opsmith_bench_custom::identity_into", mutates_args=("out",))
def custom_identity_into(x: Tensor, out: Tensor) -> None:
    out.copy_(x)


def build_by_hand(folder: Path) -> None:
    """Compile and load identity_stable.cpp with the flags that opsmith uses."""
    torch_home = Path(torch.__file__).parent
    library = folder / "identity_stable.so"
    subprocess.run(
        [
            "g++",
            "-O3",
            "-std=c++20",
            "-shared",
            "-fPIC",
            "-DTORCH_TARGET_VERSION=0x020a000000000000",
            f"-I{torch_home / 'include'}",
            str(HERE / "identity_stable.cpp"),
            f"-L{torch_home / 'lib'}",
            "-ltorch_cpu",
            "-o",
            str(library),
        ],
        check=True,
    )
    torch.ops.load_library(library)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    x = torch.randn(16)
    needs_gradient = torch.randn(16, requires_grad=True)
    grad = torch.ones(16)
    with tempfile.TemporaryDirectory() as folder:
        build_by_hand(Path(folder))
    operators: Contestants = {
        "opsmith": identity,
        "opsmith, Python": python_identity,
        "by hand": torch.ops.opsmith_bench_stable.identity.default,
        "custom_op": custom_identity,
        # What the dispatcher and autograd's engine cost: one of PyTorch's own, in C++ alone.
        "torch.neg": torch.neg,
    }

    def measure(call: Callable[[Operator], object]) -> Timings:
        bound = {name: partial(call, operator) for name, operator in operators.items()}
        return interleave(bound, rounds=rounds, calls=CALLS)

    results = {"no autograd rule": measure(lambda op: op(x))}
    identity.register_autograd(pass_gradient)
    torch.library.register_autograd("opsmith_bench_stable::identity", pass_gradient)
    custom_identity.register_autograd(pass_gradient)
    python_identity.register_autograd(pass_gradient)
    results |= {
        "a rule, not needed": measure(lambda op: op(x)),
        "a rule, recorded": measure(lambda op: op(needs_gradient)),
        "a rule, with backward": measure(lambda op: op(needs_gradient).backward(grad)),
    }
    # The others have what they had.
    identity.register_backward(identity_backward, grads={"x": 0})
    results |= {
        "declared, recorded": measure(lambda op: op(needs_gradient)),
        "declared, with backward": measure(lambda op: op(needs_gradient).backward(grad)),
    }
    writing = interleave(
        {
            "returns": lambda: identity(x),
            "opsmith": lambda: identity_into(x, grad),
            "custom_op": lambda: custom_identity_into(x, grad),
        },
        rounds=rounds,
        calls=CALLS,
    )
    ratios = (
        ("opsmith", "by hand"),
        ("opsmith", "custom_op"),
        ("opsmith", "torch.neg"),
        ("opsmith, Python", "custom_op"),
    )
    times = Table(title="One call of the identity operator on 16 floats, µs, median")
    beside = Table(title="Beside each other")
    for one, columns in ((times, operators), (beside, map(" / ".join, ratios))):
        one.add_column("", no_wrap=True)
        for name in columns:
            one.add_column(name, justify="right")
    for row, timings in results.items():
        times.add_row(row, *(f"{timings.median(name) * 1e6:.2f}" for name in operators))
        beside.add_row(row, *(f"{timings.ratio(*pair):.2f}" for pair in ratios))
    console = Console(width=100)
    console.print(times, beside)
    console.print(
        "A call that writes into a tensor it is given: "
        + ", ".join(
            f"{name} {writing.median(name) * 1e6:.2f} µs" for name in ("opsmith", "custom_op")
        )
        + f"; {writing.ratio('opsmith', 'returns'):.2f} x one of opsmith's that returns, "
        f"{writing.ratio('opsmith', 'custom_op'):.2f} x custom_op."
    )
    console.print(f"{rounds} interleaved rounds of {CALLS} calls. {machine()}", soft_wrap=True)
    figures.keep(__file__, machine(), shown(results, writing))


def shown(results: Mapping[str, Timings], writing: Timings) -> dict[str, str]:
    """The figures of the pages."""
    plain, needless, recorded, backward, declared, declared_backward = results.values()
    both = declared_backward
    return {
        "call/opsmith": figures.seconds(plain.median("opsmith")),
        "call/hand": figures.seconds(plain.median("by hand")),
        "call/of-hand": f"{plain.ratio('opsmith', 'by hand'):.2f}",
        "call/custom-op": figures.seconds(plain.median("custom_op")),
        "call/of-custom-op": f"{plain.ratio('opsmith', 'custom_op'):.2f}",
        "rule/opsmith": figures.seconds(needless.median("opsmith")),
        "rule/hand": figures.seconds(needless.median("by hand")),
        "rule/of-hand": f"{needless.ratio('opsmith', 'by hand'):.2f}",
        "recorded/of-hand": f"{recorded.ratio('opsmith', 'by hand'):.2f}",
        "recorded/backward-of-hand": f"{backward.ratio('opsmith', 'by hand'):.2f}",
        "declared/opsmith": figures.seconds(declared.median("opsmith")),
        "declared/hand": figures.seconds(declared.median("by hand")),
        "declared/of-hand": f"{declared.ratio('opsmith', 'by hand'):.2f}",
        "declared/backward": figures.seconds(both.median("opsmith")),
        "declared/hand-backward": figures.seconds(both.median("by hand")),
        "declared/backward-of-hand": f"{both.ratio('opsmith', 'by hand'):.2f}",
        "declared/neg": figures.seconds(both.median("torch.neg")),
        "declared/of-neg": f"{both.ratio('opsmith', 'torch.neg'):.2f}",
        "writes/opsmith": figures.seconds(writing.median("opsmith")),
        "writes/returns": figures.seconds(writing.median("returns")),
        "writes/of-returns": f"{writing.ratio('opsmith', 'returns'):.2f}",
        "writes/custom-op": figures.seconds(writing.median("custom_op")),
        "writes/of-custom-op": f"{writing.ratio('opsmith', 'custom_op'):.2f}",
    }


if __name__ == "__main__":
    main()
