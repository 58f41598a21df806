"""The figures of the pages: kept in figures.json, and written into the pages from there.

In a page a figure stands between two comments, which readers do not see: <!--=call/hand-->0.78
<!--/-->. Benchmarks keep what they measured if OPSMITH_KEEP_FIGURES is set, as `make figures` does.

    python benchmarks/figures.py            writes the kept figures into the pages
    python benchmarks/figures.py --count    counts first what the sources say, as planted faults
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).with_suffix(".json")
#: A figure of a page: its name, and how it is shown.
FIGURE = re.compile(r"<!--=([a-z][\w/-]*)-->(.*?)<!--/-->")
PAGES = (
    *(
        ROOT / name
        for name in (
            "README.md",
            "README.zh.md",
            "docs/index.md",
            "docs/explanation/performance.md",
        )
    ),
    *(
        page
        for page in sorted(ROOT.glob("gallery/*/README.md"))
        if FIGURE.search(page.read_text(encoding="utf-8"))
    ),
)
#: The section of what the sources say, and no benchmark.
COUNTED = "counted"


def kept() -> dict[str, str]:
    """Every figure as it is shown, by name."""
    sections = json.loads(KEPT.read_text(encoding="utf-8"))
    return {name: shown for one in sections.values() for name, shown in one["figures"].items()}


def keep(script: str, machine: str, figures: Mapping[str, str]) -> None:
    """Put a script's figures in place of those of its last run, if figures are to be kept.

    Args:
        script: the path of the script.
        machine: what they were measured on, as `sampling.machine` has it.
        figures: how each is shown, by name; a name is in no other script's.
    """
    if os.environ.get("OPSMITH_KEEP_FIGURES"):
        sections = json.loads(KEPT.read_text(encoding="utf-8"))
        sections[Path(script).name] = {"machine": machine, "figures": dict(figures)}
        text = json.dumps(sections, indent=2, ensure_ascii=False)
        KEPT.write_text(f"{text}\n", encoding="utf-8")


def filled(text: str, figures: Mapping[str, str]) -> str:
    """A page with these figures in place of those that it has."""
    return FIGURE.sub(lambda one: f"<!--={one[1]}-->{figures[one[1]]}<!--/-->", text)


def seconds(*values: float) -> str:
    """Times with two digits or three, in the unit of the first; several are sizes in turn."""
    unit, scale = next(
        (unit, scale)
        for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
        if values[0] >= scale or unit == "µs"
    )
    return f"{', '.join(digits(value / scale) for value in values)} {unit}"


def digits(value: float) -> str:
    """A number with two digits, or all of a whole one."""
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def span(*values: float) -> str:
    """The range of some numbers: 6–19, or one number if they are shown alike."""
    return "–".join(dict.fromkeys(digits(one) for one in (min(values), max(values))))


def counted() -> dict[str, str]:
    """Count what the sources say; declare every planted fault for that, which takes a minute."""
    sys.path.insert(0, str(ROOT / "tests" / "faults"))
    import run

    kernels = [pair.wrong.kernels.values() for pair in run.pairs()]
    return {"faults/planted": str(sum(not any(k.source for k in several) for several in kernels))}


def main() -> None:
    """Write the figures into the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", action="store_true", help="count what the sources say first")
    if parser.parse_args().count:
        os.environ["OPSMITH_KEEP_FIGURES"] = "1"
        keep(COUNTED, "", counted())
    figures = kept()
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
