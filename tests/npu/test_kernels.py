"""Kernels on a PrivateUse1 device: dispatch, its stream, its messages, its checks."""

from pathlib import Path

import pytest
import torch
from on_device import on_device

import opsmith
from opsmith import checks
from opsmith.kernels import find_device

pytestmark = pytest.mark.slow  # a device of the tests, and kernels for it


@pytest.mark.slow
@on_device
def test_a_call_runs_the_kernel_of_the_tensors_device() -> None:
    from operators import add_scaled

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    kernel = add_scaled.kernels["npu"]
    for device in ("npu:0", "npu:1"):
        before = kernel.calls
        result = add_scaled(x.to(device), y.to(device), 2.0)
        assert (str(result.device), kernel.calls) == (device, before + 1)
        torch.testing.assert_close(result.cpu(), x + 2 * y)
    before = kernel.calls
    torch.testing.assert_close(add_scaled(x, y, 2.0), x + 2 * y)
    assert kernel.calls == before


@pytest.mark.slow
@on_device
def test_the_stream_of_a_call_is_the_current_queue_of_its_device_and_nobody_waits() -> None:
    from backend import held, pushed
    from operators import add_scaled

    for device in (0, 1):
        x = torch.ones(3, device=f"npu:{device}")[:, None]
        add_scaled(x, x, 2.0)
        other = torch.Stream(device=f"npu:{device}")
        torch.accelerator.synchronize(device)
        before = {number: pushed(device, number) for number in (0, other.stream_id)}
        with other, held(device, other.stream_id):
            result = add_scaled(x, x, 2.0)
            assert not other.query()
        assert pushed(device, other.stream_id) > before[other.stream_id]
        assert pushed(device) == before[0]
        other.synchronize()
        assert result.flatten().tolist() == [3, 3, 3]


@on_device
def test_calls_on_two_streams_keep_their_scratch_memory_until_their_own_stream_is_done() -> None:
    from backend import held
    from operators import add_scaled

    x = torch.ones(64, 64, device="npu")
    one, two = torch.Stream(device="npu:0"), torch.Stream(device="npu:0")
    torch.accelerator.synchronize()
    with held(0, one.stream_id), held(0, two.stream_id):
        with one:
            first = add_scaled(x, x, 2.0)
        with two:
            second = add_scaled(x, x, 3.0)
        # Both calls are over, and what the default stream freed is gone.
        add_scaled(x, x, 4.0).cpu()
    one.synchronize()
    two.synchronize()
    assert (set(first.flatten().tolist()), set(second.flatten().tolist())) == ({3.0}, {4.0})


@on_device
def test_a_result_is_used_on_another_stream_after_an_event() -> None:
    from backend import held
    from operators import add_scaled

    x = torch.ones(3, 3, device="npu")
    one, two = torch.Stream(device="npu:0"), torch.Stream(device="npu:0")
    torch.accelerator.synchronize()
    with held(0, one.stream_id):
        with one:
            made = add_scaled(x, x, 2.0)
            event = torch.Event(device="npu:0")
            event.record(one)
        two.wait_event(event)
        with two:
            used = add_scaled(made, x, 1.0)
        assert not two.query()
    two.synchronize()
    assert used.flatten().tolist() == [4.0] * 9


@pytest.mark.slow
@on_device
def test_values_on_the_device_are_trusted_and_the_host_neither_reads_nor_waits() -> None:
    from backend import held
    from operators import pick_rows

    x = torch.arange(6.0, device="npu").reshape(3, 2)
    index = torch.tensor([2, 7], device="npu")
    with held():
        result = pick_rows(x, index)
    assert result.tolist() == [[4.0, 5.0], [-1.0, -1.0]]
    report = checks.run(
        pick_rows, select=["validation"], devices=["npu"], isolate=False, examples=4
    )
    (row,) = [row for row in report.rows if row.check == "validation"]
    assert row.status == "passed"
    assert "not the values of index: the host does not read memory of npu" in row.notes


@on_device
def test_a_stream_that_the_backend_does_not_tell_is_an_error_that_says_so() -> None:
    from backend import untold_streams
    from operators import add_scaled

    x = torch.ones(2, 2, device="npu:1")
    with untold_streams(), pytest.raises(RuntimeError) as caught:
        add_scaled(x, x, 1.0)
    assert str(caught.value).splitlines()[0] == (
        "npu_tests::add_scaled: ctx.stream(): the backend of npu:1 tells PyTorch no native handle "
        "of its streams; ask its own library for the stream"
    )
    assert add_scaled(x, x, 1.0).tolist() == [[2.0, 2.0], [2.0, 2.0]]


