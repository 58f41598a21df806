"""`selective_scan` is a sum over all earlier steps, with its gradients, in pieces too."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gallery.selective_scan import selective_scan as module
from gallery.selective_scan.mamba import selective_scan_fn
from gallery.selective_scan.selective_scan import selective_scan, selective_scan_backward
from opsmith import ArgumentError, checks

FOLDER = Path(module.__file__).parent
NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")


def arguments(*sizes: int, gated: bool = True, softplus: bool = True) -> dict[str, Any]:
    """Give float64 arguments; sizes are batch, channels, groups, state and length."""
    batch, channels, groups, state, length = sizes
    normal = torch.Generator().manual_seed(sum(sizes))

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=normal, dtype=torch.float64)

    row, table = (batch, channels, length), (batch, groups, state, length)
    case = {"u": drawn(*row), "delta": drawn(*row), "A": -drawn(channels, state).abs()}
    case |= {"B": drawn(*table), "C": drawn(*table)}
    if gated:
        case |= {"D": drawn(channels), "z": drawn(*row), "delta_bias": drawn(channels)}
    return {**case, "delta_softplus": softplus}


def summed(case: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Add up what each earlier step leaves in each later one: no state is handed on."""
    steps = case["delta"]
    if "delta_bias" in case:
        steps = steps + case["delta_bias"][:, None]
    if case["delta_softplus"]:
        steps = torch.logaddexp(steps, torch.zeros(()).double())
    u = case["u"]
    length, group = u.shape[2], u.shape[1] // case["B"].shape[1]
    b, c = (case[one].repeat_interleave(group, 1) for one in ("B", "C"))
    # From the end of step s to the end of step t, where t is s or later.
    ends = steps.cumsum(-1)
    is_later = torch.ones(length, length).triu().bool()
    between = torch.where(is_later, ends[..., None, :] - ends[..., None], 0)
    left = torch.einsum("bdst,dn->bdnst", between, case["A"]).exp() * is_later
    entering = torch.einsum("bds,bds,bdns->bdns", steps, u, b)
    states = torch.einsum("bdns,bdnst->bdnt", entering, left)
    y = torch.einsum("bdnt,bdnt->bdt", states, c)
    if "D" in case:
        y = y + u * case["D"][:, None]
    if "z" in case:
        y = y * functional.silu(case["z"])
    return y, states[..., -1] if length else states.sum(-1)


def gradients(case: dict[str, Any], grads: tuple[Tensor, Tensor]) -> list[Tensor | None]:
    """Differentiate the sum over earlier steps."""
    leaves = {name: case[name].clone().requires_grad_() for name in NAMES if name in case}
    results = summed({**case, **leaves})
    found = torch.autograd.grad(results, list(leaves.values()), grads)
    by_name = dict(zip(leaves, found, strict=True))
    return [by_name.get(name) for name in NAMES]


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("softplus", [False, True])
def test_the_references_are_a_sum_over_earlier_steps(gated: bool, softplus: bool) -> None:
    for sizes in ((2, 4, 2, 3, 6), (1, 3, 1, 2, 1), (2, 2, 1, 1, 0)):
        case = arguments(*sizes, gated=gated, softplus=softplus)
        results = selective_scan.reference(**case)
        torch.testing.assert_close(results, summed(case))
        grads = torch.randn_like(results[0]), torch.randn_like(results[1])
        if sizes[-1] == 0:
            continue
        wanted = gradients(case, grads)
        found = selective_scan_backward.reference(*grads, **case)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)


def test_the_function_of_mamba_ssm_has_one_group_and_no_last_state_unless_it_is_asked() -> None:
    case = arguments(2, 4, 1, 3, 5)
    with selective_scan.set_kernel_enabled("cpu", False):
        out, last = selective_scan(**case)
        plain = {**case, "B": case["B"].squeeze(1), "C": case["C"].squeeze(1)}
        assert torch.equal(selective_scan_fn(**plain), out)
        assert torch.equal(selective_scan_fn(**case, return_last_state=True)[1], last)


