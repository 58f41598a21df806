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
#: The generic dtype of an operator whose dtypes are all fixed.
_FIXED = ""


@dataclass(frozen=True)
class Owed:
    """What a cohort of a row has to have drawn.

    Attributes:
        most: the number of elements that the largest case has at least.
        dtypes: the dtypes in which there are cases.
    """

    most: int = 1
    dtypes: tuple[str, ...] = ("float32",)


#: By row and cohort. The dtypes of a cohort of values are those of the operator's kernels, one
#: beside float32 for each operator, in turn.
OWED: dict[str, dict[str, Owed]] = {
    "reference": {
        "normal": Owed(1000, _FLOATS),
        "registered": Owed(20, _FLOATS),
        "NaN": Owed(2, _FLOATS),
        "infinite": Owed(2, _FLOATS),
        "zeros": Owed(2, _FLOATS),
        "huge": Owed(2, _FLOATS),
        "boundary sizes": Owed(100),
        "odd sizes": Owed(100),
        "many elements": Owed(10_000, _FLOATS),
    },
    "layouts": {
        layout: Owed(20, ("float32",))
        for layout in ("transposed", "sliced", "padded rows", "permuted", "expanded")
    },
    "empty-sizes": {"every size 0 or 1": Owed(0, _FLOATS)},
    "gradient": {"normal": Owed(1000, _FLOATS), "registered": Owed(20, _FLOATS)},
    "gradcheck": {"normal": Owed(2, ("float64",))},
    "fake": {"normal": Owed(100, ("float32",))},
    "mutation": {"normal": Owed(20, ("float32",))},
    "aliasing": {"normal": Owed(20, ("float32",))},
    "determinism": {"normal": Owed(1000, ("float32",))},
    "vmap": {"normal": Owed(4, ("float32",))},
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
            if left:
                yield f"{row}, {name!r}: no case in {', '.join(left)}"
