"""Find before what PyTorch's own look at custom operators finds in a compiled call."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor
from torch._functorch import config

import opsmith
from opsmith import checks

LIBRARY = torch.library.Library("aliases", "DEF")


def define(name, results, kernel, fake):
    LIBRARY.define(f"{name}(Tensor x) -> {results}")
    LIBRARY.impl(name, kernel, "CPU")
    LIBRARY.impl(name, fake, "Meta")


def like(x):
    return x.new_empty(x.shape)


def halves(x):
    both = x.new_ones(2 * len(x), x.shape[1])
    return both[: len(x)], both[len(x) :]


def writes_into_views(x):
    result = x * 2
    if not x.is_contiguous():
        x.zero_()
    return result


define("itself", "Tensor", lambda x: x.contiguous(), like)
define("view", "Tensor", lambda x: x.clone() if x.is_contiguous() else x, torch.empty_like)
define("in_one", "(Tensor, Tensor)", halves, lambda x: (like(x), like(x)))
define("copied", "Tensor", lambda x: x.clone(memory_format=torch.contiguous_format), like)
define("empty", "Tensor", lambda x: x.clone() if x.numel() else x, like)
define("writes", "Tensor", writes_into_views, like)


def same(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x.clone()


def ones(x: Float32[Tensor, "N C"]) -> tuple[Float32[Tensor, "N C"], Float32[Tensor, "N C"]]:
    return torch.ones_like(x), torch.ones_like(x)


def doubled(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


def said(name, reference, row, examples=12):
    operator = opsmith.adopt(f"aliases::{name}")(reference)
    (row,) = checks.run(operator, select=[row], examples=examples, isolate=False).rows
    return row.message if row.status == "failed" else row.status


@pytest.mark.parametrize(
    ("name", "reference", "x", "expected"),
    [
        ("itself", same, torch.ones(3, 4), "the result shares memory with argument 'x'"),
        ("view", same, torch.ones(4, 3).t(), "the result shares memory with argument 'x'"),
        ("in_one", ones, torch.ones(3, 4), "result 1 shares memory with the result"),
        ("copied", same, torch.ones(4, 3).t(), "passed"),
    ],
)
def test_results_in_the_memory_of_others_are_found_in_the_layouts_that_show_them(
    name, reference, x, expected
):
    operator = getattr(torch.ops.aliases, name)
    compiled = torch.compile(lambda x: operator(x), backend="aot_eager", fullgraph=True)
    with config.patch(check_custom_op_aliasing=True, error_on_custom_op_aliasing=True):
        if expected == "passed":
            compiled(x)
        else:
            with pytest.raises(RuntimeError, match="may not alias"):
                compiled(x)
    assert said(name, reference, "aliasing").startswith(expected)


def test_a_result_without_elements_shares_nothing():
    assert said("empty", same, "aliasing", examples=120) == "passed"


def test_an_argument_that_is_written_for_some_layouts_is_found_with_what_a_schema_says():
    assert said("writes", doubled, "mutation") == (
        "argument 'x' was changed; a schema says so by (a!), and its own does not"
    )
