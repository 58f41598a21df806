"""Keep what the rows of `opsmith check` drew over the corpus, and state what they owe.

What is owed is owed over the whole corpus: no single operator has every size and every dtype.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "drawn.json"
_FLOATS = ("bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True)
class Owed:
    """What a cohort of a row has to have drawn.

    Attributes:
        most: the number of elements that the largest case has at least.
        dtypes: the dtypes in which there are cases.
        kinds: the number of different dtypes among the cases.
    """

    most: int = 1
    dtypes: tuple[str, ...] = ("float32",)
    kinds: int = 1


_VALUES = ("NaN", "infinity", "zeros", "signed zeros", "huge", "tiny", "denormal", "ties", "equal")
_LAYOUTS = ("transposed", "sliced", "padded rows", "permuted", "expanded", "overlapping", "mixed")
#: By row and cohort. A cohort of values is tried in float32, and for each operator in one other
#: dtype, in turn: so over the corpus in more than one.
OWED: dict[str, dict[str, Owed]] = {
    "reference": {
        "normal": Owed(1000, _FLOATS),
        "registered": Owed(20, _FLOATS),
        **{kind: Owed(18, kinds=2) for kind in _VALUES},
        "boundary sizes": Owed(1000),
        "odd sizes": Owed(100),
        "long rows": Owed(1000, ("bfloat16", "float16")),
        "many elements": Owed(100_000, _FLOATS),
    },
    "layouts": {
        "registered": Owed(20),
        "any layout": Owed(100, _FLOATS),
        **{layout: Owed(2) for layout in _LAYOUTS},
    },
    "empty-sizes": {"every size 0 or 1": Owed(1)},
    "dispatch": {"normal": Owed(20, _FLOATS)},
    "fake": {"normal": Owed(100, _FLOATS)},
    "mutation": {"normal": Owed(20, _FLOATS)},
    "aliasing": {"normal": Owed(20, _FLOATS)},
    "gradient": {"normal": Owed(1000, _FLOATS), "registered": Owed(20, _FLOATS)},
    "gradcheck": {"normal": Owed(2, ("float64",))},
    "nested-gradients": {"normal": Owed(2)},
    "determinism": {"normal": Owed(1000, _FLOATS), "registered": Owed(20, _FLOATS)},
    "vmap": {"normal": Owed(8)},
    "validation": {"normal": Owed(20)},
}


def add(rows: Iterable[Any], path: Path | None = None) -> None:
    """Add what some rows drew."""
    path = path or FILE
    found = read(path)
    for row in rows:
        for sample in row.samples:
            cohorts = found.setdefault(row.check, {})
            new = {"cases": 0, "dtypes": [], "least": sample.elements, "most": sample.elements}
            one = cohorts.setdefault(sample.cohort, new)
            one["cases"] += sample.cases
            one["dtypes"] = sorted({*one["dtypes"], sample.dtype})
            one["least"] = min(one["least"], sample.elements)
            one["most"] = max(one["most"], sample.elements)
    lines = [
        f"{json.dumps(row)}: {{\n  "
        + ",\n  ".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in cohorts.items())
        + "\n}"
        for row, cohorts in sorted(found.items())
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read(path: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the number of cases, the dtypes and the sizes by row and cohort."""
    path = path or FILE
    return json.loads(path.read_text()) if path.is_file() else {}


def missing(found: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what is owed and was not drawn."""
    for row, cohorts in OWED.items():
        for name, owed in cohorts.items():
            one = found.get(row, {}).get(name)
            if one is None:
                yield f"{row}: no case of {name!r}"
                continue
            if one["most"] < owed.most:
                yield f"{row}, {name!r}: {one['most']} elements at most, not {owed.most}"
            left = sorted({*owed.dtypes} - {*one["dtypes"]})
            if len(one["dtypes"]) < owed.kinds:
                yield f"{row}, {name!r}: no case but in {one['dtypes'][0]}"
            if left:
                yield f"{row}, {name!r}: no case in {', '.join(left)}"
