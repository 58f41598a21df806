"""`opsmith bench`: figures of what is right, and none of what only looks fast.

No test asserts how long something takes, nor how many times as fast: machines are busy.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between, bench
from opsmith.bench.figures import Benchmark, Figure, FileError
from opsmith.bench.inputs import NothingToTimeError, supplies
from opsmith.bench.machine import describe
from opsmith.bench.runner import NoSuchContestantError, _Lane, _Race, _require_known
from opsmith.bench.timer import Entry, Stopwatch
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.isolation.import_location import locate
from opsmith.sources.importing import import_operators

pytestmark = pytest.mark.slow(cases=2)

DECLARATION = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("cli_timed::add_one")
def add_one(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x + 1

@add_one.register_kernel("cpu")
def _(x):
    return x + 1

add_one.register_cost(lambda N, itemsize: opsmith.Cost(2 * N * itemsize, N))
"""
FILE = Path(__file__).with_name("timed.py")
OPERATORS = {
    operator.signature.name: operator for operator in import_operators(str(FILE)).operators
}


@pytest.fixture(scope="module")
def benchmark():
    only = ["cpu kernel", "cpu kernel, gradient", "operator", "operator, gradient"]
    return bench.run(OPERATORS.values(), only=only, rounds=3)


def figure(benchmark: Benchmark, operator: str, name: str = "cpu kernel"):
    return next(
        one for one in benchmark.figures if (one.operator, one.name) == (f"timed::{operator}", name)
    )


@pytest.mark.long
def test_a_kernel_is_compared_with_the_reference_of_the_same_round(benchmark):
    found, reference = figure(benchmark, "slow"), figure(benchmark, "slow", "reference")
    assert found.status == "timed"
    assert found.speedups == tuple(
        theirs / own for theirs, own in zip(reference.seconds, found.seconds, strict=True)
    )
    assert len(found.speedups) == 3
    assert reference.speedup == 1


def test_a_machine_that_interrupts_makes_no_call_seem_faster_than_it_is():
    # A call of 5 ms, and 0.1 ms of messages in each batch; what interrupts adds up to 7 ms.
    lane = _Lane("cpu kernel, gradient", stopwatch=None, calls=3)
    assert lane.split == (1, 2)
    lane.spent = {0: (0.0121, 0.0101), 1: (0.0111, 0.0101), 2: (0.0121, 0.0171)}
    seconds = lane.seconds(0.0001).values()
    assert min(seconds) >= 0.005
    assert max(seconds) == pytest.approx((0.0292 - 0.0002) / 3)


def race(spent: tuple[float, float], idle: float) -> tuple[_Race, _Lane]:
    """A race that was run, with one lane."""
    (subject,) = subjects_of(OPERATORS["slow"])
    (supply,) = supplies(subject, "float32", [], 3)
    machine = describe()
    machine.near = machine.far = [1e9]
    run = _Race(supply, [(Entry("cpu kernel", "cpu", ""), None)], machine, None, "cpu")
    (lane,) = run._lanes
    lane.spent, run._idle = {0: spent}, {False: idle}
    return run, lane


def test_a_time_that_is_nearly_all_messages_is_refused():
    run, _ = race((0.010, 0.010), 0.009)
    (found,) = run._figures()
    assert (found.status, found.seconds) == ("refused", ())
    assert found.message == (
        "of the 20.0 ms that 3 calls took, messages and the copy of results take 18.0 ms: too "
        "little is left to tell what a call takes"
    )
    run, _ = race((0.010, 0.010), 0.001)
    (found,) = run._figures()
    assert (found.status, found.seconds) == ("timed", (pytest.approx(0.006),))


def test_every_served_size_has_its_figures(benchmark):
    sizes = [one.sizes for one in benchmark.figures if one.operator == "timed::wrong"]
    assert sizes == ["N=8 C=16"] * 2 + ["N=2 C=16"] * 2


def test_the_way_back_is_timed_beside_the_references(benchmark):
    found = figure(benchmark, "squared", "cpu kernel, gradient")
    assert found.status == "timed", found.message
    assert len(found.speedups) == 3
    assert figure(benchmark, "squared", "reference, gradient").speedup == 1


def test_a_wrong_gradient_has_no_figure_and_its_forward_has(benchmark):
    found = figure(benchmark, "wrong_gradient", "cpu kernel, gradient")
    assert (found.status, found.seconds) == ("refused", ())
    assert "gave a wrong result" in found.message
    assert "the gradient of 'x'[" in found.message
    assert figure(benchmark, "wrong_gradient").status == "timed"


def test_a_gradient_that_nothing_says_the_truth_of_is_not_timed(benchmark):
    for name in ("reference, gradient", "operator, gradient"):
        found = figure(benchmark, "detached", name)
        assert found.status == "not applicable"
        assert found.message == (
            "the reference has no gradient: it is not made of what PyTorch can differentiate"
        )
    assert figure(benchmark, "detached", "operator").status == "timed"
    names = [one.name for one in benchmark.figures if one.operator == "timed::slow"]
    assert names == ["reference", "cpu kernel"]


