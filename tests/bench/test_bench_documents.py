"""What a benchmark leaves for programs and for eyes: JSON that keeps to its schema, and SVG."""

import io
import json
from dataclasses import fields, replace

import jsonschema
import pytest
from rich.console import Console

from opsmith.bench.compare import changes
from opsmith.bench.figures import SCHEMA, SCHEMA_FILE, Benchmark, Figure
from opsmith.bench.machine import Machine
from opsmith.bench.table import ending, lines

DOCUMENT = json.loads(SCHEMA_FILE.read_text())


def figure(name: str, *seconds: float, status: str = "timed", size: str = "N=4") -> Figure:
    speedups = tuple(2e-6 / second for second in seconds)
    return Figure("a::b", size, "float32", "cpu", name, status, "", seconds, speedups, 32, None)


@pytest.fixture
def benchmark():
    machine = Machine("a processor", 2, (1 << 15, 1 << 20), 0.5, "float32", [1e9], [2e9], [1e10])
    found = [
        figure("reference", 2e-6, 2e-6, 2.2e-6),
        figure("cpu kernel", 1e-6, 1e-6, 1e-6),
        figure("aotinductor", status="refused"),
        figure("reference", 4e-6, size="N<5 & C"),
    ]
    return Benchmark(found, machine)


def valid(document: dict) -> None:
    jsonschema.Draft202012Validator(DOCUMENT).validate(document)


def test_the_schema_names_its_version_and_describes_every_field():
    jsonschema.Draft202012Validator.check_schema(DOCUMENT)
    assert DOCUMENT["$id"] == DOCUMENT["properties"]["schema"]["const"] == SCHEMA
    computed = {"median", "spread", "speedup"}
    for kind, name, more in ((Figure, "figure", computed), (Machine, "machine", set())):
        described = DOCUMENT["$defs"][name]
        assert set(described["properties"]) == {one.name for one in fields(kind)} | more
        assert set(described["required"]) == set(described["properties"])
        assert all("description" in one for one in described["properties"].values())


def test_a_benchmark_and_its_changes_keep_to_the_schema(benchmark):
    document = json.loads(benchmark.to_json())
    document["changes"] = [one.to_json() for one in changes(benchmark, benchmark)]
    assert document["changes"]
    valid(document)


@pytest.mark.parametrize(
    "wrong", [{"schema": "opsmith.bench/2"}, {"figures": [{}]}, {"changes": [{"ratio": "large"}]}]
)
def test_something_else_does_not_keep_to_the_schema(benchmark, wrong):
    with pytest.raises(jsonschema.ValidationError):
        valid(json.loads(benchmark.to_json()) | wrong)


def test_the_command_prints_its_schema(cli):
    outcome = cli("bench", "--json-schema")
    assert outcome.code == 0
    assert json.loads(outcome.stdout) == DOCUMENT


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_name_and_no_figure_is_cut_in_a_terminal(width):
    machine = Machine("a processor", 2, (1 << 15, 1 << 20), 0.5, "float32", [1e9], [2e9], [1e10])
    long = "onnxruntime, standard operators, compiled"
    names = ["reference", long, "cpu kernel"]
    found = [
        replace(figure(name, 1e-3 * (n + 1)), bytes=1 << 20, operations=1 << 24)
        for n, name in enumerate(names)
    ]
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False)
    for line in (*lines(found, machine), *ending(machine, found)):
        console.print(line)
    shown = text.getvalue().splitlines()
    assert max(map(len, shown)) <= width
    assert "…" not in text.getvalue()
    above = text.getvalue().split("\n\n")[0]
    for word in ("1.05", "GB/s", "16.8", "Gop/s", "1.00 ms", "3.00 ms", "0.00067 ×", "compiled"):
        assert word in above
    for word in long.split():
        assert word.strip(",") in above


def test_a_benchmark_is_printed_as_a_table_and_has_a_short_repr(benchmark):
    assert repr(benchmark) == "<Benchmark: 4 figures>"
    heading, *rows = str(benchmark).splitlines()
    assert heading.split() == ["operator", "sizes", "dtype", "time", "speed-up"]
    assert [row.split()[3] for row in rows[:3]] == ["reference", "cpu", "aotinductor"]
    assert "refused" in rows[2]


def test_a_notebook_shows_the_tables(benchmark):
    shown = benchmark._repr_html_()
    assert "cpu kernel" in shown
    assert "N&lt;5 &amp; C" in shown
    assert "2.00 ×" in shown
    assert "refused" in shown
