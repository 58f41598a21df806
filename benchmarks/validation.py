"""What it costs to compare the arguments of `bev_pool_v2` with its declaration.

The same empty kernel is called under two declarations: one with bev_pool_v2's shapes and dtypes,
one with plain tensors, of which nothing is checked. Calls go below autograd, the same for both.
A third declares indices, a million of which are looked at, beside `torch.aminmax` of them.

    python benchmarks/validation.py
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Annotated

import figures
import torch
from jaxtyping import Float, Int32, Int64
from sampling import interleave, machine
from torch import Tensor

import opsmith

Size = tuple[int, int, int]
KERNEL = """#include <opsmith/kernel.h>

#include "{name}.h"

{template}void {name}(const opsmith::Context&, const opsmith_bench::{name}_args{types}&) {{}}
OPSMITH_KERNEL(opsmith_bench, {name}, cpu{dtypes})
"""


# Declared to write, as an operator without results must.
@opsmith.op("opsmith_bench::checked", mutates_args=("depth",))
def checked(
    depth: Float[Tensor, "B N D H W"],
    feat: Float[Tensor, "B N H W C"],
    ranks_depth: Int32[Tensor, "P"],
    ranks_feat: Int32[Tensor, "P"],
    ranks_bev: Int32[Tensor, "P"],
    interval_starts: Int32[Tensor, "I"],
    interval_lengths: Int32[Tensor, "I"],
    bev_size: Size,
) -> None:
    """Do nothing."""


@opsmith.op("opsmith_bench::unchecked", mutates_args=("depth",))
def unchecked(
    depth: Tensor,
    feat: Tensor,
    ranks_depth: Tensor,
    ranks_feat: Tensor,
    ranks_bev: Tensor,
    interval_starts: Tensor,
    interval_lengths: Tensor,
    bev_size: Size,
) -> None:
    """Do nothing."""


@opsmith.op("opsmith_bench::indexed", mutates_args=("table",))
def indexed(
    table: Float[Tensor, "M"], index: Annotated[Int64[Tensor, "N"], opsmith.Index("M")]
) -> None:
    """Do nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    generic = {"template": "template <typename T>\n", "types": "<T>", "dtypes": ", float"}
    plain = {"template": "", "types": "", "dtypes": ""}
    with tempfile.TemporaryDirectory() as folder:
        for operator, how in ((checked, generic), (unchecked, plain), (indexed, generic)):
            name = operator.signature.name
            source = Path(folder, f"{name}.cpp")
            source.write_text(KERNEL.format(name=name, **how))
            operator.register_kernel("cpu", source=source)
            operator.build()
    points, intervals = (torch.zeros(size, dtype=torch.int32) for size in (5, 2))
    images = torch.zeros(1, 6, 3, 4, 5), torch.zeros(1, 6, 4, 5, 7)
    case = (*images, points, points, points, intervals, intervals, (1, 8, 8))
    with torch._C._AutoDispatchBelowADInplaceOrView():
        timings = interleave(
            {"checked": lambda: checked(*case), "unchecked": lambda: unchecked(*case)},
            rounds=rounds,
            calls=200,
        )
    index = torch.randint(0, 1000, (1_000_000,))
    table = torch.zeros(1000)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    looked = interleave(
        {"declared": lambda: indexed(table, index), "aminmax": lambda: torch.aminmax(index)},
        rounds=rounds,
        calls=2,
    )
    torch.set_num_threads(threads)
    spent = {name: timings.median(name) * 1e6 for name in ("checked", "unchecked")}
    print(
        f"A call of an empty kernel with the arguments of bev_pool_v2: {spent['checked']:.2f} µs; "
        f"with nothing to check: {spent['unchecked']:.2f} µs.\n"
        f"Shapes and dtypes: {spent['checked'] - spent['unchecked']:.2f} µs, asked ≤ 1 µs.\n"
        f"A million indices: {looked.median('declared') * 1e3:.2f} ms, "
        f"{looked.median('declared') / looked.median('aminmax'):.2f} x torch.aminmax of them.\n"
        f"{rounds} interleaved rounds. {machine()}"
    )
    extra = (spent["checked"] - spent["unchecked"]) / 1e6
    # A difference of two medians below this one is noise, of either sign.
    said = figures.seconds(extra) if extra >= 5e-8 else "under 0.05 µs"
    figures.keep(__file__, machine(), {"validation/shapes": said})


if __name__ == "__main__":
    main()
