import ctypes
import io
import math
import platform
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import opsmith
from gallery.deform_conv2d.deform_conv2d import (
    deform_conv2d,
    deform_conv2d_backward_input,
    deform_conv2d_backward_weight,
)
from gallery.deform_conv2d.inputs import backward_cases, case, cases
from gallery.deform_conv2d.module import DeformConv2d, deform_conv2d as as_in_torchvision
from opsmith.kernels import INCLUDE
from opsmith.kernels.toolchain.compilers import find_compiler

pytestmark = pytest.mark.slow  # its kernels, compiled as users compile them

CASES = list(cases(torch.float64, 0))
FLOATS = ("input", "offset", "weight", "bias", "mask")


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def sampled(image: Tensor, y: float, x: float) -> float:
    """The contract's sentence: bilinear, zero outside, corner by corner."""
    height, width = image.shape
    low_y, low_x = math.floor(y), math.floor(x)
    total = 0.0
    for corner_y in (low_y, low_y + 1):
        for corner_x in (low_x, low_x + 1):
            if 0 <= corner_y < height and 0 <= corner_x < width:
                share = (1 - abs(y - corner_y)) * (1 - abs(x - corner_x))
                total += share * float(image[corner_y, corner_x])
    return total


def by_hand(arguments: dict[str, Any]) -> Tensor:
    """The published definition, value by value."""
    image, offset, weight = (arguments[name] for name in ("input", "offset", "weight"))
    mask, bias = arguments["mask"], arguments["bias"]
    (sy, sx), (py, px), (dy, dx) = (arguments[n] for n in ("stride", "padding", "dilation"))
    outputs, per_group, kh, kw = weight.shape
    channels = image.shape[1]
    groups, offset_groups = channels // per_group, offset.shape[1] // (2 * kh * kw)
    out = image.new_zeros(image.shape[0], outputs, *offset.shape[2:])
    for n, m, oy, ox in torch.cartesian_prod(*(torch.arange(size) for size in out.shape)).tolist():
        total = 0.0 if bias is None else float(bias[m])
        first = m // (outputs // groups) * per_group
        for c, i, j in torch.cartesian_prod(*map(torch.arange, (per_group, kh, kw))).tolist():
            tap = ((first + c) // (channels // offset_groups) * kh + i) * kw + j
            y = oy * sy - py + i * dy + float(offset[n, 2 * tap, oy, ox])
            x = ox * sx - px + j * dx + float(offset[n, 2 * tap + 1, oy, ox])
            value = sampled(image[n, first + c], y, x)
            if mask is not None:
                value *= float(mask[n, tap, oy, ox])
            total += float(weight[m, c, i, j]) * value
        out[n, m, oy, ox] = total
    return out


def small(**changes: Any) -> dict[str, Any]:
    return case(torch.float64, **{"channels": 4, "outputs": 6, "size": (6, 7)} | changes)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 8, 9, 11])
def test_the_definition(number: int) -> None:
    expected = by_hand(CASES[number])
    torch.testing.assert_close(deform_conv2d.reference(**CASES[number]), expected)
    torch.testing.assert_close(deform_conv2d(**CASES[number]), expected)


@pytest.mark.long  # `make gallery` runs it; that of bev_pool_v2 states the promise
@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_backward_is_the_gradient_of_the_forward(number: int) -> None:
    own = {
        name: value.clone().requires_grad_() if isinstance(value, Tensor) else value
        for name, value in CASES[number].items()
    }
    leaves = [own[name] for name in FLOATS if own[name] is not None]
    out = deform_conv2d(**own)
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(deform_conv2d.reference(**own), leaves, grad)
    torch.testing.assert_close(torch.autograd.grad(out, leaves, grad), expected)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stride": (2, 1), "padding": (0, 3), "dilation": (1, 2)},
        {"groups": 2, "offset_groups": 4, "batch": 2},
        {"channels": 48, "outputs": 80, "size": (20, 30)},
        {"channels": 1, "outputs": 1, "kernel": (1, 1), "padding": (0, 0)},
    ],
)
def test_offsets_of_zero_are_a_plain_convolution(changes: dict[str, Any]) -> None:
    arguments = small(mask=False, **changes)
    groups = changes.get("groups", 1)
    arguments["offset"] = torch.zeros_like(arguments["offset"])
    expected = functional.conv2d(
        arguments["input"],
        arguments["weight"],
        arguments["bias"],
        arguments["stride"],
        arguments["padding"],
        arguments["dilation"],
        groups,
    )
    torch.testing.assert_close(deform_conv2d(**arguments), expected)


