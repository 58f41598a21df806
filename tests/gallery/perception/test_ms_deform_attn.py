from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opsmith
from gallery.ms_deform_attn.inputs import case, cases
from gallery.ms_deform_attn.ms_deform_attn import ms_deform_attn

pytestmark = pytest.mark.slow  # its kernels, compiled as users compile them

SMALL: dict[str, Any] = {"queries": 5, "heads": 2, "channels": 5, "levels": ((6, 4), (3, 2))}


def by_grid_sample(arguments: dict[str, Any]) -> Tensor:
    """The published definition: each head's maps sampled by `grid_sample`."""
    value, locations = arguments["value"], arguments["sampling_locations"]
    weights = arguments["attention_weights"]
    n, _, heads, channels = value.shape
    queries = locations.shape[1]
    out = value.new_zeros(n, queries, heads, channels)
    begin = 0
    for level, (height, width) in enumerate(arguments["value_spatial_shapes"].tolist()):
        pixels = value[:, begin : begin + height * width]
        begin += height * width
        maps = pixels.permute(0, 2, 3, 1).reshape(n * heads, channels, height, width)
        grid = (2 * locations[:, :, :, level] - 1).transpose(1, 2).flatten(0, 1)
        sampled = functional.grid_sample(maps, grid, padding_mode="zeros", align_corners=False)
        sampled = sampled.unflatten(0, (n, heads)).permute(0, 3, 1, 4, 2)
        out += (sampled * weights[:, :, :, level].unsqueeze(-1)).sum(3)
    return out.flatten(2)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [case(torch.float64, 3, **SMALL), case(torch.float64, 4)])
def test_it_is_the_published_definition(arguments: dict[str, Any]) -> None:
    expected = by_grid_sample(arguments)
    torch.testing.assert_close(ms_deform_attn(**arguments), expected)
    torch.testing.assert_close(ms_deform_attn.reference(**arguments), expected)


def test_gradients_are_those_of_the_published_definition() -> None:
    arguments = case(torch.float64, 5, **SMALL)
    names = ("value", "sampling_locations", "attention_weights")
    leaves = [arguments[name].requires_grad_() for name in names]
    found = torch.autograd.grad(ms_deform_attn(**arguments).square().sum(), leaves)
    expected = torch.autograd.grad(by_grid_sample(arguments).square().sum(), leaves)
    for name, one, other in zip(names, found, expected, strict=True):
        torch.testing.assert_close(one, other, msg=name)


def test_a_position_that_is_no_number_samples_nothing() -> None:
    arguments = case(torch.float32, 6, **SMALL)
    arguments["sampling_locations"][:, 0] = float("nan")
    out = ms_deform_attn(**arguments)
    assert not out[:, 0].any()
    torch.testing.assert_close(out, ms_deform_attn.reference(**arguments))


def test_an_infinite_weight_adds_nothing_of_what_is_outside() -> None:
    arguments = case(torch.float32, 6, **SMALL)
    arguments["sampling_locations"][:, 0] = 3.0
    arguments["attention_weights"][:, 0] = float("inf")
    out = ms_deform_attn(**arguments)
    assert not out[:, 0].any()
    torch.testing.assert_close(out, ms_deform_attn.reference(**arguments))


SHAPES = "value_spatial_shapes"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (SHAPES, [[6, 4], [3, 3]], "has shapes of 33 elements together, expected 30 (S)."),
        (SHAPES, [[6, 4], [-3, -2]], "has value -3 at index (1, 0), expected 0 <= value."),
        (SHAPES, [[2**62, 4], [3, 2]], "elements together, expected 30 (S)."),
        (
            "level_start_index",
            [0, 25],
            "has value 25 at index 1, expected 24: the elements of the shapes in "
            "'value_spatial_shapes' before it.",
        ),
    ],
)
def test_shapes_and_starts_that_would_lead_beyond_memory_are_refused(
    name: str, value: Any, said: str
) -> None:
    arguments = {**case(torch.float32, 7, **SMALL), name: torch.tensor(value)}
    with pytest.raises(RuntimeError) as caught:
        ms_deform_attn(**arguments)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"vision::ms_deform_attn: argument '{name}' ")
    assert said in first


def test_the_results_do_not_depend_on_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    found = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        found.append([ms_deform_attn(**arguments) for arguments in cases(torch.float32, 0)])
    torch.set_num_threads(before)
    for one, other in zip(found[0], found[1], strict=True):
        assert torch.equal(one, other)
    for one, other in zip(found[0], found[2], strict=True):
        assert torch.equal(one, other)


class Attention(torch.nn.Module):
    def forward(self, value: Tensor, shapes: Tensor, starts: Tensor, at: Tensor, by: Tensor) -> Any:
        return ms_deform_attn(value, shapes, starts, at, by)


@pytest.mark.long  # tests/targets/onnxruntime/test_adapter.py states the words
def test_onnx_runtime_refuses_them_in_the_same_words(tmp_path: Path) -> None:
    arguments = case(torch.float32, 8, **SMALL)
    opsmith.export(
        Attention(), tuple(arguments.values()), target="onnxruntime", out=tmp_path, say=None
    )
    model = opsmith.load(tmp_path)
    torch.testing.assert_close(model(*arguments.values()), ms_deform_attn(**arguments))
    arguments["level_start_index"] = torch.tensor([0, 10**6])
    with pytest.raises(RuntimeError) as eager:
        ms_deform_attn(**arguments)
    with pytest.raises(Exception, match="level_start_index") as exported:
        model(*arguments.values())
    assert str(eager.value).splitlines()[0] in str(exported.value)
