"""How fast `opsmith::Vec` is beside the vector extensions of the compiler that it is made of.

Two inner loops are written with both: the sum of products of two rows, and a tile of a product of
matrices that stays in registers.

    python benchmarks/vectors.py
"""

from __future__ import annotations

import argparse

import torch
from jaxtyping import Float32
from sampling import interleave, machine
from torch import Tensor

import opsmith


@opsmith.op("opsmith_bench::loops")
def loops(
    x: Float32[Tensor, "M K"], y: Float32[Tensor, "K N"], products: bool, by_hand: bool
) -> Float32[Tensor, "M N"]:
    """Multiply two matrices; or, in the first M numbers, each row of `x` with the first."""
    if products:
        return x @ y
    return torch.cat([x @ x[0], x.new_zeros(x.shape[0] * (y.shape[1] - 1))]).view(-1, y.shape[1])


loops.register_kernel("cpu", source="vectors.cpp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    # Take so many rows that a call itself costs little; K is no multiple of a vector.
    x, y = torch.randn(256, 167), torch.randn(167, 32)
    for name, products in (("Sums of products", False), ("A product of matrices", True)):

        def call(by_hand: bool, products: bool = products) -> Tensor:
            return loops(x, y, products, by_hand)

        for by_hand in (False, True):
            right = loops.reference(x, y, products, by_hand)
            found = call(by_hand)
            count = right.numel() if products else len(x)
            torch.testing.assert_close(found.flatten()[:count], right.flatten()[:count])
        timings = interleave(
            {"opsmith::Vec": lambda: call(False), "by hand": lambda: call(True)},
            rounds=rounds,
            calls=20,
        )
        print(
            f"{name}: {timings.median('opsmith::Vec') * 1e6:.2f} µs with opsmith::Vec, "
            f"{timings.ratio('opsmith::Vec', 'by hand'):.3f} x as long as by hand."
        )
    print(f"{rounds} interleaved rounds. {machine()}")


if __name__ == "__main__":
    main()
