"""`opsmith check --device`: what is asked for is here, has a kernel of its own, and is checked."""

import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.cases.reruns.rerun_command import command_of
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import subjects_of
from opsmith.errors import DeclarationError, MissingDependencyError


@opsmith.op("devices_asked::on_both", autograd="reference")
def on_both(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


on_both.register_kernel("cpu", lambda x: x * 2)
on_both.register_kernel("npu", lambda x: x * 2)


@opsmith.op("devices_asked::on_npu", autograd="reference")
def on_npu(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


on_npu.register_kernel("npu", lambda x: x * 2)


@opsmith.op("devices_asked::anywhere", autograd="reference")
def anywhere(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


def rows(operator, devices, select=("dispatch", "reference")):
    report = checks.run(
        operator, select=list(select), isolate=False, examples=4, devices=list(devices)
    )
    return {(row.kernel, row.check): row for row in report.rows}


def test_without_it_every_kernel_is_checked_where_its_device_is():
    found = rows(on_both, [])
    assert found["cpu", "dispatch"].status == "passed"
    assert found["npu", "dispatch"].status == "not applicable"


def test_only_what_is_asked_for_is_checked():
    assert {kernel for kernel, _ in rows(on_both, ["cpu"])} == {"cpu"}


def test_a_device_that_is_absent_is_an_error_with_what_to_do():
    with pytest.raises(
        MissingDependencyError,
        match=r"device 'npu': no npu device on this machine\. Run this on a machine that has "
        r"one, with a PyTorch that supports it\. By default, kernels for absent devices "
        r"are left out",
    ):
        checks.run(on_both, devices=["npu"], isolate=False)


def test_a_device_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(DeclarationError, match="device 'gpu': no such device type; there are cpu"):
        checks.run(on_both, devices=["gpu"], isolate=False)


def test_a_fallback_to_the_reference_is_a_failure():
    row = rows(on_npu, ["cpu"])["reference", "dispatch"]
    assert (row.status, row.code) == ("failed", "OPS-DISPATCH-KERNEL")
    assert row.message.startswith(
        "no kernel is registered for 'cpu': calls with cpu tensors run the reference. There are "
        "kernels for npu; register one (register_kernel('cpu', ...)), or leave --device cpu out"
    )
    assert rows(on_npu, [])["reference", "dispatch"].status == "passed"


def test_an_operator_whose_only_kernel_is_its_reference_is_checked_on_any_device():
    assert rows(anywhere, ["cpu"])["reference", "dispatch"].status == "passed"


def test_the_command_that_repeats_a_check_asks_for_the_device_again():
    settings = Settings(devices=("cpu",))
    command = command_of(subjects_of(on_both)[0], "dispatch", settings)
    assert command.endswith("--check dispatch --seed 0 --device cpu")
