"""The rule of the sizes that fail is told where one is seen, and only there."""

import random
from typing import Literal

import pytest
import torch
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.trial.size_rules import find_rule

INEXACT = [0.1, 0.3, 1e9]
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 130]


def cases(fails, count=60, seed=0, **choices):
    """Draw facts, and part them by whether a kernel fails; return the rule's words."""
    rng = random.Random(seed)
    drawn = [{name: rng.choice(values) for name, values in choices.items()} for _ in range(count)]
    failing = [facts for facts in drawn if fails(**facts)]
    rule = find_rule(failing, [facts for facts in drawn if facts not in failing])
    return rule and rule.words


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda N, C: C % 4 != 0, "C is no multiple of 4"),
        (lambda N, C: N % 8 == 0, "N is a multiple of 8"),
        (lambda N, C: N == 0, "N is 0"),
        (lambda N, C: C == 17, "C is 17"),
        (lambda N, C: C < 2, "C is 0 or 1"),
        (lambda N, C: N > 16, "N > 16"),
        (lambda N, C: N > 20, "N >= 31, not up to 18"),
        (lambda N, C: N < 3, "N < 3"),
        (lambda N, C: N == C, "N and C are equal"),
        (lambda N, C: N != C, "N and C are not equal"),
        (lambda N, C: N > C, "N > C"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_rule_of_sizes_is_found(fails, words, seed):
    sizes = [*SIZES, 6, 12, 18]
    if words == "N > 16":
        sizes = list(range(34))
    assert cases(fails, 300, seed, N=sizes, C=sizes) == words


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda N, flag, mode, k, scale: flag, "flag is True"),
        (lambda N, flag, mode, k, scale: mode == "b", "mode is b"),
        (lambda N, flag, mode, k, scale: k < 0, "k < 0"),
        (lambda N, flag, mode, k, scale: k > 2, "k > 2"),
        (lambda N, flag, mode, k, scale: scale != 1.0, "scale is not 1.0"),
        (
            lambda N, flag, mode, k, scale: scale in INEXACT,
            "scale is not exact in bfloat16",
        ),
    ],
)
def test_a_rule_of_numbers_flags_and_choices_is_found(fails, words):
    inexact = INEXACT if "bfloat16" in words else [0.1]
    choices = {"flag": [True, False], "mode": ["a", "b", "c"], "k": [-3, -1, 0, 1, 2, 3, 4, 5]}
    assert cases(fails, N=SIZES, **choices, scale=[1.0, 1.0, 0.5, 3.0, *inexact]) == words


@pytest.mark.parametrize("seed", range(20))
def test_chance_is_no_rule(seed):
    rng = random.Random(seed)
    choices = {"N": SIZES, "C": SIZES, "k": [0, 1, 2, 3], "flag": [True, False]}
    # Likelier in large cases, as what depends on values is.
    fails = {n: rng.random() for n in range(1000)}
    turn = iter(range(1000))
    assert cases(lambda N, C, k, flag: fails[next(turn)] * 60 < N, 60, seed, **choices) is None


def test_too_few_cases_make_no_rule():
    assert find_rule([{"N": 0}] * 3, [{"N": n} for n in range(1, 30)]) is None
    assert find_rule([{"N": n} for n in (4, 5, 6, 7)], [{"N": n} for n in (0, 1, 2, 3)]) is None
    # One size among few says nothing of those beside it.
    few = [{"N": n} for n in (1, 2, 3, 4, 5, 7, 8, 9) * 3]
    assert find_rule([{"N": 1024}] * 6, few) is None
    found = find_rule([{"N": n} for n in range(2, 30)], [{"N": 1}] * 6)
    assert found and found.words == "N > 1"
    # A failure wherever there is an element says nothing of sizes.
    assert find_rule([{"N": n} for n in range(1, 30)], [{"N": 0}] * 10) is None


@pytest.fixture
def patient(monkeypatch):
    """Let a busy machine try as many cases as a quiet one."""
    monkeypatch.setattr("opsmith.checks.trial.size_rules._SECONDS", 60.0)


