"""Faults of operators that write lists of tensors and optional tensors."""

from __future__ import annotations

from jaxtyping import Float32
from pairs import pair
from torch import Tensor

KIND = "lists"


def numbered(xs: list[Float32[Tensor, "N C"]], bias: Float32[Tensor, "C"]) -> None:
    for number, x in enumerate(xs):
        x.mul_(number + 2).add_(bias)


def centred(xs: list[Float32[Tensor, "N C"]], weight: Float32[Tensor, "C"]) -> None:
    for x in xs:
        x.sub_(x[:1] * weight)


def joined(
    xs: list[Float32[Tensor, "N C"]], first: Float32[Tensor, "N C"]
) -> Float32[Tensor, "N C"]:
    return sum(xs, first * 1)


def counted(
    x: Float32[Tensor, "N"], count: Float32[Tensor, "N"] | None = None
) -> Float32[Tensor, "N"]:
    if count is not None:
        count.add_(x)
    return x * 2


def doubled_into(x: Float32[Tensor, "N"], out: Float32[Tensor, "N"]) -> None:
    out.copy_(x * 2)


def _one_left_out(xs, bias):
    numbered(xs[:-1] if len(xs) > 1 else xs, bias)


def _another_written(xs, bias):
    numbered(xs[::-1], bias)


def _written_again(xs, bias):
    numbered(xs, bias)
    if len(xs) == 3:
        xs[0].add_(bias)


def _half_of_many(xs, bias):
    numbered(xs[:4], bias)


pair(KIND, "the last of a list left out", numbered, wrong=_one_left_out, mutates_args=("xs",))
pair(KIND, "another of a list written", numbered, wrong=_another_written, mutates_args=("xs",))
pair(
    KIND, "the first of a list written again", numbered, wrong=_written_again, mutates_args=("xs",)
)
pair(
    KIND, "no more than four of a list written", numbered, wrong=_half_of_many, mutates_args=("xs",)
)


def _state_of_the_one_before(xs, weight):
    firsts = [x[:1].clone() for x in xs]
    for number, x in enumerate(xs):
        x.sub_(firsts[max(number - 1, 0)] * weight)


pair(
    KIND,
    "the state of the one before in a list",
    centred,
    wrong=_state_of_the_one_before,
    mutates_args=("xs",),
)


def _list_as_scratch(xs, first):
    if not xs:
        return first * 1
    for x in xs[1:]:
        xs[0].add_(x)
    return xs[0] + first


def _sum_of_none(xs, first):
    return joined(xs, first) if xs else first


pair(KIND, "a list that is read taken as scratch", joined, wrong=_list_as_scratch, row="mutation")
pair(KIND, "an argument returned for an empty list", joined, wrong=_sum_of_none, row="aliasing")


def _optional_ignored(x, count):
    return x * 2


def _optional_needed(x, count):
    count.add_(x)
    return x * 2


pair(
    KIND,
    "an optional tensor not written",
    counted,
    wrong=_optional_ignored,
    mutates_args=("count",),
)
pair(
    KIND,
    "an error without an optional tensor",
    counted,
    wrong=_optional_needed,
    mutates_args=("count",),
)


def _not_to_the_end(x, out):
    out[: x.shape[0] // 4 * 4] = (x * 2)[: x.shape[0] // 4 * 4]


pair(
    KIND,
    "an out not written to its end",
    doubled_into,
    wrong=_not_to_the_end,
    mutates_args=("out",),
)
