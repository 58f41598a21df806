"""Write the table of the corpus into docs/explanation/corpus.md from the results."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import corpus_results
import corpus_suite
from corpus_results import Result

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "corpus.md"
#: Flags that are not opsmith's: ``operator row: whose, and a line that repeats it``.
EXCUSED = Path(__file__).parent / "excused.txt"
#: The generated parts of the page begin and end with these.
_PART = "<!-- {}: written by make corpus -->"
_Z = 1.96


@dataclass(frozen=True)
class Tally:
    """What became of one row over the corpus.

    Attributes:
        row: the row's name.
        operators: the number of operators of which it ran to its end.
        ran: operator-seeds in which it ran to its end.
        flags: those in which it failed, and nothing excuses that.
        excused: those in which it failed, through PyTorch or a runtime.
        cut: those in which it ran out of time.
        absent: those to which it does not apply.
    """

    row: str
    operators: int
    ran: int
    flags: int
    excused: int
    cut: int
    absent: int

    @property
    def tried(self) -> int:
        """Return the number of operator-seeds to which the row applies."""
        return self.ran + self.cut


def excuses(path: Path = EXCUSED) -> dict[tuple[str, str], str]:
    """Return why a row's flag of an operator is not opsmith's, by operator and row."""
    found = {}
    for line in path.read_text().splitlines() if path.is_file() else ():
        if line and not line.startswith("#"):
            key, _, reason = line.partition(": ")
            operator, row = key.split()
            found[operator, row] = reason
    return found


def flags(every: Iterable[Result], excused: dict[tuple[str, str], str]) -> Iterator[str]:
    """Yield each flag that nothing excuses."""
    for one in every:
        for row, status in one.rows.items():
            if status == "failed" and (one.operator, row) not in excused:
                yield f"{one.operator}, seed {one.seed}: {row} ({one.codes.get(row, '')})"


def tallies(
    every: Sequence[Result], excused: dict[tuple[str, str], str], order: Sequence[str]
) -> list[Tally]:
    """Return what became of each row, in this order, and of all rows together at the end."""
    counts: dict[str, Counter[str]] = {row: Counter() for row in order}
    operators: dict[str, set[str]] = {row: set() for row in order}
    for one in every:
        for row, status in one.rows.items():
            pardoned = status == "failed" and (one.operator, row) in excused
            counts[row]["excused" if pardoned else status] += 1
            if status in ("passed", "failed"):
                operators[row].add(one.operator)
    found = [_tally(row, operators[row], count) for row, count in counts.items() if count]
    whole: Counter[str] = Counter()
    for count in counts.values():
        whole.update(count)
    return [*found, _tally("all", set().union(*operators.values()), whole)]


def _tally(row: str, operators: set[str], count: Counter[str]) -> Tally:
    ran = count["passed"] + count["failed"] + count["excused"]
    return Tally(
        row,
        len(operators),
        ran,
        count["failed"],
        count["excused"],
        count["cut short"],
        count["not applicable"] + count["not run"],
    )


def interval(flagged: int, ran: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a rate."""
    if not ran:
        return 0.0, 1.0
    rate, z2 = flagged / ran, _Z * _Z
    middle = rate + z2 / (2 * ran)
    half = _Z * math.sqrt(rate * (1 - rate) / ran + z2 / (4 * ran * ran))
    low, high = (middle - half) / (1 + z2 / ran), (middle + half) / (1 + z2 / ran)
    return (0.0 if not flagged else max(0.0, low)), min(1.0, high)


