"""The tables of docs/explanation/why.md, from the lines in `kept/`.

A line has what each tool says of a faulty kernel (``wrong``) and of its right twin (``right``):
``flags``, ``passes``, ``refuses``, ``undecided`` or ``not tried``, the words, and the seconds.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "kept"
FIGURES = ROOT / "benchmarks" / "figures.json"
PAGE = ROOT / "docs" / "explanation" / "why.md"
#: A table of the page begins and ends with these.
BEGINS, ENDS = "<!-- {}: written by make peers -->", "<!-- end of {} -->"
SENTRYWARD = "SentryWard"
#: By these words a refusal of SentryWard's names the fault itself.
NAMED = re.compile(
    "pointer offset outside unsigned range|launch\\.(?:grid|block)_dim|exceeds 1024 threads"
    "|no matching dynamic occurrence|absent from shuffle membermask|invalid named barrier"
    "|requires a 16-byte-aligned|same occurrence in all 32 lanes"
)
_ORDER = ("found", "named", "refused", "undecided", "missed", "not tried", "flags both")
_SHOWN = {"named": "named in a refusal", "flags both": "flagged with the twin"}


def kept(part: str) -> list[dict[str, Any]]:
    """Return the lines of a part; none if it was never measured."""
    if part == "python":
        sections = json.loads(FIGURES.read_text(encoding="utf-8")).values()
        return [{name: one for each in sections for name, one in each["figures"].items()}]
    path = KEPT / f"{part}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keep(part: str, lines: list[dict[str, Any]]) -> None:
    """Write the lines of a part."""
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"{part}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))


def outcome(said: dict[str, list[Any]]) -> str:
    """Return what became of a fault: one of `_ORDER`."""
    word, words, _ = said["wrong"]
    if word == "flags":
        return "flags both" if said["right"][0] == "flags" else "found"
    if word == "refuses":
        return "named" if NAMED.search(words) and words != said["right"][1] else "refused"
    return {"passes": "missed"}.get(word, word)


def counted(outcomes: Iterable[str]) -> str:
    """Say how many there are of each outcome: 20 found, 5 refused."""
    numbers = Counter(outcomes)
    return ", ".join(f"{numbers[one]} {_SHOWN.get(one, one)}" for one in _ORDER if numbers[one])


def of_cuda(lines: list[dict[str, Any]]) -> str:
    """Return the table of the CUDA faults, by kind."""
    faults = [one for one in lines if "wrong" in one.get("opsmith", {})]
    right = [one for one in lines if "opsmith" in one]
    tools = ("opsmith", SENTRYWARD)
    rows = ["| | faults | opsmith | SentryWard 0.1.1 |", "|---|---|---|---|"]
    for kind in dict.fromkeys(one["kind"] for one in _by_number(faults)):
        some = [one for one in faults if one["kind"] == kind]
        cells = [counted(outcome(one[tool]) for one in some) for tool in tools]
        rows.append(f"| {kind} | {len(some)} | {' | '.join(cells)} |")
    cells = [counted(outcome(one[tool]) for one in faults) for tool in tools]
    rows.append(f"| **all** | **{len(faults)}** | {' | '.join(cells)} |")
    words = {"flags": "flagged", "passes": "passed", "refuses": "refused"}
    cells = []
    for tool in tools:
        said = Counter(words.get(one[tool]["right"][0], one[tool]["right"][0]) for one in right)
        cells.append(
            ", ".join(
                f"{n} {word}"
                for word, n in [("flagged", said.pop("flagged", 0)), *sorted(said.items())]
            )
        )
    rows.append(f"| right kernels | {len(right)} | {' | '.join(cells)} |")
    seconds = [
        statistics.median(
            one[tool]["right"][2] for one in right if one[tool]["right"][0] in ("passes", "flags")
        )
        for tool in tools
    ]
    rows.append(f"| seconds for a kernel, median | | {seconds[0]:.1f} | {seconds[1]:.1f} |")
    files = [one["compiling"] for one in lines if one.get("compiling", {}).get("opsmith")]
    built = [statistics.median(one[by] for one in files) for by in ("opsmith", "nvcc")]
    rows.append(
        f"| seconds to compile a file of them, median | | {built[0]:.0f} | {built[1]:.0f} |"
    )
    return "\n".join(rows)


def of_triton(lines: list[dict[str, Any]]) -> str:
    """Return the table of the Triton kernels, each with what every tool says."""
    tools = ("opsmith", "triton-viz", "ttsem")
    words = {"flags": "found", "passes": "–", "fails": "fails itself"}
    rows = ["| | | opsmith | triton-viz 3.0 | ttsem 0.1.0 |", "|---|---|---|---|---|"]
    for one in lines:
        right = one["kind"].startswith("right")
        said = [words.get(one[tool][0], one[tool][0]) for tool in tools]
        if right:
            said = [
                "flagged" if word == "found" else "passes" if word == "–" else word for word in said
            ]
        rows.append(f"| `{one['fault']}` | {one['kind']} | {' | '.join(said)} |")
    seconds = [f"{statistics.median(one[tool][2] for one in lines):.1f}" for tool in tools]
    rows.append(f"| seconds, median | | {' | '.join(seconds)} |")
    return "\n".join(rows)


def of_judge(lines: list[dict[str, Any]]) -> str:
    """Return the table of pygpubench's exploits."""
    shown = {"results": "forge results", "clock": "forge times", "control": "no exploit: controls"}
    rows = ["| | | refused | give up | accepted |", "|---|---|---|---|---|"]
    for kind, words in shown.items():
        some = [one for one in lines if one["kind"] == kind]
        said = Counter(one["opsmith"][0] for one in some)
        cells = [str(said.pop(word, 0)) for word in ("refused", "gives up", "accepted")]
        assert not said, said
        rows.append(f"| {words} | {len(some)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def of_python(figures: list[dict[str, str]]) -> str:
    """Return the table of the faults in Python, from what tests/faults/run.py kept."""
    (found,) = figures
    names = ("allclose", "opcheck", "gradcheck", "found")
    cells = [found[f"faults/{name}"] for name in names]
    rows = ["| faults | `allclose`, one shape | `opcheck` | `gradcheck` | `opsmith check` |"]
    return "\n".join(
        [*rows, "|---|---|---|---|---|", f"| {found['faults/planted']} | {' | '.join(cells)} |"]
    )


TABLES = {"cuda": of_cuda, "triton": of_triton, "judge": of_judge, "python": of_python}


def filled(page: str) -> str:
    """Return the page with the tables of what is kept."""
    for part, made in TABLES.items():
        lines = kept(part)
        begins, ends = BEGINS.format(part), ENDS.format(part)
        if lines and begins in page:
            pattern = re.compile(f"{re.escape(begins)}.*?{re.escape(ends)}", re.DOTALL)
            table = f"{begins}\n\n{made(lines)}\n\n{ends}"
            page = pattern.sub(lambda _, table=table: table, page)
    return page


def write() -> None:
    """Write the tables into the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def _by_number(faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    numbers = Counter(one["kind"] for one in faults)
    return sorted(faults, key=lambda one: -numbers[one["kind"]])
