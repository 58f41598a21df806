"""Measure whether the first failure that is shown names the kind of each planted fault.

python tests/faults/causes.py                        what has not been told yet, and the table
python tests/faults/causes.py --groups native cuda   some of the groups
python tests/faults/causes.py --only window          faults whose name or kind has this in it
python tests/faults/causes.py --share 2/3            the second of three parts
python tests/faults/causes.py --again                what has been told, too
python tests/faults/causes.py --write                writes docs/explanation/causes.md too

What is told of each fault is kept in told/told.jsonl as soon as it is known, so that a run that was
stopped goes on where it was.

Every row that `opsmith check --first` runs is run on each wrong operator, runtimes included, and
the first failure of its report is what is told. The wrong twins of CUDA's kernels are called as by
`opsmith check --case`, with the arguments that their tests state. Of faults that are below every
tolerance the row `exact` alone is asked, which is the only one that can find them.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CLAIMS = ROOT / "tests" / "checks" / "catalogue" / "claims"
FORMULAS = ROOT / "tests" / "checks" / "numerics" / "exact"
sys.path[:0] = [str(HERE), str(HERE / "in_cuda"), str(HERE / "told")]
sys.path += [str(CLAIMS), str(FORMULAS), str(ROOT / "tests" / "emulators" / "cuda")]

from kinds import Told, kind_of_cuda  # noqa: E402
from run import MODULES, pairs  # noqa: E402

from opsmith import Operator, checks  # noqa: E402

PAGE = ROOT / "docs" / "explanation" / "causes.md"
KEPT = HERE / "told" / "told.jsonl"
BEGIN, END = "<!-- measured -->\n", "<!-- end -->\n"
#: Parts of the goal that the first failure of a fault names its kind.
GOAL = 0.95
SHARDING, EXACT, CUDA = "sharding", "exact", "cuda"
GROUPS = (*MODULES, SHARDING, EXACT, CUDA)
#: Beginnings of the lines of a message that are kept beside its first.
_TOLD = ("sizes: ", "In ", "called plainly")


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        group: the module or the family of modules that plants it.
        kind: the kind that is planted.
        name: what is wrong.
        ask: returns the row, the code and the message of what is told first; all empty if nothing
            is.
    """

    group: str
    kind: str
    name: str
    ask: Callable[[], tuple[str, str, str]]

    @property
    def key(self) -> tuple[str, str]:
        """What tells faults apart."""
        return self.group, self.name

    def told(self) -> Told:
        """Ask, and return what is told."""
        began = time.monotonic()
        check, code, message = self.ask()
        first, *others = message.splitlines() or [""]
        said = "\n".join([first, *(line for line in others if line.startswith(_TOLD))])
        seconds = round(time.monotonic() - began)
        return Told(self.group, self.kind, self.name, code, check, said, seconds)


def faults(groups: Iterable[str] = GROUPS) -> list[Fault]:
    """Return the planted faults of some groups, in their order."""
    return [fault for group in groups for fault in _faults_of(group)]


def _faults_of(group: str) -> Iterator[Fault]:
    if group == SHARDING:
        return _of_sharding()
    if group == EXACT:
        return _of_exact()
    return _of_cuda() if group == CUDA else _of_module(group)


def _of_module(module: str) -> Iterator[Fault]:
    limit = 5.0 if module == "endings" else 60.0  # of those that hang
    for pair in pairs((module,)):
        if pair.wrong.reference.__module__ == f"faults_{module}":
            ask = functools.partial(_checked, pair.wrong, examples=20, time_limit=limit)
            yield Fault(module, pair.kind, pair.name, ask)


def _checked(operator: Operator, **settings: object) -> tuple[str, str, str]:
    """Run `opsmith check --first` on an operator; return what its first failure says."""
    report = checks.run(operator, first=True, **settings)  # type: ignore[arg-type]
    if not report.failures:
        return "", "", ""
    row = report.failures[0]
    return row.check, row.code, row.message


def _of_sharding() -> Iterator[Fault]:
    for name, declare in importlib.import_module("test_sharding_row").FAULTS.items():

        def ask(declare: Callable[[], Operator] = declare) -> tuple[str, str, str]:
            return _checked(declare(), isolate=False, examples=48)

        yield Fault(SHARDING, "sharding", name, ask)


def _of_exact() -> Iterator[Fault]:
    module = importlib.import_module("formulas")
    for which, (name, *_) in enumerate(module.FORMULAS):
        for how in module.FAULTS:
            ask = functools.partial(_asked_exactly, which, how)
            yield Fault(EXACT, "below every tolerance", f"{name} {how}", ask)