def test_whole_offsets_shift_the_image() -> None:
    arguments = small(mask=False, reach=0.0)
    down, right = 2, -1
    arguments["offset"][:, 0::2], arguments["offset"][:, 1::2] = down, right
    shifted = functional.pad(arguments["input"], (4, 4, 4, 4))
    shifted = shifted.roll((-down, -right), (2, 3))[:, :, 3:-3, 3:-3]
    expected = functional.conv2d(shifted, arguments["weight"], arguments["bias"])
    torch.testing.assert_close(deform_conv2d(**arguments), expected)


@pytest.mark.parametrize(
    ("y", "value"),
    # One column with the values 8 and 16 in rows 0 and 1, sampled at y.
    [
        *[(0, 8), (0.25, 10), (1, 16), (-0.5, 4), (-0.75, 2), (-1, 0), (-1.5, 0)],
        *[(1.25, 12), (1.5, 8), (2, 0), (2.5, 0), (1e6, 0), (-1e30, 0), (1e30, 0)],
        *[(math.inf, 0), (-math.inf, 0), (math.nan, math.nan)],
    ],
)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_at_the_border(y: float, value: float, axis: int, dtype: torch.dtype) -> None:
    image = torch.tensor([8.0, 16.0], dtype=dtype).reshape(
        (1, 1, 2, 1) if axis == 0 else (1, 1, 1, 2)
    )
    offset = torch.zeros(1, 2, *image.shape[2:], dtype=dtype)
    offset[0, axis, 0, 0] = y
    for function in (deform_conv2d, deform_conv2d.reference):
        out = function(image, offset, torch.ones(1, 1, 1, 1, dtype=dtype))
        torch.testing.assert_close(
            out[0, 0, 0, 0], torch.tensor(value, dtype=dtype), equal_nan=True, rtol=0, atol=0
        )


def test_pixels_outside_are_zero_beside_infinite_ones() -> None:
    image = torch.full((1, 1, 1, 1), math.inf)
    offset = torch.tensor([5.0, 0.0]).reshape(1, 2, 1, 1)
    for function in (deform_conv2d, deform_conv2d.reference):
        assert float(function(image, offset, torch.ones(1, 1, 1, 1))) == 0


