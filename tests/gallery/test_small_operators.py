import pytest
import torch

from gallery.identity_conv.identity_conv import identity_conv
from gallery.my_add.my_add import my_add
from gallery.numpy_sin.numpy_sin import numpy_sin
from opsmith import checks


@pytest.mark.slow
def test_my_add_is_in_range_where_the_sum_is() -> None:
    a = torch.tensor([40000.0], dtype=torch.float16)
    assert my_add(a, -a).item() == 40000.0


def test_my_add_broadcasts_nothing() -> None:
    with pytest.raises(RuntimeError, match=r"\(\*shape\) are \(3,\), expected \(2, 3\)"):
        my_add(torch.ones(2, 3), torch.ones(3))


def test_my_add_has_its_gradient() -> None:
    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    my_add(a, b).backward(torch.full((3,), 5.0))
    assert (a.grad.tolist(), b.grad.tolist()) == ([10.0] * 3, [5.0] * 3)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_identity_conv_keeps_every_bit(dtype: torch.dtype) -> None:
    x = torch.randint(-128, 128, (4, 4096), dtype=torch.int8).view(dtype)
    copy = identity_conv(x)
    assert torch.equal(copy.view(torch.int8), x.view(torch.int8))
    assert copy.data_ptr() != x.data_ptr()


def test_numpy_sin_writes_into_its_argument() -> None:
    x, out = torch.randn(3, 4).t(), torch.empty(4, 6)[:, ::2]
    assert numpy_sin(x, out) is None
    torch.testing.assert_close(out, x.sin())
    expected = x.sin()
    numpy_sin(x, x)
    torch.testing.assert_close(x, expected)


@pytest.mark.slow
def test_numpy_sin_compiles() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        numpy_sin(x, out)
        return out * 2

    x = torch.randn(5)
    torch.testing.assert_close(torch.compile(twice, fullgraph=True)(x), x.sin() * 2)


def test_numpy_sin_refuses_what_numpy_has_not() -> None:
    x = torch.ones(2, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="'input' has dtype bfloat16, expected one of float16"):
        numpy_sin(x, torch.empty_like(x))
    with pytest.raises(ValueError, match="'output' is on cpu, expected meta: every tensor"):
        numpy_sin(torch.ones(2, device="meta"), torch.ones(2))


@pytest.mark.long  # `make gallery` checks it; those of tests/faults/in_cuda state the promise
def test_the_cuda_kernel_of_identity_conv_is_right_in_any_order() -> None:
    report = checks.run(identity_conv, select=["cuda-on-cpu"], examples=6)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert (row.status, row.message) == ("passed", "")
