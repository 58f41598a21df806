"""The figures of a benchmark, and their form as text and JSON."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from opsmith.bench.machine import Machine
from opsmith.errors import OpsmithError

SCHEMA = "opsmith.bench/1"
"""The name and version of the format of `Benchmark.to_json`."""

SCHEMA_FILE = Path(__file__).parent / "schema" / "bench-1.json"
"""The JSON Schema of the format."""

COMPILED, GRADIENT = ", compiled", ", gradient"
"""The endings of the names of contestants that are compiled, or timed forward and backward."""

Status = Literal["timed", "refused", "failed", "not applicable"]


class FileError(OpsmithError):
    """Raised for a file that no benchmark saved."""

    exit_code = 2


@dataclass(frozen=True)
class Figure:
    """The times of one contestant at one size.

    Attributes:
        operator: ``namespace::name``.
        sizes: the sizes, or the registered case.
        dtype: the generic dtype; empty if every dtype is fixed.
        name: the contestant: ``reference``, ``cpu kernel``, ``cpu kernel, gradient``,
            ``aotinductor``, …
        status: ``refused`` if a result was wrong or a time is impossible, ``failed`` if a call
            raised, crashed or hung.
        message: why there is no time.
        seconds: the seconds of one call, by round; empty if the contestant was not timed.
        speedups: the reference's time divided by this time, by round; empty if either is missing. A
            gradient is compared with the reference's gradient.
        bytes: the bytes that a call has to move, if the author states them.
        operations: the operations that a call has to compute, if the author states them.
    """

    operator: str
    sizes: str
    dtype: str
    device: str
    name: str
    status: Status
    message: str = ""
    seconds: tuple[float, ...] = ()
    speedups: tuple[float, ...] = ()
    bytes: int | None = None
    operations: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """The fields that identify the same figure in another run."""
        return self.operator, self.sizes, self.dtype, self.device, self.name

    @property
    def median(self) -> float:
        """The median seconds of a call."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half of the interquartile range of the rounds, divided by the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    @property
    def speedup(self) -> float | None:
        """The speed relative to the reference: the median over the rounds."""
        return statistics.median(self.speedups) if self.speedups else None


@dataclass(repr=False)
class Benchmark:
    """All figures of one run.

    Attributes:
        figures: the figures, in the order in which they were measured.
    """

    figures: list[Figure] = field(default_factory=list)
    machine: Machine | None = None

    @property
    def ok(self) -> bool:
        """Return whether at least one contestant was timed, and none was refused or failed."""
        bad = any(one.status in ("refused", "failed") for one in self.figures)
        return any(one.status == "timed" for one in self.figures) and not bad

    def groups(self) -> list[list[Figure]]:
        """Return the figures grouped by operator, size, dtype and device."""
        found: dict[Any, list[Figure]] = {}
        for figure in self.figures:
            found.setdefault(figure.key[:4], []).append(figure)
        return list(found.values())

    def __repr__(self) -> str:
        return f"<Benchmark: {len(self.figures)} figures>"

    def __str__(self) -> str:
        """Return a table with a row for each figure."""
        from opsmith.checks.report.table import text_of

        return text_of([self._table()])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a row for each figure."""
        from opsmith.checks.report.table import html_of

        return html_of([self._table()])

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table("operator", "sizes", "dtype", "", "time", "speed-up", box=None)
        for one in self.figures:
            speedup = f"{one.speedup:.2f} ×" if one.seconds and one.speedup else ""
            why = ": ".join(filter(None, (one.status, one.message)))
            time = show_seconds(one.median) if one.seconds else why
            row = (one.operator, one.sizes, one.dtype, one.name, time, speedup)
            table.add_row(*map(Text, row))
        return table

    def to_json(self) -> str:
        """Return the benchmark as JSON text, with every round."""
        import torch

        from opsmith.system.version import version

        machine = {} if self.machine is None else asdict(self.machine)
        document = {
            "schema": SCHEMA,
            "ok": self.ok,
            "opsmith": version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "threads": torch.get_num_threads(),
            "machine": machine,
            "figures": [asdict(figure) | _summary(figure) for figure in self.figures],
        }
        return json.dumps(document, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, where: str = "the text") -> Benchmark:
        """Read the text that `to_json` wrote.

        Raises:
            FileError: the text is something else, or of another version.
        """
        try:
            document = json.loads(text)
            schema = document["schema"]
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(f"{where} is not a benchmark that opsmith bench saved") from error
        if schema != SCHEMA:
            raise FileError(f"{where} has the schema {schema!r}, this opsmith reads {SCHEMA!r}")
        machine = document["machine"]
        read = Machine(**{**machine, "caches": tuple(machine["caches"])}) if machine else None
        return cls([_figure(one) for one in document["figures"]], read)

    @classmethod
    def load(cls, path: str | Path) -> Benchmark:
        """Read a file that holds the text of `to_json`.

        Raises:
            FileError: the file does not exist, or holds something else.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{path} cannot be read: {error}") from error
        return cls.from_json(text, str(path))


def _summary(figure: Figure) -> dict[str, Any]:
    """Return the statistics of the rounds, so that readers of the JSON need not compute."""
    if not figure.seconds:
        return {"median": None, "spread": None, "speedup": None}
    return {"median": figure.median, "spread": figure.spread, "speedup": figure.speedup}


def _figure(plain: Mapping[str, Any]) -> Figure:
    known = {name: plain[name] for name in Figure.__dataclass_fields__}
    lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
    values: dict[str, Any] = {**known, **lists}
    return Figure(**values)


def show_seconds(seconds: float) -> str:
    """Format seconds, as in ``1.23 ms``."""
    return show_quantity(seconds, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))


def show_bytes(count: float) -> str:
    """Format a number of bytes, as in ``1.23 MB``."""
    return show_quantity(count, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)))


def show_operations(count: float) -> str:
    """Format a number of operations, as in ``1.23 Gop``."""
    units = (("Top", 1e12), ("Gop", 1e9), ("Mop", 1e6), ("kop", 1e3), ("op", 1.0))
    return show_quantity(count, units)


def show_quantity(value: float, units: Sequence[tuple[str, float]]) -> str:
    """Format a number with three digits, in the largest unit in which it is at least 1."""
    for name, size in units:
        if abs(value) >= size or name == units[-1][0]:
            return f"{show_number(value / size)} {name}"
    raise AssertionError


def show_number(value: float) -> str:
    """Format a number with three digits, of which two at most are behind the point."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