@pytest.mark.parametrize("number", range(len(CASES)))
def test_agrees_with_onnx(number: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    release = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    if release < (1, 24):  # the last for Python 3.10 is 1.23.2
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has no DeformConv")
    arguments = list(cases(torch.float32, 0))[number]
    weight = arguments["weight"]
    given = {name: arguments[name].numpy() for name in FLOATS if arguments[name] is not None}
    order = ("input", "weight", "offset", "bias", "mask")
    float32 = onnx.TensorProto.FLOAT
    node = onnx.helper.make_node(
        "DeformConv",
        [name if name in given else "" for name in order],
        ["out"],
        strides=arguments["stride"],
        pads=arguments["padding"] * 2,
        dilations=arguments["dilation"],
        group=arguments["input"].shape[1] // weight.shape[1],
        offset_group=arguments["offset"].shape[1] // (2 * weight.shape[2] * weight.shape[3]),
    )
    graph = onnx.helper.make_graph(
        [node],
        "deform_conv",
        [onnx.helper.make_tensor_value_info(k, float32, v.shape) for k, v in given.items()],
        [onnx.helper.make_tensor_value_info("out", float32, None)],
    )
    opset = [onnx.helper.make_opsetid("", 19)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, given)
    torch.testing.assert_close(
        deform_conv2d(**arguments), torch.from_numpy(expected), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    for arguments, wide in zip(backward_cases(dtype, 1), backward_cases(dtype, 1), strict=True):
        wide = {k: v.float() if isinstance(v, Tensor) else v for k, v in wide.items()}
        for operator, left_out in (
            (deform_conv2d, ("grad", "weight_shape")),
            (deform_conv2d_backward_input, ("weight_shape",)),
            (deform_conv2d_backward_weight, ("weight",)),
        ):
            narrow_out, wide_out = (
                operator(**{k: v for k, v in given.items() if k not in left_out})
                for given in (arguments, wide)
            )
            if isinstance(narrow_out, Tensor):
                narrow_out, wide_out = (narrow_out,), (wide_out,)
            for ours, expected in zip(narrow_out, wide_out, strict=True):
                assert torch.equal(ours, expected.to(dtype))


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        {"channels": 70, "outputs": 40, "size": (23, 19), "batch": 2},
        {"channels": 12, "outputs": 12, "size": (23, 19), "groups": 6, "offset_groups": 4},
    ],
)
def test_every_bit_is_the_same_for_any_number_of_threads(shape: dict[str, Any]) -> None:
    arguments = case(torch.float32, 3, **shape)
    bias = arguments.pop("bias")
    weight = arguments["weight"]
    grad = torch.randn(deform_conv2d(**arguments).shape)
    without_weight = {name: value for name, value in arguments.items() if name != "weight"}
    results = []
    for count in (1, 2, 5):
        with threads(count):
            results.append(
                (
                    deform_conv2d(bias=bias, **arguments),
                    *deform_conv2d_backward_input(grad, **arguments),
                    deform_conv2d_backward_weight(
                        grad, weight_shape=weight.shape, **without_weight
                    ),
                )
            )
    for other in results[1:]:
        for mine, first in zip(other, results[0], strict=True):
            assert torch.equal(mine, first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input": (1, 5, 6, 7)},
            "dimension 1 (Gw*Cg) is 5, expected Gw*Cg for some Gw: a multiple of 4.",
        ),
        (
            {"input": (1, 8, 6, 7), "weight": (5, 4, 3, 3), "bias": (5,)},
            "the arguments do not satisfy M % Gw == 0: 1 == 0 is false.",
        ),
        (
            {"offset": (1, 20, 6, 7), "mask": (1, 10, 6, 7)},
            "dimension 1 (2*Go*kH*kW) is 20, expected 2*Go*kH*kW for some Go: a multiple of 18.",
        ),
        (
            {"offset": (1, 54, 6, 7), "mask": (1, 27, 6, 7)},
            "the arguments do not satisfy Gw*Cg % Go == 0: 1 == 0 is false.",
        ),
    ],
)
def test_says_what_does_not_divide(changes: dict[str, Any], message: str) -> None:
    arguments = small() | {name: torch.zeros(shape).double() for name, shape in changes.items()}
    with pytest.raises(opsmith.ArgumentError, match=re.escape(message)):
        deform_conv2d(**arguments)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"stride": (0, 1)}, "stride"),
        ({"padding": (1, -1)}, "padding"),
        ({"dilation": (1, 0)}, "dilation"),
        ({"offset": torch.zeros(1, 18, 5, 7).double()}, "offset"),
        ({"mask": torch.zeros(1, 18, 6, 7).double()}, "mask"),
    ],
)
def test_names_a_bad_argument(changes: dict[str, Any], argument: str) -> None:
    with pytest.raises(opsmith.ArgumentError, match=argument):
        deform_conv2d(**small() | changes)


