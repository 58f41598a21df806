"""Libraries for ONNX Runtime's CUDA provider, without a GPU.

The adapters run in ONNX Runtime under a stand-in for that provider (``sources/cuda/provider.cpp``),
whose memory the host cannot read. That a GPU computes what is right only a GPU shows.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda_operators as ops
import numpy as np
import onnxruntime
import pytest
import torch
from fake_cuda import SOURCES as FAKE_CUDA, Jit, as_text, fake_cuda
from torch import Tensor

import opsmith
from opsmith import ArtifactError, ExportError
from opsmith.kernels import KernelSource, Recipe
from opsmith.kernels.languages.triton import TritonKernel, compiling, language as triton_language
from opsmith.kernels.libraries.loaded_library import calls_in
from opsmith.targets.onnxruntime import library
from opsmith.targets.onnxruntime.proofs import SingleNode
from opsmith.targets.onnxruntime.providers import PROVIDERS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def provider() -> ctypes.CDLL:
    """The stand-in for the provider."""
    fake_cuda()
    path = Recipe(
        "ort_cuda__provider",
        [ops.SOURCES / "provider.cpp"],
        include_dirs=[FAKE_CUDA, library.INCLUDE],
        link_libraries=("dl",),
        torch="none",
    ).build()
    loaded = ctypes.CDLL(str(path))
    loaded.provider_said.restype = ctypes.c_char_p
    loaded.scratch_left.restype = ctypes.c_int64
    loaded.path = path
    return loaded


@pytest.fixture
def run(provider: ctypes.CDLL) -> Callable[..., list[Tensor]]:
    """Calls an operator's CUDA kernel in ONNX Runtime."""

    def call(operator: opsmith.Operator, **arguments: Any) -> list[Tensor]:
        path = library.build(library.kernel_of(operator, "cuda"))
        provider.use(str(path).encode(), operator.signature.namespace.encode())
        kernel = ctypes.CDLL(str(path))
        before = calls_in(kernel, operator.signature, "cuda")
        results = SingleNode(operator, provider.path, "cpu", arguments)(arguments)
        assert calls_in(kernel, operator.signature, "cuda") == before + 1
        return results

    return call


X = torch.arange(12.0).reshape(4, 3)


def test_a_kernel_runs_in_the_providers_stream_on_memory_that_the_host_does_not_read(run, provider):
    index = torch.tensor([3, 0, 3])
    for dtype in (torch.float32, torch.float64):
        x = X.to(dtype)
        (found,) = run(ops.pick, x=x, index=index, others=[x, 2 * x], scale=0.5)
        torch.testing.assert_close(found, (4 * x)[index] * 0.5)
    assert provider.provider_said() == b"CUDAExecutionProvider"
    assert provider.scratch_left() == 0


def test_empty_tensors_and_lists_arrive(run):
    (found,) = run(ops.pick, x=X, index=torch.zeros(0, dtype=torch.int64), others=[], scale=1.0)
    assert found.shape == (0, 3)
    assert run(ops.positive, x=torch.zeros(0))[0].shape == (0,)


def test_values_that_are_on_the_device_are_left_to_the_kernel(run):
    (found,) = run(ops.pick, x=X, index=torch.tensor([1, 99]), others=[], scale=1.0)
    assert found.tolist() == [[3.0, 4.0, 5.0], [-1.0, -1.0, -1.0]]


def test_an_argument_that_is_written_is_copied_on_the_device_in_the_providers_stream(run):
    total = torch.tensor([1.0, 2.0, 3.0])
    fake_cuda().fake_clear(90)
    (found,) = run(ops.add_rows, x=X, total=total)
    torch.testing.assert_close(found, total + X.sum(0))
    assert total.tolist() == [1.0, 2.0, 3.0]
    assert "copy 12 bytes, stream 77" in fake_cuda().fake_log().decode().splitlines()


def test_a_copy_that_the_driver_refuses_is_an_error_of_the_run(run):
    fake_cuda().fake_refuse(1)
    try:
        with pytest.raises(
            Exception, match="add_rows: copying an argument that is written: CUDA_ER"
        ):
            run(ops.add_rows, x=X, total=torch.zeros(3))
    finally:
        fake_cuda().fake_refuse(0)


def test_a_result_whose_size_the_data_decide_is_allocated_on_the_device(run):
    (found,) = run(ops.positive, x=torch.tensor([1.0, -1.0, 2.0]))
    assert found.tolist() == [1.0, 2.0]


def test_arguments_are_refused_in_the_words_of_every_runtime(run, provider):
    index = torch.tensor([0])
    with pytest.raises(Exception, match=r"ort_cuda::pick") as caught:
        run(ops.pick, x=X, index=index, others=[X[:, :2]], scale=1.0)
    with pytest.raises(RuntimeError) as same:
        ops.pick(X, index, [X[:, :2]], 1.0)
    assert str(same.value) in str(caught.value)
    with pytest.raises(Exception, match="the cuda kernel has no float16; it has float32, float64"):
        run(ops.pick, x=X.half(), index=index, others=[], scale=1.0)
    with pytest.raises(Exception, match="ort_cuda::pick: asked to fail with 1 others"):
        run(ops.pick, x=X, index=index, others=[X], scale=0.0)
    assert provider.scratch_left() == 0


def scale_kernel(x_ptr, out_ptr, count, factor, BLOCK: "tl.constexpr"):
    pass


