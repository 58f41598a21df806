"""Measure whether the first failure that is shown names the kind of each planted fault.

python tests/faults/causes.py                        all, and the table
python tests/faults/causes.py --groups native cuda   some
python tests/faults/causes.py --write                writes docs/explanation/causes.md too

Every row that `opsmith check --first` runs is run on each wrong operator, runtimes included, and
the first failure of its report is what is told. Of CUDA's faults and of those below every tolerance
the rows that look for them are asked: `cuda-on-cpu` in the emulation, and `exact`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE / "in_cuda")]

from run import MODULES, pairs  # noqa: E402

from opsmith import checks  # noqa: E402

PAGE = ROOT / "docs" / "explanation" / "causes.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
#: Parts of the goal that the first failure of a fault names its kind.
GOAL = 0.95

RACES = ("OPS-SCHEDULES-SPLIT", "OPS-DETERMINISM-THREADS")
STATE = ("OPS-STATE-EARLIER", "OPS-STATE-THREADS", "OPS-RESULT-REUSED", "OPS-SIDE-EFFECTS")
#: The codes that name each kind of fault, by their beginnings.
KINDS: dict[str, tuple[str, ...]] = {
    "values": ("OPS-VALUE-",),
    "neighbours": ("OPS-VALUE-",),
    "selections": ("OPS-VALUE-", "OPS-RESULT-DECLARED"),
    "overflow": ("OPS-VALUE-RANGE", "OPS-VALUE-NAN", "OPS-VALUE-ACCUMULATION"),
    "sizes": ("OPS-SIZE-",),
    "lists": ("OPS-VALUE-WRONG", "OPS-RESULT-UNWRITTEN"),
    "layouts": ("OPS-LAYOUT-STRIDE",),
    "dtypes": ("OPS-RESULT-DECLARED",),
    "parameters": ("OPS-ARGUMENT-NUMBER",),
    "ways to call": ("OPS-STATE-MODE",),
    "state": STATE,
    "class state": ("OPS-VALUE-WRONG",),
    "mutation": ("OPS-MUTATION-", "OPS-RESULT-ALIAS"),
    "gradients": ("OPS-GRADIENT-",),
    "gradients of gradients": ("OPS-GRADIENT-SECOND", "OPS-GRADIENT-NESTED"),
    "parallel dimensions": ("OPS-PARALLEL-DIMS-CLAIM",),
    "fake kernels": ("OPS-FAKE-",),
    "sizes that tracing fixes": ("OPS-FAKE-FIXED", "OPS-COMPILE-AGAIN", "OPS-EXPORT-"),
    "sizes that export fixes": ("OPS-FAKE-",),
    "dispatch": ("OPS-DISPATCH-", "OPS-VALIDATION-", "OPS-VMAP-"),
    "exceptions and hangs": ("OPS-CALL-",),
    "narrow indices": ("OPS-SIZE-NARROW",),
    "memory": ("OPS-MEMORY-", "OPS-RESULT-UNWRITTEN", "OPS-MUTATION-"),
    "threads": RACES,
    "what a call leaves": ("OPS-SIDE-EFFECTS-", "OPS-MEMORY-LEAK"),
    "sharding": ("OPS-SHARDING-", "OPS-PARALLEL-DIMS-CLAIM"),
    "below every tolerance": ("OPS-EXACT-",),
}
#: Words of a message that name a kind, whatever the code.
WORDS = {"sizes": "\nsizes: ", "parameters": "\nsizes: ", "dtypes": ", it is right."}
#: The codes of faults that are of a narrower kind than their family, or of another one.
FAULTS: dict[str, tuple[str, ...]] = {
    # Values: the plainest is wrong everywhere; most have a condition, which the code has to name.
    "softmax without its maximum": ("OPS-VALUE-RANGE",),
    "sigmoid by a quotient": ("OPS-VALUE-RANGE",),
    "relu that swallows NaN": ("OPS-VALUE-NAN",),
    "maximum that ignores NaN": ("OPS-VALUE-NAN",),
    "norm that overflows": ("OPS-VALUE-RANGE",),
    "denormal numbers flushed to zero": ("OPS-VALUE-RANGE",),
    "the sign of zero lost": ("OPS-VALUE-ZERO",),
    "a sum in the narrow dtype": ("OPS-VALUE-ACCUMULATION",),
    "a sum of magnitudes in bfloat16, over one of six dimensions": ("OPS-VALUE-ACCUMULATION",),
    "a window of more than eight cut off": ("OPS-ARGUMENT-NUMBER",),
    "a sum in 32 bits": ("OPS-VALUE-RANGE",),
    "a sort that swaps ties": ("OPS-VALUE-ORDER",),
    "limits that are constants": ("OPS-ARGUMENT-NUMBER",),
    "variance divided by one less": ("OPS-VALUE-WRONG",),
    "a mask by multiplication": ("OPS-VALUE-NAN",),
    "a check for infinity that finds none": ("OPS-VALUE-RANGE", "OPS-VALUE-NAN"),
    "a compensated sum that makes NaN of infinity": ("OPS-VALUE-NAN",),
    "a mask that hides infinity, and what counts left out with it": ("OPS-VALUE-NAN",),
    "values between 600 and 1e15": ("OPS-VALUE-RANGE",),
    "values between 1e-17 and 1e-7": ("OPS-VALUE-RANGE",),
    "every value between 600 and 1e15": ("OPS-VALUE-RANGE",),
    "integers between 100 and 2**40": ("OPS-VALUE-RANGE",),
    "one of equally near neighbours three times": ("OPS-VALUE-ORDER",),
    "tokens of experts that were not chosen": ("OPS-VALUE-ORDER",),
    "values within rounding out of order": ("OPS-RESULT-DECLARED",),
    # Its formula cancels near zero, which comes before it overflows.
    "a logarithm of a sum without its maximum": ("OPS-VALUE-WRONG", "OPS-VALUE-RANGE"),
    # A fault that is listed among sizes, and wrong in each.
    "the first column left out": ("OPS-VALUE-WRONG", "OPS-SIZE-"),
    "negative dimensions ignored": ("OPS-ARGUMENT-NUMBER",),
    "no more than three dimensions": ("OPS-CALL-RAISED", "OPS-SIZE-RANK"),
    "no bfloat16, as NumPy has none": ("OPS-CALL-RAISED",),
    "rows of double longer than 130": ("OPS-SIZE-",),
    "long rows of half that hold different values": ("OPS-SIZE-", "OPS-VALUE-ACCUMULATION"),
    "a tenth of a long bfloat16 row": ("OPS-SIZE-", "OPS-VALUE-ACCUMULATION"),
    "the same tensor twice": ("OPS-ARGUMENT-SAME",),
    # Lists.
    "no more than four of a list written": ("OPS-SIZE-LIST", "OPS-ARGUMENT-NUMBER"),
    "a list that is read taken as scratch": ("OPS-MUTATION-",),
    "an argument returned for an empty list": ("OPS-RESULT-ALIAS",),
    "an error without an optional tensor": ("OPS-CALL-RAISED",),
    "an out not written to its end": ("OPS-SIZE-", "OPS-RESULT-UNWRITTEN"),
    # State.
    "noise from the global generator": ("OPS-SIDE-EFFECTS-RANDOM", "OPS-DETERMINISM-REPEAT"),
    "last bits that differ from call to call": ("OPS-DETERMINISM-REPEAT",),
    "wrong with one thread": ("OPS-DETERMINISM-THREADS",),
    "a field written for large batches alone": ("OPS-SIZE-",),
    "state in the kernel and not in the object": ("OPS-STATE-EARLIER",),
    "a field written that nobody named": ("OPS-MUTATION-",),
    "the table of the first object": ("OPS-STATE-EARLIER",),
    "a table prepared once for an address": ("OPS-STATE-EARLIER",),
    "a fake kernel with the size of its first call": ("OPS-STATE-EARLIER", "OPS-FAKE-"),
    # What is written, and wrong, in arguments that may be written.
    "a declared result not written": ("OPS-RESULT-UNWRITTEN", "OPS-SIZE-"),
    "written before it is read": ("OPS-VALUE-WRONG",),
    # Memory; some kernels touch none but their own.
    "tail of vectors": ("OPS-SIZE-",),
    "aligned vectors": ("OPS-CALL-CRASH", "OPS-MEMORY-"),
    "result half written": ("OPS-MEMORY-", "OPS-RESULT-UNWRITTEN", "OPS-VALUE-ZERO"),
    "division by zero": ("OPS-CALL-CRASH",),
    "strides ignored": ("OPS-LAYOUT-STRIDE",),
    "flat reader": ("OPS-LAYOUT-STRIDE", "OPS-MEMORY-", "OPS-CALL-CRASH"),  # it has two faults
    "index in 8 bits": ("OPS-MEMORY-", "OPS-SIZE-"),
    "count in 8 bits": ("OPS-SIZE-",),
    "static scratch": ("OPS-STATE-THREADS",),
    "last row": ("OPS-VALUE-WRONG",),  # one thread leaves its last row out, too
    "late write": (*RACES, "OPS-STATE-", "OPS-SIDE-EFFECTS-"),
}


@dataclass(frozen=True)
class Told:
    """What is told first of a fault.

    Attributes:
        kind: the kind that is planted.
        name: what is wrong.
        code: the code of the first failure; empty if none is found.
        check: the row.
        message: its message.
    """

    kind: str
    name: str
    code: str
    check: str = ""
    message: str = ""

    @property
    def names_its_kind(self) -> bool:
        """Whether the code is of the planted kind."""
        if self.kind in WORDS and WORDS[self.kind] in self.message:
            return True
        return self.code.startswith(FAULTS.get(self.name) or KINDS[self.kind])


def of_module(module: str) -> list[Told]:
    """Return what is told of the faults of a module."""
    several = [p for p in pairs((module,)) if p.wrong.reference.__module__ == f"faults_{module}"]
    limit = 5.0 if module == "endings" else 60.0  # of those that hang
    report = checks.run([p.wrong for p in several], first=True, examples=20, time_limit=limit)
    first: dict[str, checks.Row] = {}
    for row in report.failures:
        first.setdefault(row.operator, row)
    return [
        Told(p.kind, p.name, row.code, row.check, row.message)
        if (row := first.get(p.wrong.name))
        else Told(p.kind, p.name, "")
        for p in several
    ]


def of_sharding() -> list[Told]:
    """Return what is told of wrong rules of sharding."""
    sys.path.append(str(ROOT / "tests" / "checks" / "catalogue"))
    found = []
    for name, declare in importlib.import_module("test_sharding_row").FAULTS.items():
        report = checks.run(declare(), first=True, isolate=False, examples=48)
        row = report.failures[0] if report.failures else checks.Row("", "", "", "passed")
        found.append(Told("sharding", name, row.code, row.check, row.message))
    return found


def of_exact() -> list[Told]:
    """Return what is told of formulas that are wrong by less than every tolerance."""
    sys.path.append(str(ROOT / "tests" / "checks" / "numerics" / "exact"))
    module = importlib.import_module("formulas")
    from opsmith.checks.cases.case import Case
    from opsmith.checks.cases.failure import Failure
    from opsmith.checks.catalogue.exact import compiled, prepare
    from opsmith.checks.trial.trial import Trial

    module.formulas.build("cpu")
    ready = prepare(Trial(compiled(module.formulas)[0], "exact"))
    found = []
    for which, (name, *_) in enumerate(module.FORMULAS):
        for how in module.FAULTS:
            code = message = ""
            try:
                ready.check(Case(module.formulas.signature, module.arguments(which, how, 0)))
            except Failure as failure:
                code, message = failure.code, str(failure)
            found.append(Told("below every tolerance", f"{name} {how}", code, "exact", message))
    return found


def of_cuda() -> list[Told]:
    """Return what is told of CUDA kernels, whose tests state the code and the words of each."""
    planted = importlib.import_module("cuda_faults")
    found = []
    for group in (*planted.GROUPS, planted.IN_TORCH):
        for name, (_, _, code, *_) in group.faults.items():
            got, message = group.called(name, True, planted.phase_of(1))
            told = f"OPS-{got}" if got else _of_results(message)
            kind = f"CUDA: {code.rpartition('-')[2].lower() or 'results'}"
            KINDS[kind] = (f"OPS-{code}",) if code else ("OPS-MEMORY-", "OPS-VALUE-")
            found.append(Told(kind, name.replace("_", " "), told, "cuda-on-cpu", message))
    return found


def _of_results(message: str) -> str:
    """Return the code that the row `cuda-on-cpu` gives results that are wrong."""
    return "OPS-MEMORY-UNINITIALIZED" if message else "OPS-VALUE-WRONG"


GROUPS: dict[str, Callable[[], list[Told]]] = {
    **{module: lambda module=module: of_module(module) for module in MODULES},  # type: ignore[misc]
    "sharding": of_sharding,
    "exact": of_exact,
    "cuda": of_cuda,
}


def share(several: Iterable[Told]) -> float:
    """Return the part of the faults whose first failure names their kind."""
    named = [one.names_its_kind for one in several]
    return sum(named) / len(named)


def table(several: list[Told]) -> str:
    """Return the table of planted kinds by told codes, and the faults beside its diagonal."""
    counts: dict[str, Counter[str]] = {}
    for one in several:
        counts.setdefault(one.kind, Counter())[one.code or "nothing"] += 1
    lines = ["| planted | faults | told, and how often | named |", "|---|---:|---|---:|"]
    for kind, told in counts.items():
        own = [one for one in several if one.kind == kind]
        codes = ", ".join(
            f"{code.removeprefix('OPS-')} {count}" for code, count in told.most_common()
        )
        named = sum(one.names_its_kind for one in own)
        lines.append(f"| {kind} | {len(own)} | {codes} | {named} |")
    named = sum(one.names_its_kind for one in several)
    lines.append(f"| **all** | **{len(several)}** | | **{named}** |")
    beside = [one for one in several if not one.names_its_kind]
    text = f"{named} of {len(several)} first failures name the kind: {share(several):.1%}."
    if beside:
        text += " The others:"
    lines += ["", text, *([""] if beside else [])]
    lines += [f"- {one.kind}, {one.name}: {one.code or 'nothing'}" for one in beside]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table; 1 where too few first failures name the kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    several: list[Told] = []
    for name in options.groups:
        for one in GROUPS[name]():
            mark = " " if one.names_its_kind else "!"
            print(f"{mark} {one.kind:24} {one.name:60} {one.check:14} {one.code}", flush=True)
            several.append(one)
    text = table(several)
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    return 0 if share(several) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