@pytest.mark.slow
def test_gradcheck() -> None:
    arguments = small(channels=2, outputs=2, size=(3, 4), groups=2, offset_groups=2)
    rest = (arguments["stride"], arguments["padding"], arguments["dilation"])

    def function(
        input: Tensor, offset: Tensor, weight: Tensor, bias: Tensor, mask: Tensor
    ) -> Tensor:
        return deform_conv2d(input, offset, weight, bias, *rest, mask)

    leaves = tuple(arguments[name].requires_grad_() for name in FLOATS)
    assert torch.autograd.gradcheck(function, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)


@pytest.mark.slow
def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    arguments = small()
    arguments["weight"].requires_grad_()
    out = deform_conv2d(**arguments)
    calls = []
    with _Recorder(calls):
        out.sum().backward()
    assert "vision::deform_conv2d_backward_weight" in calls
    assert "vision::deform_conv2d_backward_input" not in calls
    assert arguments["weight"].grad is not None


class _Recorder(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(func._schema.name)
        return func(*args, **(kwargs or {}))


@pytest.mark.long  # compiles by Inductor; TestModule calls the layer
def test_a_layer_compiles_and_trains() -> None:
    torch.manual_seed(0)
    predict = torch.nn.Conv2d(3, 27, 3, padding=1)
    layer = DeformConv2d(3, 8, 3, padding=1)

    def model(image: Tensor) -> Tensor:
        moved = predict(image)
        return layer(image, moved[:, :18], moved[:, 18:].sigmoid())

    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    parameters = [*predict.parameters(), *layer.parameters()]
    for batch, size in ((2, 9), (3, 12)):
        image = torch.randn(batch, 3, size, size)
        eager, loss = (function(image).square().mean() for function in (model, compiled))
        torch.testing.assert_close(loss, eager)
        expected = torch.autograd.grad(eager, parameters)
        torch.testing.assert_close(torch.autograd.grad(loss, parameters), expected)
        assert all(bool(grad.any()) for grad in expected)


class TestModule:
    def test_calls_the_operator(self) -> None:
        layer = DeformConv2d(6, 4, (2, 3), stride=(2, 1), padding=1, dilation=(1, 2), groups=2)
        image, offset = torch.randn(2, 6, 9, 9), torch.randn(2, 24, 5, 7)
        mask = torch.rand(2, 12, 5, 7)
        for given in (mask, None):
            expected = deform_conv2d(
                image, offset, layer.weight, layer.bias, (2, 1), (1, 1), (1, 2), given
            )
            assert torch.equal(layer(image, offset, given), expected)

    def test_one_number_serves_both_directions(self) -> None:
        layer = DeformConv2d(4, 6, 3, stride=1, padding=1)
        image, offset = torch.randn(2, 4, 5, 5), torch.randn(2, 18, 5, 5)
        steps = {"stride": 1, "padding": 1, "dilation": 1}
        found = as_in_torchvision(image, offset, layer.weight, layer.bias, **steps)
        assert torch.equal(found, layer(image, offset))

    def test_can_be_scripted(self) -> None:
        layer = DeformConv2d(4, 6, 3, stride=2, padding=1)
        image, offset, mask = (
            torch.randn(2, 4, 5, 5),
            torch.randn(2, 18, 3, 3),
            torch.rand(2, 9, 3, 3),
        )
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(layer), file)
        file.seek(0)
        loaded = torch.jit.load(file)
        assert torch.equal(loaded(image, offset, mask), layer(image, offset, mask))
        assert torch.equal(loaded(image, offset), layer(image, offset))

    def test_has_the_state_of_torchvisions(self) -> None:
        layer = DeformConv2d(6, 4, 3, groups=2)
        shapes = {name: tuple(value.shape) for name, value in layer.state_dict().items()}
        assert shapes == {"weight": (4, 3, 3, 3), "bias": (4,)}
        assert DeformConv2d(6, 4, 3, bias=False).bias is None

    def test_starts_as_a_convolution_does(self) -> None:
        torch.manual_seed(0)
        layer = DeformConv2d(6, 4, 3)
        torch.manual_seed(0)
        plain = torch.nn.Conv2d(6, 4, 3)
        assert torch.equal(layer.weight, plain.weight)
        assert torch.equal(layer.bias, plain.bias)

    def test_refuses_groups_that_do_not_divide(self) -> None:
        with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
            DeformConv2d(5, 4, 3, groups=2)
        with pytest.raises(ValueError, match="out_channels must be divisible by groups"):
            DeformConv2d(4, 5, 3, groups=2)

    def test_says_what_it_is(self) -> None:
        assert (
            repr(DeformConv2d(4, 6, 3)) == "DeformConv2d(4, 6, kernel_size=(3, 3), stride=(1, 1))"
        )
        assert repr(DeformConv2d(4, 6, 3, 2, 1, 2, 2, bias=False)) == (
            "DeformConv2d(4, 6, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), "
            "dilation=(2, 2), groups=2, bias=False)"
        )