@on_device
def test_tensors_on_two_devices_are_refused_by_both_names() -> None:
    from operators import add_scaled

    x = torch.ones(2, 2)
    for one, other in (("npu:0", "npu:1"), ("npu:1", "cpu"), ("cpu", "npu:0")):
        with pytest.raises(opsmith.ArgumentError) as caught:
            add_scaled(x.to(one), x.to(other), 1.0)
        assert str(caught.value).startswith(
            f"npu_tests::add_scaled: argument 'y' is on {other}, expected {one}: every tensor of a "
            "call is on one device, and 'x' fixed it."
        )


@on_device
def test_a_gradient_is_computed_on_the_device() -> None:
    from operators import add_scaled

    x = torch.ones(2, 3, device="npu:1", requires_grad=True)
    y = torch.ones(2, 3, device="npu:1", requires_grad=True)
    add_scaled(x, y, 3.0).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert (str(y.grad.device), x.grad.tolist(), y.grad.tolist()) == (
        "npu:1",
        [[1.0] * 3] * 2,
        [[3.0] * 3] * 2,
    )


@on_device
def test_autocast_brings_generic_tensors_to_one_dtype() -> None:
    from operators import add_scaled

    x = torch.ones(2, 2, device="npu")
    with torch.autocast("npu", torch.float16):
        result = add_scaled(x.half(), x, 1.0)
    assert (result.dtype, result.tolist()) == (torch.float32, [[2.0, 2.0], [2.0, 2.0]])


CHECKS = (
    "dispatch reference layouts fake mutation aliasing gradient determinism statefulness vmap "
    "validation opcheck compile export"
).split()


@pytest.mark.long
@on_device
def test_the_checks_pass_on_the_device() -> None:
    from operators import add_scaled

    report = checks.run(add_scaled, select=CHECKS, devices=["npu"], isolate=False, examples=8)
    rows = {row.check: row for row in report.rows}
    assert {row.status for row in report.rows} == {"passed"}, report
    assert rows["compile"].notes == ("without inductor, which makes no code for npu",)
    (note,) = rows["opcheck"].notes
    assert note == "without test_autograd_registration, which PyTorch does not do on npu"


@on_device
def test_a_package_of_aotinductor_is_refused_where_inductor_knows_no_device(tmp_path: Path) -> None:
    from operators import add_scaled

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return add_scaled(x, x, 1.0)

    with pytest.raises(opsmith.ExportError, match="the inputs are on npu, and Inductor, PyTorch's"):
        opsmith.export(
            Model(), (torch.ones(2, 2, device="npu"),), target="aotinductor", out=tmp_path / "out"
        )


@on_device
def test_a_kernel_that_does_not_wait_gives_wrong_values() -> None:
    from wrong_kernels import does_not_wait

    report = checks.run(does_not_wait, select=["reference"], devices=["npu"], isolate=False)
    row = report.rows[-1]
    assert (row.check, row.status, row.code) == ("reference", "failed", "OPS-VALUE-NAN")
    assert "nan" in row.message


@on_device
def test_the_python_that_shows_a_failure_calls_the_kernel_on_its_device() -> None:
    from wrong_kernels import adds_too_much

    report = checks.run(
        adds_too_much, select=["reference"], devices=["npu"], isolate=False, examples=4
    )
    snippet = report.rows[-1].snippet
    assert "with torch.device('npu'):\n    arguments = {" in snippet
    with pytest.raises(AssertionError, match="not close"):
        exec(snippet, {})


@pytest.mark.long
@on_device
def test_a_kernel_that_reads_device_memory_on_the_host_is_a_crash() -> None:
    from wrong_kernels import reads_on_the_host

    report = checks.run(reads_on_the_host, select=["reference"], devices=["npu"], examples=4)
    rows = {row.check: row for row in report.rows}
    assert rows["build"].status == "passed"
    assert (rows["reference"].status, rows["reference"].code) == ("failed", "OPS-CALL-CRASH")
    assert "signal 11" in rows["reference"].message


@on_device
def test_the_row_of_privateuse1_serves_whatever_name_it_has() -> None:
    for name in ("npu", "privateuseone"):
        row = find_device(name)
        assert row is not None
        assert (row.dispatch_key, row.missing()) == ("PrivateUse1", "")