def test_groups_that_cannot_be_equal_and_parameters_in_half_are_refused() -> None:
    with selective_scan.set_kernel_enabled("cpu", False):
        with pytest.raises(ArgumentError, match="do not satisfy channels % groups == 0"):
            selective_scan(**arguments(1, 4, 3, 2, 5))
        case = arguments(1, 4, 2, 2, 5)
        with pytest.raises(ArgumentError, match="argument 'A' has dtype float16, expected one of"):
            selective_scan(**{**case, "A": case["A"].half()})


#: More channels than a vector has lanes, and a rest; more steps than a tile, and a rest.
SIZES = ((2, 22, 2, 5, 70), (1, 1, 1, 17, 1), (2, 3, 1, 2, 0), (1, 40, 1, 1, 130))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
def test_the_kernels_are_a_sum_over_earlier_steps(sizes: tuple[int, ...]) -> None:
    case = arguments(*sizes)
    leaves = [case[name].requires_grad_() for name in NAMES]
    results = selective_scan(**case)
    expected = summed(case)
    torch.testing.assert_close(results, expected)
    grads = torch.randn_like(results[0]), torch.randn_like(results[1])
    if sizes[-1]:
        found = torch.autograd.grad(results, leaves, grads)
        torch.testing.assert_close(found, torch.autograd.grad(expected, leaves, grads))


@pytest.mark.slow
def test_a_scan_goes_on_where_the_last_state_of_another_ends() -> None:
    case = arguments(2, 9, 1, 4, 200, gated=False)
    _, whole = selective_scan(**case)
    cut = 77  # no end of a tile
    by_step = ("u", "delta", "B", "C")
    first, second = (
        {name: one[..., part] if name in by_step else one for name, one in case.items()}
        for part in (slice(cut), slice(cut, None))
    )
    time = functional.softplus(second["delta"], threshold=40).sum(-1)
    left = torch.exp(time[..., None] * case["A"])
    torch.testing.assert_close(
        whole, left * selective_scan(**first)[1] + selective_scan(**second)[1]
    )


@pytest.mark.slow
@pytest.mark.parametrize("softplus", [False, True])
def test_finite_differences_are_the_gradients(softplus: bool) -> None:
    case = arguments(2, 3, 1, 2, 4, softplus=softplus)
    leaves = [case[name].requires_grad_() for name in NAMES]
    assert torch.autograd.gradcheck(lambda *given: selective_scan(*given, softplus), leaves)


@contextmanager
def changed(folder: Path, before: str, after: str) -> Iterator[None]:
    """Register kernels with a mistake in place of both operators' own."""
    shutil.copytree(FOLDER, folder / FOLDER.name)
    shutil.copy(FOLDER.parent / "vectors.h", folder)
    source = folder / FOLDER.name / "selective_scan.cpp"
    text = source.read_text()
    assert text.count(before) == 1, f"{before!r} stands {text.count(before)} times in the kernel"
    source.write_text(text.replace(before, after))
    try:
        _register(source)
        yield
    finally:
        _register(FOLDER / source.name)


def _register(source: Path) -> None:
    for operator in (selective_scan, selective_scan_backward):
        operator.register_kernel("cpu", source=source, flags=module.FLAGS)


MISTAKES = {
    "a state is not reset between channels and sequences": (
        selective_scan,
        "      std::fill_n(states, size, S(0));\n",
        "      if (item == begin) std::fill_n(states, size, S(0));\n",
    ),
    "all sequences read B of the first": (
        selective_scan_backward,
        "((block.batch * a.groups + block.group) * a.state + n)",
        "(block.group * a.state + n)",
    ),
    "what flows back forgets the last state": (
        selective_scan_backward,
        "given.read_states(a.grad_out1.data(), given.channel(block), block, carried);",
        "std::fill_n(carried, size, S(0));",
    ),
    "a tile's first step takes the state of none before it": (
        selective_scan_backward,
        "(t == 0 ? start : states[t - 1])",
        "(t == 0 ? V{} : states[t - 1])",
    ),
}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_check_finds(mistake: str, tmp_path: Path) -> None:
    operator, before, after = MISTAKES[mistake]
    case = arguments(2, 11, 1, 3, 70)
    if operator is selective_scan_backward:
        case |= {"grad_out0": case["z"], "grad_out1": torch.ones(2, 11, 3).double()}
    with changed(tmp_path, before, after):
        report = checks.run(operator, select=["reference"], cases=[case], isolate=False)
    assert not report.ok
    assert "OPS-VALUE" in report.explain()
