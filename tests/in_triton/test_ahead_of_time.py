"""Triton compiles kernels for GPUs that are not here, into libraries that need no Python.

How such a library chooses and launches is tested without Triton, in
``tests/kernels/languages/test_triton_launch.py``. That the GPU then computes what is right, only a
GPU shows.
"""

import os

import pytest

from opsmith.kernels import Generated, adapters, generated_key
from opsmith.kernels.toolchain.audit import dynamic_symbols

if not os.environ.get("OPSMITH_REQUIRE_TRITON"):
    pytest.importorskip("triton", reason="no Triton here; make triton installs it and runs these")
from triton_kernels import row_sums, scale

from opsmith.errors import MissingDependencyError
from opsmith.kernels.languages.triton import compiling
from opsmith.kernels.languages.triton.variants import configurations


@pytest.fixture(autouse=True)
def _for_two_generations(monkeypatch):
    monkeypatch.setenv("OPSMITH_CUDA_ARCHS", "80;90")


@pytest.fixture
def _served():
    row_sums.register_sizes({"C": 64}, {"N": 32, "C": 300})
    yield
    row_sums.sizes.clear()


def sm_of(cubin: bytes) -> int:
    """The architecture in the flags of an ELF file's header."""
    assert cubin[:4] == b"\x7fELF"
    flags = int.from_bytes(cubin[48:52], "little")
    return flags & 0xFF if flags & 0xFF in (80, 90) else flags >> 8 & 0xFF


@pytest.mark.usefixtures("_served")
def test_a_library_has_code_for_every_architecture_and_exports_the_kernels_symbol():
    source = row_sums.kernels["cuda"].entry
    signature = row_sums.signature
    library = source.build_beside(
        "in_triton__row_sums__alone",
        Generated(generated_key(signature), lambda: adapters.kernel_files(signature)),
        torch="none",
        what="row_sums alone",
    )
    symbols = dynamic_symbols(library)
    assert "opsmith_kernel__in_triton__row_sums__cuda" in str(list(symbols))
    (first, _) = configurations(source.language.kernel, source.language.served)
    content = library.read_bytes()
    for architecture in (80, 90):
        image = compiling.compile_for(
            source.language.kernel, first, None, first.assumptions()[0], architecture
        )
        assert sm_of(image.code) == architecture
        assert image.code in content


def test_assumptions_become_wide_loads_and_constants_leave_the_parameters():
    kernel = scale.kernels["cuda"].entry.language.kernel
    (only,) = configurations(kernel, [])
    most, least = (
        compiling.compile_for(kernel, only, "float32", assumption, 80)
        for assumption in (only.assumptions()[0], only.assumptions()[-1])
    )
    assert most.code != least.code
    assert (most.name, most.warps, most.further) == ("scale_kernel", 2, 2)


def test_a_kernel_for_sizes_that_nobody_serves_is_refused_before_anything_is_compiled():
    source = row_sums.kernels["cuda"].entry
    with pytest.raises(MissingDependencyError, match=r'row_sums\.register_sizes\({"C": 64}\)'):
        source.language.unit(source)


@pytest.mark.usefixtures("_served")
def test_onnx_runtime_registers_a_library_for_its_cuda_provider():
    from onnxruntime import SessionOptions

    from opsmith.targets.onnxruntime import library

    path = library.build(library.kernel_of(row_sums, "cuda"))
    undefined = {symbol.name for symbol in dynamic_symbols(path) if not symbol.defined}
    assert not {name for name in undefined if name.startswith(("cu", "aoti_torch", "Ort"))}
    SessionOptions().register_custom_ops_library(str(path))