def table(found: Sequence[Tally]) -> str:
    """Return the table of rows."""
    lines = [
        "| row | operators | operator-seeds | flags | rate, 95 % interval |"
        " PyTorch's or a runtime's | cut short | not applicable |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        low, high = interval(one.flags, one.ran)
        share = 100 * one.flags / max(one.ran, 1)
        rate = f"{share:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
        cut = f"{one.cut} ({100 * one.cut / one.tried:.1f} %)" if one.cut else "0"
        name = f"`{one.row}`" if one.row != "all" else "all rows"
        lines.append(
            f"| {name} | {one.operators} | {one.ran} | {one.flags} | {rate if one.ran else '–'} | "
            f"{one.excused} | {cut} | {one.absent} |"
        )
    return "\n".join(lines)


def kinds(every: Sequence[Result], excused: dict[tuple[str, str], str]) -> str:
    """Return the table of kinds of operators."""
    lines = [
        "| operators | how many | operator-seeds | flagged | rate, 95 % interval | cases | load |",
        "|---|---|---|---|---|---|---|",
    ]
    words = {**WORDS, "": "all"}
    for kind, name in words.items():
        own = [one for one in every if one.operator.startswith(f"{kind}/") or not kind]
        if not own:
            continue
        wrong = {flag.partition(": ")[0] for flag in flags(own, excused)}
        seeds = len({(one.operator, one.seed) for one in own})
        low, high = (100 * end for end in interval(len(wrong), seeds))
        loads = sorted(one.load for one in own)
        drawn = ", ".join(map(str, sorted({one.examples for one in own})))
        lines.append(
            f"| {name} | {len({one.operator for one in own})} | {seeds} | {len(wrong)} | "
            f"{100 * len(wrong) / seeds:.1f} % ({low:.1f} to {high:.1f}) | {drawn} | "
            f"{loads[len(loads) // 2]} ({loads[0]} to {loads[-1]}) |"
        )
    return "\n".join(lines)


def versions(every: Sequence[Result]) -> str:
    """Return how many operator-seeds ran under which version of the checks, the last one first."""
    found: dict[str, list[Result]] = {}
    for one in sorted(every, key=lambda one: one.day, reverse=True):
        found.setdefault(one.checks, []).append(one)
    return "Versions of the checks: " + ", ".join(
        f"{f'`{name}`' if name else 'not kept'} ({own[0].day}) for {len(own)}"
        for name, own in sorted(found.items(), key=lambda pair: -len(pair[1]))
    )


#: What the page calls each kind of operator.
WORDS = {
    "adopted": "PyTorch's, as `opsmith adopt` drafts them",
    "kernel": "PyTorch's as kernels, with its decomposition or itself as the reference",
    "numpy": "PyTorch's as kernels, with its test suite's NumPy or SciPy as the reference",
    "jax": "PyTorch's as kernels, with JAX's formula as the reference",
    "onnx": "PyTorch's as kernels, with ONNX's backend tests as cases and its evaluator",
    "library": 'PyTorch\'s as C++ behind `api="torch"`, with its decomposition or itself',
    "formula": "C++'s standard functions in a loop, with PyTorch's operator as the reference",
    "gallery": "the gallery",
    "today": "[today's operators](../../examples/todays_operators/README.md)",
    "twin": "right twins of planted faults",
    "sound": "strange right operators of the tests",
}


def write(path: Path = PAGE, kept: Path | None = None) -> None:
    """Write the generated parts of the page from the results in a file."""
    from opsmith.checks import all_checks

    # Without rows is what a declaration of opsmith cannot be (a tensor by keyword alone).
    every, excused = [one for one in corpus_results.read(kept) if one.rows], excuses()
    order = [one.name for one in all_checks()]
    parts = {
        "kinds": kinds(every, excused),
        "versions": versions(every),
        "rows": table(tallies(every, excused, order)),
        "flags": _listed(flags(every, excused), "No flag is unexplained."),
        "drafts": drafts(),
        "excused": _listed(
            (f"`{op}`, `{row}`: {why}" for (op, row), why in sorted(excused.items())), "None."
        ),
    }
    text = path.read_text()
    for name, part in parts.items():
        mark = re.escape(_PART.format(name))
        made = f"{_PART.format(name)}\n{part}\n{_PART.format(name)}"
        text, count = re.subn(f"{mark}.*?{mark}", lambda _, made=made: made, text, flags=re.S)
        if count != 1:
            raise SystemExit(f"{path} has no place for {name}")
    path.write_text(text)


def drafts() -> str:
    """Return the table of what `opsmith adopt` could not draft, by reason."""
    every = corpus_suite.index().values()
    asked = [one for one in every if one.name]
    drafted = [one for one in asked if one.drafted]
    lines = [
        f"Of {len(asked)} operators that the test suite calls by their own arguments, "
        f"{len(drafted)} are drafted, {sum(bool(one.example) for one in drafted)} of them from one "
        "of the suite's samples given as `--example`. The others:",
        "",
        "| operators | why |",
        "|---|---|",
    ]
    why: dict[str, list[str]] = {}
    for one in asked:
        if not one.drafted:
            reason = one.refused[-1].partition("\n")[0].partition(one.name + ": ")[2]
            why.setdefault(reason or one.refused[-1], []).append(one.name.removeprefix("aten::"))
    for reason, names in sorted(why.items(), key=lambda pair: -len(pair[1])):
        lines.append(f"| {', '.join(f'`{name}`' for name in sorted(names))} | {reason} |")
    return "\n".join(lines)


def _listed(lines: Iterable[str], none: str) -> str:
    return "\n".join(f"- {line}" for line in lines) or none