@pytest.mark.long  # test_triton_launch.py launches, and others here by the stream
def test_what_triton_compiled_is_launched_in_the_providers_stream(provider, monkeypatch):
    monkeypatch.setattr(compiling, "compile_for", as_text)
    monkeypatch.setattr(compiling, "cache_key", lambda kernel: "a text")
    monkeypatch.setattr(triton_language, "require_triton", lambda what: None)
    monkeypatch.setenv("OPSMITH_CUDA_ARCHS", "90")
    signature = ops.scale.signature
    kernel = TritonKernel(
        signature,
        "cuda",
        Jit(scale_kernel),
        grid=("N",),
        meta={"BLOCK": 64, "num_warps": 2},
        args={"count": "N*C"},
    )
    language = triton_language.Triton(kernel, ())
    path = library.build(KernelSource(signature, "cuda", Path(__file__), language=language))
    provider.use(str(path).encode(), b"ort_cuda")
    arguments = {"x": torch.ones(5, 3), "factor": 0.5}
    call = SingleNode(ops.scale, provider.path, "cpu", arguments)
    fake_cuda().fake_clear(90)
    call(arguments)
    launch = fake_cuda().fake_log().decode().splitlines()[-1]
    assert launch.startswith("launch ppif None sm_90 BLOCK=64 /16: ")
    words = re.search(r"\(5, 1, 1\) x 64, 0 bytes, stream 4d: (\w+) (\w+) 15 0.5$", launch)
    assert words is not None, launch
    # Addresses that the host cannot read, as the provider gave them.
    assert all(int(address, 16) >> 62 == 1 for address in words.groups())


class Picks(torch.nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return ops.pick(x, index, [x], 0.5) + 1


INDEX = torch.tensor([2, 0])


def exported(tmp_path: Path, **options: Any) -> tuple[opsmith.Artifact, list[str]]:
    said: list[str] = []
    artifact = opsmith.export(
        Picks(),
        (X, INDEX),
        target="onnxruntime",
        out=tmp_path / "dist",
        form="library",
        provider="cuda",
        say=said.append,
        **options,
    )
    return artifact, said


def loader(artifact: opsmith.Artifact) -> Any:
    spec = importlib.util.spec_from_file_location("cuda_run", artifact.folder / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load


def test_an_artifact_for_cuda_has_the_kernels_of_both_devices_and_runs_where_only_the_cpu_is(
    tmp_path,
):
    artifact, said = exported(tmp_path)
    details = artifact.manifest.details
    assert details["providers"] == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert details["operators"] == {"ort_cuda::pick": "operators/ort_cuda.pick.cuda.so"}
    files = sorted(path.name for path in (artifact.folder / "operators").iterdir())
    assert files == ["ort_cuda.pick.cuda.so", "ort_cuda.pick.so", "ort_cuda.so"]
    assert (
        f"not compared with PyTorch: this ONNX Runtime ({onnxruntime.__version__}) has no "
        "CUDAExecutionProvider, only "
    ) in "\n".join(said)
    session = loader(artifact)(providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": X.numpy(), "index": INDEX.numpy()})
    np.testing.assert_allclose(found, (2 * X)[INDEX] * 0.5 + 1)
    on_cpu = artifact.folder / "operators" / "ort_cuda.pick.so"
    assert calls_in(ctypes.CDLL(str(on_cpu)), ops.pick.signature, "cpu") == 1


def test_a_session_for_cuda_without_it_says_so(tmp_path):
    artifact, _ = exported(tmp_path)
    words = f"has no CUDAExecutionProvider, only {', '.join(onnxruntime.get_available_providers())}"
    with pytest.raises(ArtifactError, match=f"{words}: pip install onnxruntime-gpu, in place"):
        opsmith.load(artifact.folder)
    with pytest.raises(RuntimeError, match="needs CUDAExecutionProvider, and this onnxruntime has"):
        loader(artifact)()
    process = subprocess.run(
        [sys.executable, artifact.folder / "run.py", "in.npz", "out.npz"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr.startswith("error: needs CUDAExecutionProvider")


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_start_is_an_error_and_not_another_ones_result(
    tmp_path, monkeypatch
):
    # ONNX Runtime goes on with the CPU's, and a warning.
    artifact, _ = exported(tmp_path)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(ArtifactError, match="it has CUDAExecutionProvider and could not start"):
        opsmith.load(artifact.folder)
    with pytest.raises(RuntimeError, match="CUDAExecutionProvider did not start"):
        loader(artifact)()


def test_an_operator_without_a_kernel_for_cuda_is_refused_by_name(tmp_path):
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ops.on_the_host(x)

    with pytest.raises(ExportError) as caught:
        opsmith.export(
            Model(),
            (X,),
            target="onnxruntime",
            out=tmp_path / "dist",
            form="library",
            provider="cuda",
            say=None,
        )
    assert (
        "ort_cuda::on_the_host: the library form needs a C++ kernel, and there is no kernel for "
        'CUDA. Add one: on_the_host.register_kernel("cuda", source="on_the_host.cu"), or export it '
        "in the inline form."
    ) in str(caught.value)


def test_a_dtype_that_only_the_other_devices_kernel_has_is_refused(tmp_path):
    with pytest.raises(ExportError, match="calls it in float16, and its CUDA kernel has float32, "):
        opsmith.export(
            Picks(),
            (X.half(), INDEX),
            target="onnxruntime",
            out=tmp_path / "dist",
            form="library",
            provider="cuda",
            say=None,
        )


def test_the_row_of_the_check_says_why_it_does_not_run_a_cuda_kernel():
    from opsmith.targets.onnxruntime.proofs import PROOFS

    (direct,) = [proof for proof in PROOFS if proof.name == "onnxruntime"]
    obstacle = direct.obstacle(ops.pick, ops.pick.kernels["cuda"])
    assert obstacle == PROVIDERS["cuda"].missing() != ""
    assert direct.obstacle(ops.pick, ops.pick.kernels["cpu"]) is None
