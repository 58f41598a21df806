"""Kernels in Triton run on the CPU: right ones pass, and each planted fault is found."""

import os
import re

import pytest
import torch

import opsmith
from opsmith import checks

if not os.environ.get("OPSMITH_REQUIRE_TRITON"):
    pytest.importorskip("triton", reason="no Triton here; make triton installs it and runs these")
import triton_kernels
from triton_kernels import (
    FAULTY,
    atomic_total,
    launched,
    row_sums,
    scale,
    total,
    tuned,
    tuned_wrongly,
)


@pytest.mark.parametrize("operator", [scale, launched], ids=["a kernel", "a function"])
def test_emulate_runs_the_kernel_on_the_cpu(operator):
    x, weight = torch.randn(5, 7, requires_grad=True), torch.randn(7)
    before = operator.kernels["cuda"].calls
    with opsmith.emulate("cuda"):
        pooled = operator(x, weight, 0.5)
        pooled.sum().backward()
        torch.testing.assert_close(pooled, x * weight * 0.5)
        torch.testing.assert_close(x.grad, (weight * 0.5).expand(5, 7))
        assert operator.kernels["cuda"].calls == before + 1
        # Transposed tensors are made contiguous, nothing is launched for empty ones.
        torch.testing.assert_close(operator(x.T.clone().T, weight, 1.0), x * weight)
        assert operator(torch.ones(0, 7), weight, 1.0).shape == (0, 7)
        with pytest.raises(opsmith.ArgumentError, match=r"'weight' does not fit .*expected 7"):
            operator(x, torch.ones(3), 1.0)
    operator(x, weight, 0.5)
    assert operator.kernels["cuda"].calls == before + 3


def test_results_begin_as_nan_and_stay_as_they_were_set_before():
    with opsmith.emulate("cuda"):
        copied = FAULTY["leaves_some_unwritten"](torch.ones(5))
    assert copied[:4].tolist() == [1.0] * 4 and copied[4].isnan()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        (
            "reads_beside",
            "OPS-MEMORY-BOUNDS",
            r"program \(\d+, 0, 0\) reads 4 bytes as element (\d+) of 'x', which has \1\n"
            r"  at .*triton_kernels\.py:\d+",
        ),
        ("writes_beside", "OPS-MEMORY-BOUNDS", r"writes 4 bytes as element (\d+) of 'out', .* \1"),
        ("leaves_some_unwritten", "OPS-VALUE-", "is nan, expected"),
        (
            "one_place_for_two_lanes",
            "OPS-CUDA-RACE",
            "one store writes several values to element 0 of 'out'",
        ),
        (
            "reads_what_the_next_writes",
            "OPS-CUDA-RACE",
            r"a race: \w+ element \d+ of 'out', which program \(\d, 0, 0\) (writes|reads)",
        ),
        ("wrong_value", "OPS-VALUE-", r"result\[3\] is"),
        ("takes_what_the_mask_leaves_out", "OPS-VALUE-", "is nan, expected"),
        ("takes_memory_as_contiguous", "OPS-", r"takes_memory_as_contiguous|result\["),
    ],
)
def test_each_planted_fault_is_found(name, code, words):
    report = checks.run(FAULTY[name], select=["triton-interpreter"], examples=20, isolate=False)
    (row,) = [row for row in report.rows if row.check == "triton-interpreter"]
    assert row.status == "failed" and row.code.startswith(code), row.message
    assert re.search(words, row.message), row.message


def test_every_configuration_of_an_autotuner_runs_that_it_does_not_prune():
    report = checks.run(tuned, select=["triton-interpreter"], examples=20, isolate=False)
    (row,) = [row for row in report.rows if row.check == "triton-interpreter"]
    assert row.status == "passed", row.message
    wrong = checks.run(tuned_wrongly, select=["triton-interpreter"], examples=20, isolate=False)
    (row,) = [row for row in wrong.rows if row.check == "triton-interpreter"]
    assert row.status == "failed", row.message
    assert "with programs shuffled, in the configuration BLOCK=16, ROUNDS=2" in row.message


def test_programs_that_read_and_write_one_place_race_and_atomic_ones_do_not():
    with opsmith.emulate("cuda"):
        with pytest.raises(opsmith.OpsmithError, match=r"a race: reads element 0 of 'out', which"):
            total(torch.ones(20), torch.zeros(1))
        out = torch.zeros(1)
        atomic_total(torch.ones(20), out)
    assert out.tolist() == [20.0]


def test_a_right_kernel_passes_in_every_dtype_that_the_interpreter_has():
    report = checks.run(scale, select=["triton-interpreter"], examples=10, isolate=False)
    (row,) = [row for row in report.rows if row.check == "triton-interpreter"]
    assert row.status == "passed", row.message
    assert row.cases >= 10
    assert "Triton's interpreter does not compute with bfloat16" in row.notes


def test_a_constant_may_be_a_dimension():
    with opsmith.emulate("cuda"):
        for columns in (1, 5, 300):
            x = torch.randn(4, columns)
            torch.testing.assert_close(row_sums(x), x.sum(1))


def test_the_users_functions_are_left_as_they_are():
    names = set(vars(triton_kernels))
    with opsmith.emulate("cuda"):
        scale(torch.ones(2, 2), torch.ones(2), 1.0)
    assert set(vars(triton_kernels)) == names
    with pytest.raises(RuntimeError, match="outside of the scope of a kernel"):
        triton_kernels.scaled(1, 2)


@pytest.mark.parametrize("operator", [scale, launched], ids=["a kernel", "a function"])
def test_a_compiler_sees_the_launch_for_tensors_of_the_device_alone(operator):
    from torch._functorch.aot_autograd import aot_export_module
    from torch._subclasses import FakeTensorMode

    class Scaled(torch.nn.Module):
        def forward(self, x, weight):
            return (operator(x, weight, 2.0) + 1,)

    def graph(device):
        with FakeTensorMode():
            x, weight = torch.empty(5, 7, device=device), torch.empty(7, device=device)
            return aot_export_module(Scaled(), (x, weight), trace_joint=False)[0].code

    assert "triton_kernel_wrapper_functional" in graph("cuda")
    assert "triton_kernel_wrapper" not in graph("cpu")
    assert operator.signature.name in graph("cpu")
    with operator.set_kernel_enabled("cuda", False):
        assert "triton_kernel_wrapper" not in graph("cuda")
