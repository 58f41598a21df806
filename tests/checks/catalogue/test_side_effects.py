"""What a call leaves behind is found, and so is a result that depends on other calls."""

import gc
import re
import threading

import numpy
import pytest
import torch
from jaxtyping import Float, Float32, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.cases.sampling import _Sampler
from opsmith.checks.catalogue import side_effects

pytestmark = pytest.mark.slow(cases=2)


def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def operator(name, kernel):
    made = opsmith.op(f"side_effects::{name}")(doubled)
    made.register_kernel("cpu", kernel)
    return made


def failures(name, kernel, rows=("side-effects", "statefulness")):
    report = checks.run(operator(name, kernel), select=rows, examples=12, isolate=False)
    return {row.check: row.message for row in report.failures}


def left(change):
    def kernel(x):
        change()
        return x * 2

    return kernel


KEPT = []


def keeping(x):
    KEPT.append(x)
    return x * 2


@pytest.mark.parametrize(
    ("name", "kernel", "words"),
    [
        ("grad", left(lambda: torch.set_grad_enabled(False)), "whether gradients are recorded"),
        ("dtype", left(lambda: torch.set_default_dtype(torch.float64)), "the default dtype"),
        ("threads", left(lambda: torch.set_num_threads(7)), "the number of threads (1 → 7)"),
        ("denormals", left(lambda: torch.set_flush_denormal(True)), "whether denormal numbers"),
        ("collection", left(gc.disable), "whether garbage is collected (True → False)"),
        ("numpy", left(lambda: numpy.random.seed(0)), "the state of NumPy's random numbers"),
        ("errors", left(lambda: numpy.seterr(all="ignore")), "NumPy's floating-point errors are"),
        ("random", left(lambda: torch.rand(1)), "drew from PyTorch's global random numbers"),
        ("keeping", keeping, "argument 'x' is still referenced after the call"),
    ],
)
def test_what_a_call_leaves_behind_is_named_and_put_back(name, kernel, words):
    found = failures(name, kernel)
    assert words in found["side-effects"]
    assert torch.is_grad_enabled()
    assert gc.isenabled()
    assert torch.get_default_dtype() is torch.float32
    assert torch.tensor(1e-40) * 1.0 != 0


def in_a_cycle(x):
    held = [x]
    held.append(held)
    return x * 2


def test_an_argument_in_a_cycle_that_nothing_else_holds_is_given_back():
    assert failures("in_a_cycle", in_a_cycle) == {}


class Remembering:
    """Results kept under the address, the shape and the first element."""

    def __init__(self):
        self.results = {}

    def __call__(self, x):
        key = (x.data_ptr(), x.shape, tuple(x[:1].tolist()))
        if key not in self.results:
            self.results[key] = x * 2
        return self.results[key].clone()


class Counting:
    def __init__(self, limit):
        self.calls, self.limit = 0, limit

    def __call__(self, x):
        self.calls += 1
        return x * (2 if self.calls < self.limit else 3)


class Buffer:
    def __init__(self):
        self.memory = torch.empty(0)

    def __call__(self, x):
        if self.memory.shape[0] < x.shape[0]:
            self.memory = x.new_empty(x.shape[0])
        return torch.mul(x, 2, out=self.memory[: x.shape[0]])


@pytest.mark.parametrize(
    ("name", "kernel", "words"),
    [
        ("remembering", Remembering(), "with the same tensors, other values in them: the result["),
        ("counting", Counting(300), " calls: the result["),
        ("buffer", Buffer(), "the result of an earlier call changed afterwards"),
    ],
)
def test_a_result_that_depends_on_other_calls_is_found(name, kernel, words):
    # Alone, since threads that call at once fill the buffer too, which would be the cause told.
    assert words in failures(name, kernel, ["statefulness"])["statefulness"]


def test_a_fault_from_the_3000th_call_on_is_found_however_slow_the_calls_are(monkeypatch):
    # As if each call took so long that the time for further calls is over at once.
    monkeypatch.setattr(side_effects, "_ENOUGH_SECONDS", 0.0)
    assert " calls: the result[" in failures("late", Counting(3000))["statefulness"]


def test_a_row_that_has_no_time_for_3000_calls_is_cut_short(pass_time):
    def slow(x):
        pass_time(0.5)
        return x * 2

    report = checks.run(
        operator("slow", slow), select=["statefulness"], examples=12, isolate=False, seconds=500
    )
    row = report.rows[-1]
    assert row.status == "cut short"
    assert re.fullmatch(
        r"stopped after 500 s and \d+ calls with equal arguments; 3000 were due", row.message
    )


def test_two_calls_at_once_that_meet_are_found():
    shared = {}

    def meeting(x):
        shared["x"] = x.clone()
        threading.Event().wait(0.02)
        return shared["x"] * 2

    assert failures("meeting", meeting, ["side-effects"])["side-effects"].startswith(
        "called by two threads at once: "
    )


def test_a_kernel_that_leaves_nothing_behind_passes():
    assert failures("right", lambda x: x * 2) == {}


def positive(x):
    if x.min() < 0:
        raise ValueError("positive numbers alone, please")
    return x * 2


@pytest.mark.parametrize(
    ("name", "kernel", "wrong"), [("right", positive, []), ("held", Remembering(), ["other"])]
)
def test_other_values_are_those_that_the_reference_takes(name, kernel, wrong):
    @opsmith.op(f"side_effects::positive_{name}")
    def owned(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return positive(x)

    owned.register_kernel("cpu", kernel)

    @owned.register_cases
    def _(dtype, seed):
        yield {"x": torch.tensor([0.5, 0.25, 1.0])}

    report = checks.run(owned, select=["statefulness"], examples=12, isolate=False)
    said = [row.message.partition(" values")[0].rpartition(" ")[2] for row in report.failures]
    assert said == wrong, report.explain()


def test_a_case_without_the_tensors_of_a_dtype_variable_is_called_again():
    Ids = opsmith.DtypeVar("Ids", Int32, Int64)

    @opsmith.op("side_effects::counted")
    def counted(
        x: Ids[Tensor, "N"], weights: Float[Tensor, "N"] | None = None
    ) -> Float32[Tensor, "N"]:
        return x.float() * 2

    counted.register_kernel("cpu", lambda x, weights=None: x.float() * 2)

    @counted.register_cases(only=True)
    def _(dtype, seed):
        yield {"x": torch.arange(3, dtype=dtype["Ids"]) + seed, "weights": None}

    report = checks.run(counted, select=["statefulness", "vmap"], examples=12, isolate=False)
    assert report.ok, report.explain()


def test_few_pairs_of_many_dimensions_are_drawn_in_vain(monkeypatch):
    @opsmith.op("side_effects::wide")
    def wide(x: Float[Tensor, "A B C"], y: Float[Tensor, "D E F"]) -> Float[Tensor, "A D"]:
        return x.sum((1, 2))[:, None] + y.sum((1, 2))

    drawn = []
    original = _Sampler.case

    def case(self):
        drawn.append(None)
        return original(self)

    monkeypatch.setattr(_Sampler, "case", case)
    report = checks.run(wide, select=["side-effects"], isolate=False)
    assert report.ok, report.explain()
    (row,) = (row for row in report.rows if row.check == "side-effects")
    # Two for each pair, and some whose shapes are equal.
    assert row.cases <= len(drawn) < 5 * row.cases
