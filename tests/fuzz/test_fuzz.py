"""A few of the calls that `make fuzz` makes: none crashes, hangs, is wrong or names no argument."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_child import add_to_each, alike, causes, likeness
from fuzz_run import Fuzz


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("runtime", ["eager", "transforms"])
def test_no_call_of_an_operator_crashes_hangs_is_wrong_or_names_no_argument(
    runtime: str, tmp_path: Path
) -> None:
    fuzz = Fuzz(runtime, ["in_python"], tmp_path, "smoke")
    tally = fuzz.calls("in_python", 0, 150)
    fuzz.end()
    assert sum(tally.counts.values()) == 150
    assert tally.counts["accepted"] > 20
    assert tally.refused > 20
    bad = [note for note in tally.notes if note[0] in ("wrong", "crashed", "hung", "unnamed")]
    assert not bad


def test_a_baseline_returns_a_sum_for_every_tensor_so_that_no_compiler_leaves_one_out() -> None:
    found = add_to_each(torch.ones(2), xs=[torch.ones(3), np.ones(4)], k=2.0)
    assert [one.shape[0] for one in found] == [2, 3, 4]


def test_a_baseline_mixes_tensors_with_values_and_without_as_a_call_does() -> None:
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2))
    call = {"x": fake, "rows": torch.ones(3)}
    with pytest.raises(AssertionError, match="convert all Tensors to FakeTensors first"):
        torch.compile(likeness(call), backend="eager")(**call)
    assert likeness({"x": fake, "xs": [fake]}) is likeness({"x": torch.ones(2)}) is add_to_each


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (TypeError("torch._ops.fuzz.take has"), TypeError("torch._ops.aten.add has"), True),
        (RuntimeError("at 0x7f: level 1"), RuntimeError("at 0x3e: level 2"), True),
        (RuntimeError("refused"), None, False),
        (RuntimeError("refused"), TypeError("refused"), False),
        (RuntimeError("fake call\ngot A('x')"), RuntimeError("fake call\ngot B('y')"), False),
        (AssertionError("mixed. Found in a(x)"), AssertionError("mixed. Found in b(y)"), True),
        (RuntimeError("raised:\nno batch"), RuntimeError("raised:\nno layout"), False),
    ],
)
def test_an_error_counts_as_pytorchs_own_only_where_torch_add_raises_the_same(
    one: Exception, other: Exception | None, same: bool
) -> None:
    assert alike(one, other) is same


def test_the_errors_that_a_compiler_wrapped_are_found() -> None:
    def backend(*_: object) -> None:
        raise KeyError("met by the backend")

    with pytest.raises(RuntimeError) as caught:
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert any(isinstance(one, KeyError) for one in causes(caught.value))