def test_costs_are_those_of_the_size(benchmark):
    found = figure(benchmark, "slow")
    assert (found.bytes, found.operations) == (2 * 8 * 16 * 4, 8 * 16)


@pytest.mark.parametrize("operator", ["remembers", "works_on", "wrong"])
def test_what_gives_wrong_results_has_no_figure(benchmark, operator):
    found = figure(benchmark, operator)
    assert (found.status, found.seconds) == ("refused", ())
    assert found.message.startswith("a timed call gave a wrong result (round ")
    assert figure(benchmark, operator, "reference").status == "timed"


def test_a_time_in_which_so_many_bytes_cannot_be_moved_is_refused(benchmark):
    found = figure(benchmark, "boasts", "operator")
    assert (found.status, found.seconds) == ("refused", ())
    assert "and moving 8000 TB takes at least" in found.message
    assert "register_cost states too much" in found.message


def test_what_raises_has_failed_with_its_words(benchmark):
    found = figure(benchmark, "crashes")
    assert found.status == "failed"
    assert "SystemError" in found.message
    assert "no such luck" in found.message


def test_the_machine_is_measured_in_the_same_run(benchmark):
    machine = benchmark.machine
    rounds = 3 * (len(OPERATORS) + 1)
    assert len(machine.far) == len(machine.near) == len(machine.multiply) == rounds
    assert min(machine.bandwidth, machine.rate) > 0


def test_one_refused_figure_makes_the_benchmark_fail(benchmark):
    assert not benchmark.ok


def test_json_holds_every_round_and_is_read_again(benchmark, tmp_path):
    text = benchmark.to_json()
    document = json.loads(text)
    assert document["schema"] == "opsmith.bench/1"
    assert len(document["figures"][0]["seconds"]) == 3
    (tmp_path / "saved.json").write_text(text)
    assert Benchmark.load(tmp_path / "saved.json") == benchmark
    (tmp_path / "saved.json").write_text(text.replace("opsmith.bench/1", "opsmith.bench/0"))
    with pytest.raises(FileError, match=r"has the schema 'opsmith\.bench/0', this opsmith reads"):
        Benchmark.load(tmp_path / "saved.json")


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(FileError, match="is not a benchmark that opsmith bench saved"):
        Benchmark.load(tmp_path / "x.json")
    with pytest.raises(FileError, match="cannot be read"):
        Benchmark.load(tmp_path / "nothing.json")


@pytest.mark.long
def test_the_table_fits_80_columns_and_a_slower_kernel_makes_the_command_fail(cli, tmp_path):
    file, before, saved = (tmp_path / name for name in ("cli_timed.py", "before.json", "now.json"))
    file.write_text(DECLARATION)
    earlier = [1e-9 * (1000 + number) for number in range(10)]
    fast = Figure(
        "cli_timed::add_one",
        "N=64",
        "float32",
        "cpu",
        "cpu kernel",
        "timed",
        seconds=tuple(earlier),
        speedups=tuple(1e6 + number for number in range(10)),
    )
    before.write_text(Benchmark([fast]).to_json())
    outcome = cli(
        *("bench", file, "--size", "N=64", "--only", "cpu kernel", "--rounds", 5),
        *("--save", saved, "--compare", before),
    )
    assert outcome.code == 1, outcome.stderr
    lines = outcome.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "cli_timed::add_one  N=64  float32  512 B  64.0 op" in lines
    assert [line.split()[0] for line in lines if "█" in line or "▏" in line]
    beside = lines[lines.index("beside the saved run") + 1 :]
    assert beside[0] == lines[lines.index("cli_timed::add_one  N=64  float32  512 B  64.0 op")]
    assert beside[1].split() == ["time", "p"]
    assert beside[2].startswith("cpu kernel ") and beside[2].split()[-1] == "slower"
    assert [one.status for one in Benchmark.load(saved).figures] == ["timed", "timed"]


NATIVE = """
#include <opsmith/kernel.h>
#include "doubled.h"
template <typename T>
void doubled(const opsmith::Context&, const bench_native::doubled_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.x[i] *= 2;
}
OPSMITH_KERNEL(bench_native, doubled, cpu, float)
"""
NATIVE_FILE = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("bench_native::doubled", mutates_args=("x",))
def doubled(x: Float[Tensor, "N"]) -> None:
    x.mul_(2)

