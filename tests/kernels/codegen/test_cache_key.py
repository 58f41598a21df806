"""A built kernel is used again for the same declaration alone."""

from dataclasses import replace

import pytest
from jaxtyping import Float
from torch import Tensor

from opsmith.kernels import generated_key
from opsmith.signature import signature_of


def halved(x: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    raise NotImplementedError


SIGNATURE = signature_of(halved, "keys::halved")


@pytest.mark.parametrize(
    "change",
    [
        {"where": ("N % 2 == 0",)},
        {"data_dependent": ("N",)},
        {"namespace": "others"},
        {"results": ()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_declaration_is_built_anew(change):
    # With the key of the old declaration, the old library would check the old conditions.
    assert generated_key(replace(SIGNATURE, **change)) != generated_key(SIGNATURE)


def test_other_words_in_the_documentation_build_nothing():
    assert generated_key(replace(SIGNATURE, doc="Halve.")) == generated_key(SIGNATURE)
