"""The gallery's operators against PyTorch, eager and compiled, and against the machine's limit.

At sizes that networks have, in float32 and bfloat16, forward, and with backward. Contestants
take turns. The limit is the time in which a copy moves as many bytes as the operator has to: each
argument read once, each result written once; its bandwidth is measured in the same rounds. That of
a product of matrices is the time that one of PyTorch's takes for as many multiply-adds.
Results come from memory that was used before, as in a program that runs for a while: pages that
the system has yet to give take several times as long as a kernel that fills them.

    python benchmarks/gallery_speed.py                 every operator
    python benchmarks/gallery_speed.py swiglu rope     these
    python benchmarks/gallery_speed.py --table rope    print the rows for an operator's README
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import figures
import torch
from bev_pool_v2 import fastest
from gallery_contests import CONTESTS, Call, Contest
from rich.console import Console
from rich.table import Table
from sampling import machine
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
#: Bytes of what is copied: beyond every cache.
COPIED = 1 << 28
#: Rows and columns of the matrices whose product is timed.
MULTIPLIED = 1024


def keep_memory() -> None:
    """Have the C library keep what is freed for what is allocated next, as other allocators do.

    By default it gives 32 MiB and more back to the system, and every call gets new pages.
    """
    libc = ctypes.CDLL(None)
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of <malloc.h>
    for option, value in ((trim_threshold, 2**31 - 1), (mmap_max, 0)):
        if not libc.mallopt(option, value):
            raise RuntimeError("mallopt refused: this needs glibc")


def passes(contest: Contest) -> Iterator[str]:
    yield "forward"
    if contest.leaves:
        yield "and backward"


def bound(
    call: Call, contest: Contest, arguments: tuple[Any, ...], way: str
) -> Callable[[], object]:
    """Return a call without arguments: forward, or with the gradients of the leaves too."""
    if way == "forward":

        def forward() -> object:
            with torch.no_grad():
                return call(*arguments)

        return forward
    given = list(arguments)
    for at in contest.leaves:
        given[at] = given[at].detach().requires_grad_()
    leaves = [given[at] for at in contest.leaves]
    grad = torch.randn_like(call(*given))

    def forward_and_backward() -> object:
        return torch.autograd.grad(call(*given), leaves, grad)

    return forward_and_backward


def moved(
    contest: Contest, arguments: tuple[Any, ...], result: Tensor | tuple[Tensor, ...], way: str
) -> int:
    """Count the bytes that cannot but be moved: rows of tables are counted as what is taken."""
    sizes = [one.nbytes for one in arguments if isinstance(one, Tensor)]
    written = sum(one.nbytes for one in (result if isinstance(result, tuple) else (result,)))
    total = sum(min(size, written * 2) for size in sizes) + written
    total += sum(sizes[at] for at in contest.written)
    if way == "forward":
        return total
    # The arguments again, the result's gradient, and the gradients of the leaves.
    return total + sum(sizes) + written + sum(sizes[at] for at in contest.leaves)


def measured(name: str, options: argparse.Namespace) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what each pass in each dtype takes, as figures."""
    contest = CONTESTS[name]
    ours = contest.ours or getattr(importlib.import_module(f"gallery.{name}.{name}"), name)
    source, target = torch.ones(COPIED // 4), torch.empty(COPIED // 4)
    for dtype_name, dtype in DTYPES.items():
        factors = torch.randn(2, MULTIPLIED, MULTIPLIED, dtype=dtype)
        arguments = contest.arguments(dtype)
        result = contest.theirs(*copy.deepcopy(arguments))
        calls = {
            "opsmith": ours,
            "eager": contest.theirs,
            "compiled": torch.compile(contest.compiled or contest.theirs),
        }
        for way in passes(contest):
            contestants = {who: bound(call, contest, arguments, way) for who, call in calls.items()}
            if contest.multiply_adds:
                contestants["limit"] = lambda factors=factors: torch.mm(*factors)
            else:
                contestants["limit"] = lambda: target.copy_(source)
            times = fastest(contestants, rounds=options.rounds, calls=options.calls)
            row = {"time": figures.seconds(times.median("opsmith"))}
            limit = times.ratio("limit", "opsmith")
            if contest.multiply_adds:
                # The gradients are two products more.
                products = contest.multiply_adds * (1 if way == "forward" else 3)
                row["limit"] = f"{100 * limit * products / MULTIPLIED**3:.0f} %"
            elif contest.passes_once:
                # A copy reads and writes.
                limit *= moved(contest, arguments, result, way) / (2 * COPIED)
                row["limit"] = f"{100 * limit:.0f} %"
            row |= {who: figures.digits(times.ratio(who, "opsmith")) for who in calls}
            del row["opsmith"]
            yield f"{dtype_name}, {way}", row


def names(name: str, label: str) -> dict[str, str]:
    """The names of the figures of a row."""
    place = f"{name}/{label.replace(', and ', '-').replace(', ', '-')}"
    contest = CONTESTS[name]
    if contest.passes_once:
        columns = ["time", "limit", "eager", "compiled"]
    else:
        columns = ["time", *(["limit"] if contest.multiply_adds else []), "eager"]
    return {column: f"{place}/{column}" for column in columns}


def rows(name: str) -> str:
    """The table of an operator's README, its figures yet to be filled in."""
    contest = CONTESTS[name]
    shown = {"limit": "of the limit", "compiled": "beside `torch.compile`", "eager": "beside eager"}
    columns = names(name, "")
    head = [contest.size, *(shown.get(column, column) for column in columns)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for dtype in DTYPES:
        for way in passes(contest):
            cells = [
                f"<!--={one}-->–<!--/-->{' ×' * (column in ('eager', 'compiled'))}"
                for column, one in names(name, f"{dtype}, {way}").items()
            ]
            lines.append(f"| {' | '.join([f'{dtype}, {way}', *cells])} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="OPERATOR")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    chosen = options.names or list(CONTESTS)
    if options.table:
        print("\n\n".join(rows(name) for name in chosen))
        return
    keep_memory()
    table = Table("operator", "pass", "time", "of the limit", "beside eager", "beside compiled")
    script = Path(__file__)
    kept = json.loads(figures.KEPT.read_text(encoding="utf-8")).get(script.name, {})
    found: dict[str, str] = dict(kept.get("figures", {}))
    for name in chosen:
        for label, row in measured(name, options):
            table.add_row(name, label, *row.values())
            found.update({one: row[column] for column, one in names(name, label).items()})
            figures.keep(__file__, machine(), found)
    console = Console(width=100)
    console.print(table)
    console.print("Beside eager and compiled: how many times as long they take.")
    console.print(machine())


if __name__ == "__main__":
    main()