class TestGemm:
    """The header on its own, for this machine and for the least that its kind must have."""

    @pytest.fixture(scope="class", params=["native", "x86-64", "haswell"])
    @staticmethod
    def library(
        request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
    ) -> ctypes.CDLL:
        compiler = find_compiler("the header on its own").path
        if request.param != "native" and platform.machine() != "x86_64":
            pytest.skip("this is no x86-64 machine")
        if request.param == "haswell" and " avx2 " not in Path("/proc/cpuinfo").read_text():
            pytest.skip("this machine has no AVX2")
        here = Path(__file__).parent
        header = here.parents[2] / "gallery"
        library = tmp_path_factory.mktemp("gemm") / "gemm.so"
        options = ["-O3", f"-march={request.param}", "-std=c++20", "-shared", "-fPIC", "-Wall"]
        source = here / "gemm_entry.cpp"
        command = [
            *(compiler, *options, "-Werror", f"-I{header}", f"-I{INCLUDE}"),
            *(source, "-o", library),
        ]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("vectors", [1, 2])
    @pytest.mark.parametrize("band", [False, True])
    @pytest.mark.parametrize("accumulate", [False, True])
    @pytest.mark.parametrize("depth", [0, 1, 37])
    def test_product(
        self,
        library: ctypes.CDLL,
        dtype: torch.dtype,
        vectors: int,
        band: bool,
        accumulate: bool,
        depth: int,
    ) -> None:
        name = "float" if dtype == torch.float32 else "double"
        rows = library[f"rows_{name}"]()
        width = vectors * library[f"lanes_{name}"]()
        left, panel = torch.randn(rows, 40, dtype=dtype), torch.randn(depth, width, dtype=dtype)
        out = torch.randn(rows, width, dtype=dtype)
        expected = left[:, :depth] @ panel + (out if accumulate else 0)
        stored = left[:, :depth].T.contiguous() if band else left
        pointers = (ctypes.c_void_p(t.data_ptr()) for t in (stored, panel, out))
        library[f"product_{name}"](
            vectors, band, ctypes.c_int64(depth), *pointers, ctypes.c_bool(accumulate)
        )
        torch.testing.assert_close(out, expected)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_sum_of_the_first_lanes(self, library: ctypes.CDLL, dtype: torch.dtype) -> None:
        name = "float" if dtype == torch.float32 else "double"
        function = library[f"sum_of_first_{name}"]
        function.restype = ctypes.c_float if dtype == torch.float32 else ctypes.c_double
        lanes = library[f"lanes_{name}"]()
        values = torch.arange(1, lanes + 1).to(dtype)
        for count in range(lanes + 1):
            values[count:] = math.nan
            found = function(ctypes.c_void_p(values.data_ptr()), ctypes.c_int64(count))
            assert found == count * (count + 1) / 2
            values = torch.arange(1, lanes + 1).to(dtype)
