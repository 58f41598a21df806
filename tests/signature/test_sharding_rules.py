"""Which sharding rules follow from a declaration, and why there is none."""

from __future__ import annotations

import declarations
import pytest

from opsmith.signature.sharding import Partial, Replicate, Shard, sharding_rules, unsharded

NOTHING = "neither parallel_dims nor summed_dims claims that slices are independent"


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ('f(x: Float[Tensor, "N C"]) -> Float[Tensor, "C N"]', []),
        (
            'f(x: Float[Tensor, "N C"], w: Float[Tensor, "C"]) -> Float[Tensor, "C N"]; '
            'parallel_dims=("N",)',
            ['parallel_dims=("N",): x Shard(0) → Shard(1)'],
        ),
        (
            'f(x: Float[Tensor, "N *s"]) -> Float[Tensor, "*s N"]; parallel_dims=("N", "*s")',
            [
                'parallel_dims=("N",): x Shard(0) → Shard(-1)',
                'parallel_dims=("*s",): x Shard(1) → Shard(0)',
            ],
        ),
        (
            'f(x: Float[Tensor, "N K"], y: Float[Tensor, "K M"]) -> Float[Tensor, "N M"]; '
            'summed_dims=("K",)',
            ['summed_dims=("K",): x Shard(1), y Shard(0) → Partial()'],
        ),
        # A result with the dimension is sharded beside one that is a sum.
        (
            'f(g: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "N C"], Float[Tensor, "C"]]; '
            'summed_dims=("N",)',
            ['summed_dims=("N",): g Shard(0) → Shard(0), Partial()'],
        ),
        (
            'f(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]; '
            'linear_in=("x", ("x", "y"))',
            [
                'linear_in=("x",): x Partial() → Partial()',
                'linear_in=(("x", "y"),): x Partial(), y Partial() → Partial()',
            ],
        ),
        # Every part of a sorted line is sorted.
        (
            'f(x: Annotated[Float[Tensor, "N"], Sorted()]) -> Float[Tensor, "N"]; '
            'parallel_dims=("N",)',
            ['parallel_dims=("N",): x Shard(0) → Shard(0)'],
        ),
        (
            'f(x: Float[Tensor, "N"], ys: list[Float[Tensor, "2 N"]]) -> Float[Tensor, "N"]; '
            'parallel_dims=("N",)',
            ['parallel_dims=("N",): x Shard(0), ys Shard(1) → Shard(0)'],
        ),
    ],
)
def test_rules_follow_from_claims(line: str, rules: list[str]) -> None:
    first, *found = sharding_rules(declarations.declared(line))
    assert {type(p) for p in (*first.arguments.values(), *first.results)} == {Replicate}
    assert [f"{rule.claim}: {rule}" for rule in found] == rules


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            'f(x: Float[Tensor, "N"], y: Annotated[Int32[Tensor, "M"], Index("N")]) -> '
            'Float[Tensor, "N"]; parallel_dims=("N",)',
            "the values of 'y' are compared with N, which would be smaller in a part",
        ),
        (
            'f(x: Float[Tensor, "N"], y: Float[Tensor, "2*N"]) -> Float[Tensor, "N"]; '
            'parallel_dims=("N",)',
            "the dimension 2*N of 'y' is computed from N, and its parts would not be those of N",
        ),
        (
            'f(x: Float[Tensor, "N N"]) -> Float[Tensor, "N"]; parallel_dims=("N",)',
            "'x' has N twice, and ranks hold parts along one axis",
        ),
        (
            'f(x: Annotated[Int64[Tensor, "N"], Total(3)]) -> Float32[Tensor, "N"]; '
            'parallel_dims=("N",)',
            "the values of 'x' fit together along N, and those of a part need not",
        ),
        (
            'f(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "2"]]; '
            'parallel_dims=("N",)',
            "the result 'out1' has no dimension N; if it is the sum over parts of N, claim "
            'summed_dims=("N",)',
        ),
        (
            'f(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "K"]]; '
            'parallel_dims=("N",), data_dependent=("K",)',
            "the size of K depends on values, and ranks may differ",
        ),
        (
            'f(x: Float[Tensor, "N"], y: Float[Tensor, "1"]) -> Float[Tensor, "N"]; '
            'parallel_dims=("N",), mutates_args=("y",)',
            "every rank would write the whole of 'y', which has no N",
        ),
        (
            'f(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]; parallel_dims=("N",), '
            'where=("N % 2 == 0",)',
            "the size of a part need not satisfy N % 2 == 0",
        ),
        ('f(x: Float[Tensor, "N"]) -> Tensor; parallel_dims=("N",)', None),
        ('f(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]', NOTHING),
        (
            'f(x: Annotated[Float[Tensor, "N"], Positive()]) -> Float[Tensor, "N"]; '
            'parallel_dims=("N",), linear_in=("x",)',
            "the values of 'x' have a range, and the summands of a value need not fit",
        ),
    ],
)
def test_what_gives_no_rule_says_why(line: str, why: str | None) -> None:
    if why is None:
        assert "which no result has as a dimension" in str(declarations.message_of(line))
        return
    signature = declarations.declared(line)
    assert why in [reason for _, reason in unsharded(signature)]
    assert len(sharding_rules(signature)) == 1 + ("range" in why)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('linear_in="x"', """linear_in='x' is a string; write linear_in=("x",)"""),
        ('linear_in=("z",)', "linear_in names 'z', which is no tensor argument; there are x, i"),
        (
            'linear_in=("i",)',
            "linear_in names 'i', and Int32[Tensor, \"N\"] is not floating point",
        ),
        (
            'summed_dims=("K",)',
            "summed_dims names 'K', which no argument binds. Bound are: N",
        ),
        (
            'summed_dims=("N",)',
            "summed_dims names 'N', and no result is a sum over it; if each slice is computed on "
            'its own, claim parallel_dims=("N",)',
        ),
    ],
)
def test_a_claim_that_means_nothing_is_refused(options: str, message: str) -> None:
    line = 'f(x: Float[Tensor, "N"], i: Int32[Tensor, "N"]) -> Float[Tensor, "N"]; ' + options
    assert declarations.message_of(line) == f"ns::f: {message}"


def test_the_gradient_of_a_replicated_argument_is_a_partial_sum() -> None:
    line = (
        'f(x: Float[Tensor, "N"], w: Float[Tensor, "1"]) -> Float[Tensor, "N"]; '
        'parallel_dims=("N",), linear_in=("w",)'
    )
    whole, sharded, summands = sharding_rules(declarations.declared(line))
    assert [rule.gradient("w") for rule in (whole, sharded)] == [Replicate(), Partial()]
    assert sharded.gradient("x") == Shard(0)
    assert [summands.gradient(name) for name in ("x", "w")] == [Partial(), Replicate()]
