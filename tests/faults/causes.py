"""Measure whether the first failure that is shown names the kind of each planted fault.

python tests/faults/causes.py --out told.jsonl     what is told of every fault
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "in_cuda")]

from run import MODULES, pairs  # noqa: E402

from opsmith import checks  # noqa: E402


def told(module: str, only: str = "") -> list[dict]:
    before = len(pairs(()))
    several = [p for p in pairs((module,))[before:] if only in (p.name, "")]
    report = checks.run([p.wrong for p in several], first=True, examples=20, time_limit=5.0)
    found = {}
    for row in report.failures:
        found.setdefault(row.operator, row)
    return [
        {
            "name": p.name,
            "kind": p.kind,
            "row": p.row,
            "check": getattr(found.get(p.wrong.name), "check", ""),
            "code": getattr(found.get(p.wrong.name), "code", ""),
            "message": getattr(found.get(p.wrong.name), "message", ""),
        }
        for p in several
    ]


if __name__ == "__main__":
    import time

    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--modules", nargs="*", default=MODULES)
    options = parser.parse_args()
    for module in options.modules:
        start = time.monotonic()
        try:
            lines = told(module)
        except Exception as error:
            print(module, repr(error), flush=True)
            continue
        with open(options.out, "a") as out:
            for line in lines:
                out.write(json.dumps(line) + "\n")
        print(module, len(lines), round(time.monotonic() - start), flush=True)
        for one in lines:
            print(
                f"   {one['kind']:20} {one['name']:55} {one['check']:14} {one['code']}", flush=True
            )
