"""What was measured, and as which text or JSON it leaves."""

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
"""The name and version of what `Benchmark.to_json` gives."""

SCHEMA_FILE = Path(__file__).parent / "schema" / "bench-1.json"
"""Its JSON Schema."""

COMPILED, GRADIENT = ", compiled", ", gradient"
"""How the names of contestants end that are compiled, or timed forward and backward."""

Status = Literal["timed", "refused", "failed", "not applicable"]


class FileError(OpsmithError):
    """A file was not saved by a benchmark."""

    exit_code = 2


@dataclass(frozen=True)
class Figure:
    """One contestant at one size.

    Attributes:
        operator: ``namespace::name``.
        sizes: which served sizes, or which case.
        dtype: the generic dtype; empty where every dtype is fixed.
        device: the device type.
        name: the contestant: ``reference``, ``cpu kernel``, ``cpu kernel, gradient``,
            ``aotinductor``, …
        status: ``refused`` where a result was wrong or a time is not possible, ``failed`` where
            something raised, crashed or hung.
        message: why there is no figure.
        seconds: of one call, round by round; none where it was not timed.
        speedups: the reference's time of the same round, divided by this; none for want of either.
            For a gradient, the time of the reference's gradient.
        bytes: what has to be moved, if the author says.
        operations: what has to be computed, if the author says.
        notes: what else is worth knowing.
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
        """What the same figure of another run has, too."""
        return self.operator, self.sizes, self.dtype, self.device, self.name

    @property
    def median(self) -> float:
        """The median seconds of a call."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """Half of the range that the middle half of the rounds lies in, as a part of the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the reference: the median over the rounds."""
        return statistics.median(self.speedups) if self.speedups else None


@dataclass
class Benchmark:
    """Every figure of one run.

    Attributes:
        figures: in the order in which they were measured.
        machine: on what.
    """

    figures: list[Figure] = field(default_factory=list)
    machine: Machine | None = None

    @property
    def ok(self) -> bool:
        """Whether something was timed, and nothing was refused or failed."""
        bad = any(one.status in ("refused", "failed") for one in self.figures)
        return any(one.status == "timed" for one in self.figures) and not bad

    def groups(self) -> list[list[Figure]]:
        """The figures that stand beside each other: of one operator, size, dtype and device."""
        found: dict[Any, list[Figure]] = {}
        for figure in self.figures:
            found.setdefault(figure.key[:4], []).append(figure)
        return list(found.values())

    def to_json(self) -> str:
        """The benchmark as JSON text, every round of it."""
        import torch

        from opsmith.kernels.build.version import version

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
        """Read what `to_json` wrote.

        Raises:
            FileError: it is something else, or of another version.
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
        """Read what was saved.

        Raises:
            FileError: there is no such file, or it is something else.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{path} cannot be read: {error}") from error
        return cls.from_json(text, str(path))


def _summary(figure: Figure) -> dict[str, Any]:
    """What follows from the rounds, for those who read JSON and compute nothing."""
    if not figure.seconds:
        return {"median": None, "spread": None, "speedup": None}
    return {"median": figure.median, "spread": figure.spread, "speedup": figure.speedup}


def _figure(plain: Mapping[str, Any]) -> Figure:
    known = {name: plain[name] for name in Figure.__dataclass_fields__}
    lists = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
    values: dict[str, Any] = {**known, **lists}
    return Figure(**values)


def show_seconds(seconds: float) -> str:
    """``1.23 ms``."""
    return show_quantity(seconds, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))


def show_bytes(count: float) -> str:
    """``1.23 MB``."""
    return show_quantity(count, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)))


def show_operations(count: float) -> str:
    """``1.23 Gop``."""
    units = (("Top", 1e12), ("Gop", 1e9), ("Mop", 1e6), ("kop", 1e3), ("op", 1.0))
    return show_quantity(count, units)


def show_quantity(value: float, units: Sequence[tuple[str, float]]) -> str:
    """A number with three digits, in the unit in which it is 1 or more."""
    for name, size in units:
        if abs(value) >= size or name == units[-1][0]:
            return f"{_digits(value / size)} {name}"
    raise AssertionError


def _digits(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