doubled.register_kernel("cpu", source="doubled.cpp")
doubled.register_sizes({"N": 64})
"""


@pytest.mark.long
def test_the_functions_of_the_python_module_and_for_jax_are_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "doubled.cpp").write_text(NATIVE)
    (tmp_path / "bench_native.py").write_text(NATIVE_FILE)
    operators = import_operators(str(tmp_path / "bench_native.py")).operators
    found = bench.run(operators, only=["python", "jax"], rounds=3).figures
    assert [one.name for one in found] == ["reference", "jax", "python"]
    for one in found:
        assert one.status == "timed", one.message
        assert len(one.speedups) == 3


def test_what_is_not_there_to_time_is_named():
    entries = [Entry("cpu kernel", "cpu", "")]
    _require_known(["cuda kernel", "cpu kernel"], OPERATORS["slow"], entries)
    with pytest.raises(
        NoSuchContestantError,
        match=r"timed::slow: there is no 'cuda kernel' to time; there are 'reference', "
        "'reference, compiled', 'cpu kernel'",
    ):
        _require_known(["cuda kernel"], OPERATORS["slow"], entries)
    entries.append(Entry("cpu kernel, gradient", "cpu", ""))
    _require_known(["reference, gradient"], OPERATORS["squared"], entries)


def test_sizes_on_the_command_line_are_names_and_numbers(cli):
    outcome = cli("bench", FILE, "--size", "N:3")
    assert outcome.code == 2
    assert "'N:3': expected NAME=SIZE, as in" in outcome.stderr


@pytest.mark.parametrize(
    ("dtype", "sizes", "message"),
    [
        ("int8", [], r"timed::slow: cannot be timed in int8; it has float32, float64, float16"),
        ("float32", [{"Q": 3}], r"a size names the dimension 'Q'; the arguments have N, C"),
    ],
)
def test_what_the_operator_does_not_have_is_named(dtype, sizes, message):
    (subject,) = subjects_of(OPERATORS["slow"])
    with pytest.raises(NothingToTimeError, match=message):
        supplies(subject, dtype, sizes, 3)


def test_what_no_size_names_is_shown_and_numbers_have_their_defaults() -> None:
    @opsmith.op("test_bench::window")
    def window(
        x: Float[Tensor, "*B N"],
        bias: Float[Tensor, "N"] | None,
        factor: float,
        width: Annotated[int, Between(1, "N")] = 4,
        limit: int | None = None,
    ) -> Float[Tensor, "*B N"]:
        return x * factor

    (subject,) = subjects_of(window)
    ((label, values),) = (
        (one.label, one.first) for one in supplies(subject, "float32", [{"N": 64}], 3)
    )
    assert (values["width"], values["limit"]) == (4, None)
    absent = " bias=None" if values["bias"] is None else ""
    assert label == f"N=64 B={tuple(values['x'].shape[:-1])}{absent} factor={values['factor']}"
    # Where the default is out of range, another number is drawn, and shown.
    (supply,) = supplies(subject, "float32", [{"N": 2}], 3)
    assert 1 <= supply.first["width"] <= 2
    assert f" width={supply.first['width']}" in supply.label


def test_an_operator_without_sizes_and_cases_says_how_to_give_them():
    (subject,) = subjects_of(OPERATORS["slow"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subject.operator, "sizes", [])
        with pytest.raises(NothingToTimeError, match=r"slow\.register_sizes\({…}\), or give them"):
            supplies(subject, "float32", [], 3)


def test_every_call_of_a_batch_has_other_numbers_in_the_same_shape():
    (subject,) = subjects_of(OPERATORS["slow"])
    (supply,) = supplies(subject, "float32", [], 3)
    batch = supply.batch(20)
    assert batch.blocks["x"].shape == (20, 8, 16)
    assert len({float(batch.arguments(number)["x"][0, 0]) for number in range(20)}) == 20
    again = supply.batch(20)
    assert not torch.equal(again.blocks["x"], batch.blocks["x"])
    assert len(batch.payload()) == 20 * 8 * 16 * 4


def test_an_element_changes_after_the_clock_started():
    (subject,) = subjects_of(OPERATORS["slow"])
    (supply,) = supplies(subject, "float32", [], 3)
    batch = supply.batch(3)
    before = batch.arguments(1)["x"] + 1
    with Stopwatch(time_limit=600) as watch:
        watch.turn_to(locate(OPERATORS["slow"]))
        watch.prepare("cpu kernel", supply.batch(1))
        watch.place(batch)
        changes = supply.changes(batch, 1)
        _, (found,), made = watch.time("cpu kernel", 0, 3, 1, 0, [*changes, ("y", 0, 1.0)])
    assert made == changes
    assert (found != before).sum() == 1
    batch.change(1, made)
    assert torch.equal(found, batch.arguments(1)["x"] + 1)


@pytest.mark.long
def test_a_candidates_kernel_is_timed_and_its_file_imported_elsewhere_only(tmp_path):
    spec = tmp_path / "bench_spec.py"
    spec.write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "@opsmith.op('timed_spec::add_one')\n"
        "def add_one(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n    return x + 1\n"
        "add_one.register_sizes({'N': 64})\n"
    )
    candidate = tmp_path / "bench_candidate.py"
    candidate.write_text(
        "from bench_spec import add_one\n"
        "@add_one.register_kernel('cpu')\ndef kernel(x):\n    return x + 1\n"
    )
    (operator,) = import_operators(str(spec)).operators
    found = bench.run(operator, candidate=candidate, only=["cpu kernel"], rounds=1)
    assert [one.status for one in found.figures] == ["timed", "timed"], found.figures
    assert "bench_candidate" not in sys.modules
    assert list(operator.kernels) == ["reference"]