def declared(name, kernel):
    @opsmith.op(f"size_rules::{name}")
    def doubled(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x * 2

    doubled.register_kernel("cpu", kernel)
    return doubled


def _no_tail(x):
    whole = x.shape[1] // 4 * 4
    return torch.cat([x[:, :whole] * 2, x[:, whole:]], 1)


def _first_hundred(x):
    return torch.cat([x[:100] * 2, x[100:]])


def _not_of_none(x):
    if not x.shape[0]:
        raise RuntimeError("nothing")
    return x * 2


def _transposed_if_square(x):
    return (x.t() if x.shape[0] == x.shape[1] else x) * 2


def _not_above(x):
    return torch.where(x > 1.7, 0.0, x * 2)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("kernel", "code", "words"),
    [
        (_no_tail, "OPS-SIZE-BOUNDARY", "sizes: wrong where C is no multiple of 4 ("),
        (_first_hundred, "OPS-SIZE-BOUNDARY", "sizes: wrong where N > 100 ("),
        (_not_of_none, "OPS-CALL-RAISED", "sizes: raises where N is 0 ("),
        (
            _transposed_if_square,
            "OPS-VALUE-WRONG",
            "sizes: wrong where N and C are equal, but for sizes of 0 and 1 (",
        ),
        (_not_above, "OPS-VALUE-WRONG", ""),
        (lambda x: x * 3, "OPS-VALUE-WRONG", ""),
    ],
)
def test_a_failure_says_which_sizes_have_it(kernel, code, words, seed, patient):
    operator = declared(f"{kernel.__name__.strip('<>')}_{seed}", kernel)
    (row,) = checks.run(operator, select=["reference"], isolate=False, seed=seed).rows
    assert row.code == code
    last = row.message.splitlines()[-1]
    assert last.startswith(words) if words else "sizes: " not in row.message
    if words:
        assert last.endswith(" others are right)")


@opsmith.op("size_rules::scaled")
def scaled(
    x: Float32[Tensor, "N"], w: Float32[Tensor, "N"] | None, flip: bool = False, by: float = 1.0
) -> Float32[Tensor, "N"]:
    return (x if w is None else x * w) * (-by if flip else by)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (lambda x, w, flip, by: scaled.reference(x, w, False, by), "flip is True"),
        (lambda x, w, flip, by: scaled.reference(x, w, flip, 1.0), "by is not 1.0"),
        (lambda x, w, flip, by: scaled.reference(x, w, flip, by) + (w is not None), "w is given"),
    ],
)
def test_a_failure_says_which_arguments_have_it(kernel, words, patient):
    scaled.register_kernel("cpu", kernel)
    (row,) = checks.run(scaled, select=["reference"], isolate=False).rows
    assert row.message.splitlines()[-1].startswith(f"sizes: wrong where {words} (")
    assert row.code == ("OPS-VALUE-WRONG" if words == "w is given" else "OPS-ARGUMENT-NUMBER")


@opsmith.op("size_rules::reduced")
def reduced(
    x: Float32[Tensor, "N C"], mode: Literal["sum", "mean", "max"] = "sum"
) -> Float32[Tensor, "N"]:
    return {"sum": x.sum, "mean": x.mean, "max": x.amax}[mode](1) if x.shape[1] else x.sum(1)


@pytest.mark.slow
def test_a_choice_is_named_that_makes_no_difference_in_some_cases_with_sizes_of_0_and_1(patient):
    reduced.register_kernel(
        "cpu", lambda x, mode: reduced.reference(x, "sum" if mode == "mean" else mode)
    )
    (row,) = checks.run(reduced, select=["reference"], isolate=False).rows
    words = "sizes: wrong where mode is mean, and not always with sizes of 0 and 1 ("
    assert row.message.splitlines()[-1].startswith(words)
    assert row.code == "OPS-ARGUMENT-NUMBER"


@pytest.mark.slow
def test_a_number_is_named_that_is_rounded(patient):
    @opsmith.op("size_rules::multiplied")
    def multiplied(x: Float32[Tensor, "N"], by: float = 1.0) -> Float32[Tensor, "N"]:
        return x * by

    def rounded(x, by):
        return x * float(torch.tensor(by, dtype=torch.bfloat16))

    multiplied.register_kernel("cpu", rounded)
    (row,) = checks.run(multiplied, select=["reference"], isolate=False).rows
    words = "sizes: wrong where by is not exact in bfloat16 ("
    assert row.message.splitlines()[-1].startswith(words)
    assert row.code == "OPS-ARGUMENT-NUMBER"


def test_an_empty_list_whose_sizes_nobody_knows_is_no_obstacle():
    @opsmith.op("size_rules::numbered", mutates_args=("xs",))
    def numbered(xs: list[Float32[Tensor, "N C"]], bias: Float32[Tensor, "C"]) -> None:
        for number, x in enumerate(xs):
            x.mul_(number + 2).add_(bias)

    numbered.register_kernel("cpu", lambda xs, bias: numbered.reference(xs[::-1], bias))
    (row,) = checks.run(numbered, select=["reference"], isolate=False).rows
    assert row.code == "OPS-VALUE-WRONG", row.message