def _asked_exactly(which: int, how: int) -> tuple[str, str, str]:
    from opsmith.checks.cases.case import Case
    from opsmith.checks.cases.failure import Failure

    module = importlib.import_module("formulas")
    arguments = module.arguments(which, how, 0)
    try:
        _exact_row().check(Case(module.formulas.signature, arguments))
    except Failure as failure:
        return "exact", failure.code, str(failure)
    return "", "", ""


@functools.cache
def _exact_row() -> object:
    """Build the formulas; return what compares them exactly."""
    from opsmith.checks.catalogue.exact import compiled, prepare
    from opsmith.checks.trial.trial import Trial

    module = importlib.import_module("formulas")
    module.formulas.build("cpu")
    return prepare(Trial(compiled(module.formulas)[0], "exact"))


def _of_cuda() -> Iterator[Fault]:
    planted = importlib.import_module("cuda_faults")
    for group in (*planted.GROUPS, planted.IN_TORCH):
        for name, (_, _, code, words, *_) in group.faults.items():
            shown = f"{group.signature.name}: {name.replace('_', ' ')}"
            ask = functools.partial(_asked_of_cuda, group.signature.name, name)
            yield Fault(CUDA, kind_of_cuda(code, words), shown, ask)


def _asked_of_cuda(group: str, name: str) -> tuple[str, str, str]:
    operator, arguments = importlib.import_module("wrong_in_cuda").wrong(group, name)
    return _checked(operator, cases=[arguments])


# --- what was told -------------------------------------------------------------------------------


def kept(path: Path = KEPT) -> list[Told]:
    """Return what is kept of earlier runs."""
    if not path.is_file():
        return []
    return [Told(**json.loads(line)) for line in path.read_text().splitlines()]


def keep(several: Iterable[Told], path: Path = KEPT) -> None:
    """Keep what was told, a line for each fault, in the order of the groups."""
    ordered = sorted(several, key=lambda one: (GROUPS.index(one.group), one.kind, one.name))
    whole = path.with_suffix(".new")
    whole.write_text("".join(json.dumps(asdict(one)) + "\n" for one in ordered))
    whole.replace(path)


def run(several: list[Fault], path: Path = KEPT, *, again: bool = False) -> list[Told]:
    """Ask what is told of each fault, and keep it at once; return what is told of them.

    Args:
        several: the faults.
        path: where what was told is kept.
        again: whether to ask of those whose answer is kept, too.
    """
    found = []
    for fault in several:
        known = {(one.group, one.name): one for one in kept(path)}
        one = known.get(fault.key)
        if one is None or again:
            one = fault.told()
            mark = " " if one.names_its_kind else "!"
            said = f"{one.kind:24} {one.name:60} {one.check:14} {one.code} {one.seconds} s"
            print(mark, said, flush=True)
            known = {(one.group, one.name): one for one in kept(path)} | {fault.key: one}
            keep(known.values(), path)
        found.append(replace(one, kind=fault.kind))  # as the map says today
    return found


def share(several: Iterable[Told]) -> float:
    """Return the part of the faults whose first failure names their kind."""
    named = [one.names_its_kind for one in several]
    return sum(named) / len(named)


def table(several: list[Told], planted: int = 0) -> str:
    """Return the table of planted kinds by told codes, and the faults beside its diagonal.

    Args:
        several: what has been told.
        planted: number of faults that are planted, of which some may not have been told yet.
    """
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
    if planted > len(several):
        left = planted - len(several)
        lines += ["", f"{left} of the {planted} planted faults have not been asked about yet."]
    return "\n".join(lines) + "\n"


def on_the_page() -> str:
    """Return the table that the page has."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def _chosen(groups: list[str], only: str, part: str) -> list[Fault]:
    number, parts = map(int, part.split("/"))
    several = [one for one in faults(groups) if only in one.name or only in one.kind]
    return several[number - 1 :: parts]


def main() -> int:
    """Print the table; 1 where too few first failures name the kind, or some have not been told."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--only", default="", help="a part of a name or of a kind")
    parser.add_argument("--share", default="1/1", help="2/3 runs the second of three parts")
    parser.add_argument("--again", action="store_true", help="ask again what is kept, too")
    parser.add_argument("--write", action="store_true", help="write the table into the page")
    options = parser.parse_args()
    from opsmith.checks.workers.worker_pool import keep_workers

    keep_workers()
    run(_chosen(options.groups, options.only, options.share), again=options.again)
    planted = {one.key: one for one in faults()}
    known = [one for one in kept() if (one.group, one.name) in planted]
    keep(replace(one, kind=planted[one.group, one.name].kind) for one in known)
    several = kept()
    text = table(several, len(planted))
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    return 0 if share(several) >= GOAL and len(several) == len(planted) else 1


if __name__ == "__main__":
    sys.exit(main())
