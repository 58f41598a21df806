"""Prove every operator of the gallery and of today's operators again, for the table in the docs.

    python tests/exact_table.py               compare with docs/explanation/exact.md
    python tests/exact_table.py --write       write the table there
    python tests/exact_table.py soft_dtw      the operators of files whose paths contain this

The rows `exact`, `exact-gradient` and those of emulated kernels run in this process, with as many
cases as `opsmith check` samples. It exits with 1 where the table says something else.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from opsmith.checks.cases.failure import Failure, Inapplicable
from opsmith.checks.cases.subject import Subject
from opsmith.checks.catalogue.ascendc import kernels_in_ascendc
from opsmith.checks.catalogue.cuda import kernels_in_cuda
from opsmith.checks.catalogue.exact import exact_formula, exact_gradient, kernels_in_cpp
from opsmith.checks.catalogue.exact_emulated import exact_ascendc_on_cpu, exact_cuda_on_cpu
from opsmith.checks.trial.trial import Trial
from opsmith.operators import Operator
from opsmith.sources.importing import import_all

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "exact.md"
ROWS: dict[str, tuple[Callable[[Operator], list[Subject]], Callable[[Trial], None]]] = {
    "exact": (kernels_in_cpp, exact_formula),
    "exact-gradient": (kernels_in_cpp, exact_gradient),
    "exact-cuda-on-cpu": (kernels_in_cuda, exact_cuda_on_cpu),
    "exact-ascendc-on-cpu": (kernels_in_ascendc, exact_ascendc_on_cpu),
}
_HEAD = f"| operator | {' | '.join(f'`{row}`' for row in ROWS)} |\n|{'---|' * (1 + len(ROWS))}\n"
#: What a cell says in place of a row's own words.
_SHORT = {
    "no operator is registered as the backward": "no declared backward",
    "": "no such kernel",
}


def files() -> list[Path]:
    """Return the declarations, in the order of the table."""
    gallery = [one / f"{one.name}.py" for one in sorted((ROOT / "gallery").iterdir())]
    return [
        *(path for path in gallery if path.is_file()),
        *sorted((ROOT / "examples" / "todays_operators").glob("*.py")),
    ]


def declared(path: Path) -> list[str]:
    """Return the names of the operators that a file declares, without importing it."""
    return re.findall(r"""@opsmith\.op\(\s*["']([\w:]+)["']""", path.read_text())


def table() -> dict[str, str]:
    """Return the lines of the table in the docs, by operator."""
    lines = PAGE.read_text().partition(_HEAD)[2].partition("\n\n")[0].splitlines()
    return {line.split("`")[1]: line for line in lines if "`" in line}


def line(operator: Operator) -> str:
    """Run the rows of an operator, and return its line of the table."""
    cells = [_cell(operator, row) for row in ROWS]
    return f"| `{operator.name}` | {' | '.join(cells)} |"


def _cell(operator: Operator, row: str) -> str:
    subjects, run = ROWS[row]
    said = ""
    for subject in subjects(operator)[:1]:
        trial = Trial(subject, row)
        try:
            run(trial)
        except Inapplicable as reason:
            said = str(reason)
        except Failure as failure:
            said = f"**fails**: {failure}"
        else:
            undecided = any("undecided" in note for note in trial.notes)
            return "equal, in part undecided" if undecided else "equal"
    said = re.sub(
        r"(?:/[\w.+-]+)*/([\w.+-]+)(?::\d+)+", r"`\1`", said.splitlines()[0] if said else ""
    )
    return _SHORT.get(said, said).replace("|", r"\|")


def main() -> int:
    """Print each line, and those that differ from the table's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of the paths of declarations")
    parser.add_argument("--write", action="store_true", help="write the lines into the docs")
    options = parser.parse_args()
    written, found = table(), {}
    for path in files():
        if options.names and not any(name in str(path) for name in options.names):
            continue
        # Kernels in Ascend C may be registered by a file of their own.
        elsewhere = path.with_name("in_ascendc.py")
        for operator in import_all([str(elsewhere if elsewhere.is_file() else path)]):
            found[operator.name] = line(operator)
            print(found[operator.name], flush=True)
    if options.write:
        order = [name for path in files() for name in declared(path)]
        lines = {**written, **found}
        text = PAGE.read_text()
        before, _, after = text.partition(_HEAD)
        rest = after.partition("\n\n")[2]
        kept = "\n".join(lines[name] for name in order if name in lines)
        PAGE.write_text(f"{before}{_HEAD}{kept}\n\n{rest}")
        return 0
    wrong = [name for name, text in found.items() if written.get(name) != text]
    for name in wrong:
        print(f"{PAGE.name} has: {written.get(name)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