def test_a_number_that_is_not_finite_is_not_told_where_numbers_are_wrong():
    @opsmith.op("size_rules::variance")
    def variance(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
        return x.var(1, correction=0)

    variance.register_kernel("cpu", lambda x: x.var(1))  # NaN for one number
    (row,) = checks.run(variance, select=["reference"], isolate=False).rows
    assert row.code == "OPS-VALUE-WRONG"
    assert "nan" not in row.message


def test_a_dtype_is_named_where_others_are_right():
    operator = declared("halves", lambda x: x * (3 if x.dtype == torch.float16 else 2))
    (row,) = checks.run(operator, select=["reference"], isolate=False).rows
    assert row.message.splitlines()[-1] == "In float32 and float64, it is right."


def test_no_dtype_is_named_where_others_fail_for_these_sizes():
    @opsmith.op("size_rules::tripled")
    def tripled(x: Float[Tensor, "C T"]) -> Float[Tensor, "C T"]:
        return 3 * x

    tripled.register_kernel("cpu", lambda x: (3 - (tuple(x.shape) == (11, 13))) * x)

    @tripled.register_cases
    def _(dtype, seed):
        if dtype == torch.bfloat16:
            yield {"x": torch.ones(11, 13, dtype=dtype)}

    (row,) = checks.run(tripled, select=["reference"], isolate=False).rows
    assert "(bfloat16)" in row.message and "it is right" not in row.message, row.message


@pytest.mark.slow
def test_a_size_is_named_only_if_it_fails_whatever_the_values(patient):
    @opsmith.op("size_rules::log_of_sum")
    def log_of_sum(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
        return torch.logsumexp(x, 1)

    # For one element near zero the formula loses most digits; elsewhere it is right.
    log_of_sum.register_kernel("cpu", lambda x: x.exp().sum(1).log())
    (row,) = checks.run(log_of_sum, select=["reference"], isolate=False).rows
    assert row.code == "OPS-VALUE-WRONG"
    assert "sizes: " not in row.message


@opsmith.op("size_rules::within")
def within(x: Float32[Tensor, "N"], low: float = -1.0, high: float = 1.0) -> Float32[Tensor, "N"]:
    return x.clamp(low, high)


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize(
    ("kernel", "code", "words"),
    [
        (lambda x, low, high: x.clamp(-1.0, high), "OPS-ARGUMENT-NUMBER", "low=-1.0"),
        (lambda x, low, high: x.clamp(-1.0, 1.0), "OPS-ARGUMENT-NUMBER", ""),
        (lambda x, low, high: x.clamp(low, high) + 1, "OPS-VALUE-WRONG", None),
        (lambda x, low, high: x * 0, "OPS-VALUE-WRONG", None),
        (lambda x, low, high: x.clamp(low, 1 - low), "OPS-VALUE-WRONG", None),
    ],
)
def test_a_number_is_told_that_is_not_read(kernel, code, words, patient):
    within.register_kernel("cpu", kernel)
    (row,) = checks.run(within, select=["reference"], isolate=False).rows
    assert row.code == code, row.message
    last = row.message.splitlines()[-1]
    if words is None:
        assert "Not read" not in row.message
    else:
        assert last.startswith(f"Not read: with {words}")
        assert last.endswith(", the results are the same.")


def test_a_size_for_which_nothing_is_written_is_told_as_the_size(patient):
    @opsmith.op("size_rules::added", mutates_args=("total",))
    def added(total: Float32[Tensor, "C"], x: Float32[Tensor, "N C"]) -> None:
        total.add_(x.sum(0))

    def kernel(total, x):
        if x.shape[0] > 1:
            total.add_(x.sum(0))

    added.register_kernel("cpu", kernel)
    (row,) = checks.run(added, select=["reference"], isolate=False).rows
    assert row.code == "OPS-SIZE-SMALL"
    assert "\n'total' is as it was: nothing was written into it, or what it held." in row.message
    assert "\nsizes: wrong where N is 1 (" in row.message


_NO_TAIL = """
#include <opsmith/kernel.h>
#include "tailless.h"
void tailless(const opsmith::Context&, const size_rules::tailless_args& a) {
  for (int64_t i = 0; i < a.N / 4 * 4; ++i) a.out[i] = 2 * a.x[i];
}
OPSMITH_KERNEL(size_rules, tailless, cpu)
"""


@pytest.mark.slow
def test_sizes_are_told_of_a_compiled_kernel_that_leaves_elements_unwritten(patient, tmp_path):
    @opsmith.op("size_rules::tailless")
    def tailless(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * 2

    (tmp_path / "tailless.cpp").write_text(_NO_TAIL)
    tailless.register_kernel("cpu", source=tmp_path / "tailless.cpp")
    (row,) = checks.run(tailless, select=["bounds"], isolate=False).failures
    assert row.code == "OPS-RESULT-UNWRITTEN"
    first, rule = row.message.splitlines()
    assert first == "the result[0] was never written"
    assert rule.startswith("sizes: wrong where N is no multiple of 4 (")


def test_empty_lists_which_have_no_dtype_are_told_as_others():
    @opsmith.op("size_rules::halved", mutates_args=("xs",))
    def halved(xs: list[Float[Tensor, "?*S"]]) -> None:
        for x in xs:
            x.mul_(0.5)

    def kernel(xs):
        if not xs:
            raise ValueError("an empty list is not supported")
        halved.reference(xs)

    halved.register_kernel("cpu", kernel)
    report = checks.run(halved, select=["reference"], isolate=False)
    (row,) = (row for row in report.rows if row.check == "reference")
    assert "ValueError: an empty list is not supported" in row.explain()
