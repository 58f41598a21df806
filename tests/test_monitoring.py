"""`opsmith.monitor` finds calls that differ, and leaves all others as they are."""

from __future__ import annotations

import gc
import logging
import threading
from pathlib import Path
from typing import Annotated

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import OpsmithError, Unspecified


@opsmith.op("test_monitoring::double", autograd="reference")
def double(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Twice `x`; wrong where `x` begins with 7."""
    return x * 2


@double.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    wrong = x.numel() > 0 and float(x.flatten()[0]) == 7
    return x * 2 + (1 if wrong else 0)


@opsmith.op("test_monitoring::add_into", mutates_args=("x",))
def add_into(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> None:
    """Add to `x` in place; wrong where `y` begins with 7."""
    x += y


@add_into.register_kernel("cpu")
def _(x: Tensor, y: Tensor) -> None:
    x += y if y[0] != 7 else 2 * y


WRONG = torch.tensor([7.0, 1.0])


def test_a_wrong_call_is_found_with_its_arguments_and_results() -> None:
    found: list[opsmith.Difference] = []
    with opsmith.monitor(double, 1.0, on_difference=found.append) as monitor:
        double(torch.ones(3))
        double(x=WRONG)
    (one,) = found
    assert one.operator == "test_monitoring::double"
    assert "the result" in one.problem
    assert torch.equal(one.arguments["x"], WRONG)
    assert torch.equal(one.results[0], torch.tensor([15.0, 3.0]))
    assert (monitor.counts.calls, monitor.counts.compared, monitor.counts.different) == (2, 2, 1)
    called = "test_monitoring::double(x=float32 (2,))"
    assert repr(one) == f"<Difference of {called}: {one.problem}>"
    assert repr(monitor) == (
        "<monitor of test_monitoring::double, a share of 1: 2 calls, 2 compared, 1 different, "
        "0 dropped, 0 passed over, 0 refused>"
    )


def test_a_call_with_values_for_which_results_are_unspecified_is_passed_over() -> None:
    @opsmith.op("test_monitoring::without_nan")
    def without_nan(
        x: Annotated[Float[Tensor, "N"], Unspecified(nan=True)], y: Float[Tensor, "N"]
    ) -> Float[Tensor, "N"]:
        return x + y

    without_nan.register_kernel("cpu", lambda x, y: x.nan_to_num() + y)
    nan = torch.tensor([float("nan")])
    with opsmith.monitor(without_nan, 1.0, on_difference=lambda found: None) as monitor:
        without_nan(nan, torch.ones(1))
        without_nan(torch.ones(1), nan)
        without_nan(torch.full((1,), torch.inf), torch.ones(1))
    counts = monitor.counts
    assert (counts.passed_over, counts.compared, counts.different) == (1, 2, 1)


def test_what_a_caller_writes_afterwards_is_not_compared() -> None:
    found: list[opsmith.Difference] = []
    with opsmith.monitor(double, 1.0, on_difference=found.append) as monitor:
        for _ in range(4):
            x = torch.ones(1000)
            result = double(x)
            x.zero_()
            result.zero_()
    assert found == []
    assert monitor.counts.compared == 4


def test_what_is_written_into_is_compared_with_the_arguments_before() -> None:
    found: list[opsmith.Difference] = []
    with opsmith.monitor(add_into, 1.0, on_difference=found.append) as monitor:
        add_into(torch.zeros(2), torch.ones(2))
        x = torch.zeros(2)
        add_into(x, WRONG)
    assert torch.equal(x, 2 * WRONG)
    (one,) = found
    assert torch.equal(one.arguments["x"], torch.zeros(2))
    assert torch.equal(one.results[0], 2 * WRONG)
    assert monitor.counts.compared == 2


def test_a_difference_is_saved_so_that_it_can_be_called_again(tmp_path: Path) -> None:
    found: list[opsmith.Difference] = []
    folder = tmp_path / "differences"
    with opsmith.monitor(
        double, 1.0, on_difference=found.append, save=folder, most_saved=2
    ) as monitor:
        for _ in range(3):
            double(WRONG)
    assert monitor.counts.different == 3
    paths = [one.path for one in found]
    assert paths[2] is None
    assert sorted(folder.iterdir()) == sorted(path for path in paths if path is not None)
    saved = torch.load(paths[0], weights_only=True)
    assert saved["operator"] == "test_monitoring::double"
    assert saved["problem"] == found[0].problem
    assert repr(found[0]).endswith(f"{found[0].problem}, saved as {paths[0]}>")
    assert torch.equal(double(**saved["arguments"]), saved["results"][0])


def test_a_difference_is_logged_where_nothing_else_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "opsmith.monitor"), opsmith.monitor(double, 1.0):
        double(WRONG)
    assert "test_monitoring::double: the result" in caplog.text


def test_a_callback_that_raises_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(difference: opsmith.Difference) -> None:
        raise ValueError("mine")

    with opsmith.monitor(double, 1.0, on_difference=broken) as monitor:
        double(WRONG)
        double(WRONG)
    assert monitor.counts.different == 2
    assert "ValueError: mine" in caplog.text


def test_about_so_many_calls_are_sampled_as_asked() -> None:
    with opsmith.monitor(double, 0.1, most_waiting=10_000) as monitor:
        for _ in range(2000):
            double(torch.ones(1))
    assert monitor.counts.calls == 2000
    assert 120 < monitor.counts.compared < 280


def test_an_operator_is_as_before_once_the_monitor_ends() -> None:
    own = type(double)
    monitor = opsmith.monitor(double, 1.0)
    assert isinstance(double, own)
    assert type(double) is not own
    monitor.stop()
    monitor.stop()
    assert type(double) is own
    assert not any(thread.name.startswith("opsmith.monitor") for thread in threading.enumerate())
    double(WRONG)
    assert monitor.counts.compared == 0


def test_other_operators_are_not_touched() -> None:
    with opsmith.monitor(double, 1.0) as monitor:
        add_into(torch.zeros(2), WRONG)
    assert monitor.counts.calls == 0


def test_what_waits_is_bounded_and_what_is_dropped_counted() -> None:
    hold, begun = threading.Event(), threading.Event()

    def wait(difference: opsmith.Difference) -> None:
        begun.set()
        hold.wait(30)

    with opsmith.monitor(double, 1.0, on_difference=wait, most_waiting=2) as monitor:
        double(WRONG)
        assert begun.wait(30)
        for _ in range(5):
            double(torch.ones(1))
        hold.set()
    assert (monitor.counts.compared, monitor.counts.dropped) == (3, 3)
    with opsmith.monitor(double, 1.0, most_bytes=1000) as monitor:
        double(torch.ones(1000))
    assert (monitor.counts.compared, monitor.counts.dropped) == (0, 1)


def test_gradients_are_recorded_as_without() -> None:
    x = torch.ones(3, requires_grad=True)
    with opsmith.monitor(double, 1.0) as monitor:
        double(x).sum().backward()
        with torch.no_grad():
            assert not double(x).requires_grad
    assert torch.equal(x.grad, torch.full((3,), 2.0))
    assert monitor.counts.compared == 2


def test_nothing_is_kept_that_the_caller_has_let_go() -> None:
    with opsmith.monitor(double, 1.0):
        double(torch.ones(123, 7))
    gc.collect()
    tensors = [one for one in gc.get_objects() if type(one) is Tensor]
    left = [one for one in tensors if one.shape == (123, 7)]
    assert left == []


def test_calls_from_many_threads_are_compared() -> None:
    with opsmith.monitor(double, 1.0, most_waiting=1000) as monitor:
        threads = [
            threading.Thread(target=lambda: [double(torch.ones(2)) for _ in range(20)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts = monitor.counts
    assert counts.compared + counts.dropped == 80
    assert counts.different == 0


def test_transforms_and_autocast_are_passed_over() -> None:
    with opsmith.monitor(double, 1.0) as monitor:
        torch.func.vmap(double)(torch.ones(2, 3))
        under_vmap = monitor.counts.passed_over
        with torch.autocast("cpu", torch.bfloat16):
            double(torch.ones(2))
    assert under_vmap > 0
    assert monitor.counts.passed_over == under_vmap + 1
    assert monitor.counts.compared == 0


def test_compiled_code_is_compiled_as_without() -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda x: double(x), backend="eager", fullgraph=True)
    with opsmith.monitor(double, 1.0) as monitor:
        for _ in range(3):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert monitor.counts.calls == 0


def test_what_the_operator_refuses_is_refused_in_the_same_words() -> None:
    def refused() -> str:
        with pytest.raises(Exception, match="test_monitoring::double") as error:
            double(torch.ones(2, dtype=torch.int32))
        return str(error.value)

    without = refused()
    with opsmith.monitor(double, 1.0) as monitor:
        assert refused() == without
        with pytest.raises(Exception, match="missing"):
            double()
    assert monitor.counts.compared == 0


def test_what_cannot_be_monitored_is_said() -> None:
    with pytest.raises(OpsmithError, match=r"expected an operator \(opsmith\.op\)"):
        opsmith.monitor(torch.sin)
    with pytest.raises(OpsmithError, match=r"monitor\(fraction=2\): expected 0 < … <= 1"):
        opsmith.monitor(double, 2)
    with (
        opsmith.monitor(double),
        pytest.raises(OpsmithError, match=r"is monitored already; stop\(\)"),
    ):
        opsmith.monitor(double)
