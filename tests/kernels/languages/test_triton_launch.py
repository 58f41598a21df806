"""How a library launches what Triton compiled: which of its variants, with what, and when not.

Nothing here needs Triton or a GPU: "code" is a text that says what it was compiled for, and the
driver is a stand-in that remembers what it was asked for (``sources/fake_cuda.cpp``).
"""

import ctypes

import pytest
from fake_cuda import SOURCES, Jit, as_text, fake_cuda
from jaxtyping import Float
from torch import Tensor

from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels import DEVICES, Recipe, adapters
from opsmith.kernels.languages.triton import TritonKernel, compiling
from opsmith.kernels.languages.triton.language import render_launch
from opsmith.kernels.languages.triton.variants import configurations
from opsmith.signature import signature_of

pytestmark = pytest.mark.slow(cases=2)


def scale(x: Float[Tensor, "N C"], factor: float) -> Float[Tensor, "N C"]:
    return x * factor


SIGNATURE = signature_of(scale, "launched::scale")


def scale_kernel(x_ptr, out_ptr, count, N, factor, C: "tl.constexpr", BLOCK: "tl.constexpr"):
    pass


KERNEL = TritonKernel(
    SIGNATURE,
    "cuda",
    Jit(scale_kernel),
    grid=lambda x, N, BLOCK: ((x.numel() + BLOCK - 1) // BLOCK, N),
    meta=lambda C: {"BLOCK": 64 if C < 100 else 128, "num_warps": 2 if C < 100 else 8},
    args={"count": lambda x: x.numel()},
)
SERVED = ({"C": 3}, {"N": 32, "C": 200})


@pytest.fixture(scope="module")
def driver():
    return fake_cuda()


@pytest.fixture(scope="module")
def call(driver):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "compile_for", as_text)
        text = render_launch(KERNEL, configurations(KERNEL, SERVED), (80, 86, 90))
    library = Recipe(
        "launched__scale__test",
        [SOURCES / "call_scale.cpp"],
        {**adapters.kernel_files(SIGNATURE), "scale_triton.cpp": text},
        defines=DEVICES["cuda"].compile_definitions,
        link_libraries=("dl",),
        torch="none",
    ).build()
    function = ctypes.CDLL(str(library)).call_scale
    function.restype = ctypes.c_char_p
    function.argtypes = [ctypes.c_uint64, *[ctypes.c_int64] * 2, ctypes.c_double, ctypes.c_int]

    def call(n, c, *, x=0x1000, factor=0.5, bits=32, gpu=90):
        driver.fake_clear(gpu)
        said = function(x, n, c, factor, bits).decode()
        return said, driver.fake_log().decode().splitlines()

    return call


def test_a_call_is_launched_with_its_grid_arguments_and_stream(call):
    said, log = call(5, 3)
    assert said == "launched"
    assert log[-1] == (
        "launch ppiif float32 sm_90 C=3,BLOCK=64 /16: out_ptr,x_ptr (1, 5, 1) x 64, 0 bytes, "
        "stream 77: 1000 2000 15 5 0.5"
    )


def test_code_is_loaded_once_for_each_gpu_on_the_tensors_own_device(call):
    _, log = call(5, 3, bits=64)
    assert log[:2] == [
        "device 90",
        "load ppiif float64 sm_90 C=3,BLOCK=64 /16: out_ptr,x_ptr",
    ]
    assert not any(line.startswith("load") for line in call(7, 3, bits=64)[1])


def test_large_shared_memory_is_asked_for(call):
    _, log = call(1, 200, bits=16)
    assert "attribute 8 = 100000" in log


@pytest.mark.parametrize(
    ("given", "code"),
    [
        # 32 rows of 200 are served: both numbers are multiples of 16 then, as here.
        ({"n": 64, "c": 200}, "ppiif float32 sm_90 C=200,BLOCK=128 /16: N,count,out_ptr,x_ptr"),
        ({"n": 65, "c": 200}, "ppiif float32 sm_90 C=200,BLOCK=128 /16: out_ptr,x_ptr"),
        ({"n": 64, "c": 200, "x": 0x1004}, "ppllf float32 sm_90 C=200,BLOCK=128 /16: "),
        ({"n": 2**31, "c": 3}, ""),
        ({"n": 64, "c": 3, "bits": 64}, "ppiif float64 sm_90 C=3,BLOCK=64 /16: out_ptr,x_ptr"),
        ({"n": 64, "c": 3, "gpu": 86}, "ppiif float32 sm_86 C=3,BLOCK=64 /16: out_ptr,x_ptr"),
        ({"n": 64, "c": 3, "gpu": 89}, "ppiif float32 sm_86 C=3,BLOCK=64 /16: out_ptr,x_ptr"),
        ({"n": 64, "c": 3, "gpu": 80}, "ppiif float32 sm_80 C=3,BLOCK=64 /16: out_ptr,x_ptr"),
    ],
)
def test_the_variant_that_assumes_most_of_what_holds_is_launched(call, given, code):
    said, log = call(**given)
    if not code:
        assert said == (
            "the grid (100663296, 2147483648, 1) is not one that CUDA has: at most 2147483647, "
            "65535 and 65535 programs"
        )
        return
    assert said == "launched"
    assert log[-1].startswith(f"launch {code} (")


def test_numbers_of_more_than_32_bits_are_passed_whole(call):
    said, log = call(60_000, 200, x=0x1000)
    assert said == "launched" and log[-1].endswith(" 12000000 60000 0.5")
    # The grid has room for 65,535 rows, so that only the count can be so large.
    wide = configurations(KERNEL, SERVED)[0].assumptions()[-1]
    assert wide == (frozenset(), False)


def test_a_size_that_nobody_serves_is_refused_by_name(call):
    said, log = call(5, 80)
    assert said == (
        "the Triton kernel was compiled for C=3 or C=200, the sizes that are served "
        "(register_sizes), and this call has C=80"
    )
    assert not log


def test_a_gpu_that_the_kernel_was_not_compiled_for_is_named(call):
    said, _ = call(5, 3, gpu=120)
    assert said == (
        "the Triton kernel was compiled for sm_80, sm_86, sm_90, and this GPU is an sm_120: build "
        "it again with OPSMITH_CUDA_ARCHS"
    )


def test_what_the_driver_refuses_names_the_kernel(call, driver):
    driver.fake_refuse(1)
    try:
        said, _ = call(5, 3)
    finally:
        driver.fake_refuse(0)
    assert said == (
        "the launch of the Triton kernel scale_kernel with grid (1, 5, 1): "
        "CUDA_ERROR_INVALID_VALUE, invalid argument"
    )


def test_nothing_is_launched_for_empty_tensors(call):
    assert call(0, 3) == ("launched", [])


def test_dimensions_that_decide_must_be_served():
    with pytest.raises(MissingDependencyError) as caught:
        configurations(KERNEL, [{"N": 4}])
    assert str(caught.value) == (
        "launched::scale (cuda): the Triton kernel is compiled for the sizes of C, and "
        "register_sizes "
        'names none of them: scale.register_sizes({"C": 64})'
    )


def constant_argument(x, out, factor: "tl.constexpr"):
    pass


def test_a_constant_that_only_a_call_has_is_refused():
    kernel = TritonKernel(SIGNATURE, "cuda", Jit(constant_argument), ("N",))
    with pytest.raises(DeclarationError, match=r"for the value of the argument 'factor'"):
        configurations(kernel, [])
