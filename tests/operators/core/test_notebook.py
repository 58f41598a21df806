"""Kernels as text, and operators and reports as HTML, for notebooks."""

import re
from html.parser import HTMLParser

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import BuildError, checks

KERNEL = """
#include <opsmith/kernel.h>
#include "thrice.h"

template <typename T>
void thrice(const opsmith::Context& ctx, const notebook::thrice_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 3 * a.x[i];
}
OPSMITH_KERNEL(notebook, thrice, cpu, float, double)
"""


def declared():
    """Declare the operator, as running a cell again does."""

    @opsmith.op("notebook::thrice")
    def thrice(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        """Multiply by <three>."""
        return x * 3

    return thrice


@pytest.mark.slow
def test_a_kernel_as_text_runs_and_a_changed_cell_takes_its_place():
    first = declared()
    first.register_kernel("cpu", source=opsmith.cpp(KERNEL))
    assert first(torch.ones(2)).tolist() == [3, 3]
    assert first.kernels["cpu"].calls == 1

    again = declared()
    again.register_kernel("cpu", source=opsmith.cpp(KERNEL.replace("= 3 *", "= 5 *")))
    assert again(torch.ones(2)).tolist() == [5, 5]

    broken = declared()
    broken.register_kernel("cpu", source=opsmith.cpp(KERNEL.replace("a.x[i];", "a.x[i]")))
    with pytest.raises(BuildError, match=r"kernel\.cpp:7:\d+"):
        broken(torch.ones(2))


def test_the_same_text_is_the_same_file():
    assert opsmith.cpp(KERNEL) == opsmith.cpp(KERNEL)
    assert opsmith.cpp(KERNEL) != opsmith.cpp(KERNEL + "\n")
    assert opsmith.cuda(KERNEL).suffix == ".cu"


class _Open(HTMLParser):
    """Collects the tags that are left open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def sound(text: str) -> str:
    parser = _Open()
    parser.feed(text)
    assert parser.open == []
    return re.sub("<[^>]*>", "", text)


def test_reports_are_shown_as_html():
    operator = declared()
    report = checks.run(operator, select=["mutation"], examples=5, isolate=False)
    told = sound(report._repr_html_())
    assert "mutation" in told
    assert "1 passed" in told
