"""Measure the cost of `opsmith.monitor`: the identity on 16 floats, with and without.

`sampled never` is what every call pays; `one in 1000` adds the copies of sampled calls and whatever
the comparisons in the background take from the caller.

    python benchmarks/monitor.py
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from call_overhead import identity
from rich.console import Console
from rich.table import Table
from sampling import interleave, machine

import opsmith

FRACTIONS = {"sampled never": 1e-12, "one in 1000": 1e-3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--calls", type=int, default=500)
    options = parser.parse_args()
    x = torch.randn(16)
    identity(x)
    unmonitored = type(identity)
    table = Table(box=None)
    for heading in ("", "unmonitored", "monitored", "more", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, fraction in FRACTIONS.items():
        with opsmith.monitor(identity, fraction) as monitor:
            contestants = {
                "unmonitored": partial(unmonitored.__call__, identity, x),
                "monitored": partial(type(identity).__call__, identity, x),
            }
            found = interleave(contestants, rounds=options.rounds, calls=options.calls)
        before, after = found.median("unmonitored"), found.median("monitored")
        table.add_row(
            name,
            f"{1e6 * before:.2f} µs",
            f"{1e6 * after:.2f} µs",
            f"{1e6 * (after - before):.2f} µs",
            f"{found.ratio('monitored', 'unmonitored'):.2f}",
        )
        print(f"{name}: {monitor.counts}")
    Console().print(table)
    print(machine())


if __name__ == "__main__":
    main()
