"""A wheel carries what Triton compiled, and where it is installed the GPUs decide who launches.

The GPUs are said to be there, and so is PyTorch's library for them: what is launched is tested in
``tests/kernels/languages/test_triton_launch.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

if not os.environ.get("OPSMITH_REQUIRE_TRITON"):
    pytest.importorskip("triton", reason="no Triton here; make triton installs it and runs these")

from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.audit import dynamic_symbols, is_unstable_torch
from opsmith.wheels import build_wheel
from opsmith.wheels.platforms import find_platform

pytestmark = pytest.mark.slow(cases=2)

PACKAGE = {
    "pyproject.toml": """
        [project]
        name = "triton-ops"
        version = "1.0"
    """,
    "triton_ops/__init__.py": """
        import opsmith
        from jaxtyping import Float, Float32
        from torch import Tensor

        @opsmith.op("triton_wheel::doubled")
        def doubled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            return 2 * x

        doubled.register_kernel("cuda", triton=".kernels:double", grid=("N",))

        @opsmith.op("triton_wheel::row_sums")
        def row_sums(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
            return x.sum(1)

        row_sums.register_kernel(
            "cuda", triton=".kernels:row_sums", grid=("N",), meta=lambda C: {"BLOCK": 64}
        )
        row_sums.register_sizes({"C": 64})

        @opsmith.op("triton_wheel::unserved")
        def unserved(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
            return x.sum(1)

        unserved.register_kernel(
            "cuda", triton=".kernels:row_sums", grid=("N",), meta=lambda C: {"BLOCK": C}
        )

        @opsmith.op("triton_wheel::launched")
        def launched(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            return 2 * x

        @launched.register_kernel("cuda", triton=True)
        def _(x):
            raise NotImplementedError
    """,
    "triton_ops/kernels.py": """
        import triton
        import triton.language as tl

        @triton.jit
        def double(x, out):
            i = tl.program_id(0)
            tl.store(out + i, 2 * tl.load(x + i))

        @triton.jit
        def row_sums(x, out, C: tl.constexpr, BLOCK: tl.constexpr):
            i = tl.arange(0, BLOCK)
            row = tl.load(x + tl.program_id(0) * C + i, mask=i < C, other=0.0)
            tl.store(out + tl.program_id(0), tl.sum(row))
    """,
}
# A PyTorch with CUDA, as far as it is asked before a kernel is launched.
USE = """
    import sys
    sys.modules["opsmith"] = None
    import torch
    from triton_ops import doubled, row_sums

    torch.version.cuda = {toolkit!r}
    torch.cuda.is_available = lambda: {count} > 0
    torch.cuda.device_count = lambda: {count}
    torch.cuda.get_device_capability = lambda device: {capabilities}[device]
    if not {triton}:
        sys.modules["triton"] = sys.modules["triton.language"] = None
    for operator in (doubled, row_sums):
        try:
            built = [path.name for path in operator.build("cuda")]
        except Exception as error:
            built = [type(error).__name__ + " " + str(error)]
        print(*built, "|", operator.kernels["cuda"].calls)
"""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What was said while `wheel` was built."""
    return []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> Path:
    """The package as a wheel."""
    folder = tmp_path_factory.mktemp("package")
    for place, text in PACKAGE.items():
        path = folder / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSMITH_CUDA_ARCHS", "80;90")
        level = find_platform("native").levels[0]
        return build_wheel(folder, folder / "dist", levels=[level], say=said.append)


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """The wheel, unpacked beside what its libraries ask of a PyTorch with CUDA."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    source = tmp_path / "stub.c"
    source.write_text("int aoti_torch_get_current_cuda_stream() { return 1; }\n")
    compiler = compilers.find_compiler("this test").path
    library = str(tmp_path / "libtorch_cuda.so")
    words = ["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libtorch_cuda.so", "-o", library]
    subprocess.run([compiler, *words, str(source)], check=True)
    return tmp_path


def use(
    site: Path,
    *capabilities: tuple[int, int],
    triton: bool = True,
    toolkit: str | None = "12.8",
) -> list[str]:
    """What each operator built on a machine with such GPUs, and how often its kernel ran."""
    text = textwrap.dedent(USE).format(
        capabilities=list(capabilities), count=len(capabilities), triton=triton, toolkit=toolkit
    )
    here = [path for path in sys.path if path]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), *here]),
        "LD_LIBRARY_PATH": str(site),
    }
    run = [sys.executable, "-c", text]
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


DOUBLE, SUMS = "libtriton_wheel__doubled__cuda.so | 0", "libtriton_wheel__row_sums__cuda.so | 0"
LAUNCHED = "| 0"


def test_it_holds_code_for_each_architecture_and_says_what_the_library_serves(
    wheel: Path, said: list[str], tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "triton_ops" / "_opsmith"
    listed = json.loads((folder / "libraries.json").read_text())
    served = {one["operator"]: (one["architectures"], one["sizes"]) for one in listed["libraries"]}
    assert served == {
        "triton_wheel::doubled": ([80, 90], []),
        "triton_wheel::row_sums": ([80, 90], [{"C": 64}]),
    }
    for one in listed["libraries"]:
        library = folder / one["file"]
        # The driver is opened when a call launches.
        assert b"libtorch_cuda.so" in library.read_bytes()
        names = [symbol.name for symbol in dynamic_symbols(library) if not symbol.defined]
        assert "aoti_torch_get_current_cuda_stream" in names
        assert not [name for name in names if is_unstable_torch(name) or name.startswith("Py")]
    start = "its Python comes along, and Triton compiles it where it is called: "
    assert said == [
        f"triton_wheel::unserved (cuda): {start}the Triton kernel is compiled for the sizes of C, "
        'and register_sizes names none of them: unserved.register_sizes({"C": 64})',
        f"triton_wheel::launched (cuda): {start}a function launches it",
    ]


def test_its_library_serves_later_gpus_of_a_generation_without_triton(site: Path) -> None:
    assert use(site, (8, 9), (9, 0), triton=False) == [DOUBLE, SUMS]


def test_where_triton_is_it_serves_sizes_that_no_library_was_compiled_for(site: Path) -> None:
    assert use(site, (8, 0)) == [DOUBLE, LAUNCHED]


@pytest.mark.parametrize(
    ("toolkit", "capabilities", "missing"),
    [("12.8", [(8, 0), (12, 0)], "sm_120"), ("12.8", [(7, 5)], "sm_75"), (None, [(9, 0)], "ROCm")],
)
def test_gpus_that_it_has_no_code_for_need_triton(
    site: Path, toolkit: str | None, capabilities: list[tuple[int, int]], missing: str
) -> None:
    assert use(site, *capabilities, toolkit=toolkit) == [LAUNCHED, LAUNCHED]
    refused = use(site, *capabilities, toolkit=toolkit, triton=False)
    assert refused[0] == (
        f"MissingDependencyError triton_wheel::doubled (cuda): the library that came with "
        f"{site / 'triton_ops'} is for sm_80, sm_90, and this machine has {missing}. Triton "
        'is not installed. Get it: pip install "triton>=3.6" | 0'
    )


@pytest.mark.parametrize("file", ["__init__.py", "kernels.py"])
def test_edited_python_is_not_served_by_the_library(site: Path, file: str) -> None:
    path = site / "triton_ops" / file
    path.write_text(path.read_text() + "\n")
    assert use(site, (9, 0)) == [LAUNCHED, LAUNCHED]


def test_without_a_gpu_its_library_is_refused_by_name(site: Path) -> None:
    refused, _ = use(site)
    assert refused == (
        f"MissingDependencyError triton_wheel::doubled (cuda): a library came with "
        f"{site / 'triton_ops'}; "
        "there is no cuda device on this machine | 0"
    )
