"""The device that the tests bring: what it shows that a CPU hides."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from on_device import on_device

pytestmark = pytest.mark.long  # the device is for tests alone; test_kernels.py relies on it

HERE = Path(__file__).parent


@on_device
def test_tensors_are_made_copied_and_computed_with() -> None:
    x = torch.arange(6.0, device="npu").reshape(2, 3)
    assert str(x.device) == "npu:0"
    assert (x + 1).cpu().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert x.t().contiguous().cpu().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert x.sum().item() == 15
    there = x[:, 1:].to("npu:1")
    assert (str(there.device), there.cpu().tolist()) == ("npu:1", [[1, 2], [4, 5]])
    x.t()[0] = torch.tensor([7.0, 8.0])
    assert x.cpu().tolist() == [[7, 1, 2], [8, 4, 5]]
    for device in ("npu:0", "npu:1"):
        picked = torch.masked_select(torch.arange(4, device=device), torch.ones(4) > 0)
        assert picked.cpu().tolist() == [0, 1, 2, 3]


@on_device
def test_a_gradient_flows_on_either_device() -> None:
    for device in ("npu:0", "npu:1"):
        x = torch.ones(3, requires_grad=True, device=device)
        (x * x * 3).sum().backward()
        assert x.grad is not None
        assert (x.grad.device, x.grad.tolist()) == (torch.device(device), [6.0, 6.0, 6.0])


@on_device
def test_work_is_done_later_and_what_does_not_wait_sees_that() -> None:
    from backend import held

    x = torch.zeros(4, device="npu")
    other = torch.Stream(device="npu:0")
    torch.accelerator.synchronize()
    with held():
        x.copy_(torch.ones(4))
        with other:
            early = x.cpu()
    assert x.cpu().tolist() == [1, 1, 1, 1]
    assert early.tolist() == [0, 0, 0, 0]


@on_device
def test_an_event_lets_one_stream_wait_for_another() -> None:
    from backend import held

    x = torch.zeros(4, device="npu")
    other = torch.Stream(device="npu:0")
    y = torch.empty(4, device="npu")
    with held():
        x.copy_(torch.ones(4))
        event = torch.Event(device="npu:0")
        event.record(torch.accelerator.current_stream())
        assert not event.query()
        other.wait_event(event)
        with other:
            y.copy_(x)
    other.synchronize()
    assert event.query()
    assert y.cpu().tolist() == [1, 1, 1, 1]


@on_device
def test_what_was_never_written_is_not_a_number() -> None:
    assert torch.empty(100, device="npu").cpu().isnan().all()


def died(body: str) -> int:
    """The signal that a program dies of."""
    program = f"import ctypes, torch, backend\nx = torch.zeros(4, device='npu')\n{body}"
    return -subprocess.run([sys.executable, "-c", program], cwd=HERE, check=False).returncode


@pytest.mark.parametrize(
    "body",
    ["ctypes.string_at(x.data_ptr(), 1)", "ctypes.memset(x.data_ptr(), 0, 1)"],
    ids=["reads", "writes"],
)
def test_a_host_that_touches_its_memory_dies(body: str) -> None:
    assert died(body) == 11
    assert died("x.cpu()") == 0
