"""Operators as functions of a tvm-ffi module: every kind of argument, every library, its words."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import opsmith
from opsmith import checks

pytest.importorskip("tvm_ffi")


import ort_operators as operators
import tvm_ffi
from ort_calls import CALLS, arguments, expected
from tvm_ffi_operators import cube, cube_backward

pytestmark = pytest.mark.slow  # a library with seven kernels

EVERY = [
    operators.everything,
    operators.accumulate,
    operators.reverse,
    operators.positive_rows,
    operators.weighted_sum,
    cube,
]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> opsmith.Artifact:
    out = tmp_path_factory.mktemp("tvm_ffi") / "dist"
    return opsmith.export(EVERY, target="tvm_ffi", out=out, package="every", say=None)


@pytest.fixture(scope="module")
def loaded(artifact: opsmith.Artifact) -> Any:
    return opsmith.load(artifact.folder)


@pytest.fixture(scope="module")
def module(artifact: opsmith.Artifact) -> Any:
    """The library as a user without the package loads it."""
    return tvm_ffi.load_module(artifact.path("every/libevery.so"))


@pytest.mark.parametrize("changes", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_every_kind_of_argument_arrives(loaded, changes, library) -> None:
    given = arguments(torch.float64, **changes)
    run = loaded.runner.run if library == "numpy" else loaded.runner.call
    torch.testing.assert_close(run("ort_test::everything", given), expected(given))


def test_results_are_of_the_library_of_the_first_tensor(loaded) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert type(loaded.ops.reverse(x)) is np.ndarray
    assert loaded.ops.reverse(x).tolist() == x[:, ::-1].tolist()
    for dtype in (torch.float16, torch.bfloat16):
        tensor = torch.from_numpy(x).to(dtype)
        assert torch.equal(loaded.ops.reverse(tensor.T), tensor.T.flip(-1))
    rows, which = loaded.ops.positive_rows(torch.tensor([[1, 2], [-1, 3.0]]))
    assert (rows.tolist(), which.tolist()) == ([[1, 2]], [0])
    kept = loaded.ops.weighted_sum([], [torch.from_numpy(x)], (0, 2))
    assert type(kept) is torch.Tensor


def test_jax_gets_its_own_arrays(loaded) -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(6, dtype="bfloat16").reshape(2, 3)
    found = loaded.ops.reverse(x)
    assert isinstance(found, jax.Array)
    assert found.tolist() == x[:, ::-1].tolist()


def test_the_memory_of_results_may_follow_the_arguments(module) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    out = torch.zeros(3, 4).t()[1:3, :]  # not contiguous
    assert module["reverse"](x, out) is None
    assert torch.equal(out, x.flip(-1))
    rows, which = torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64)
    module["positive_rows"](x, rows, which)
    assert (rows.tolist(), which.tolist()) == ([[3, 4, 5]], [1])
    array = np.zeros((2, 3), np.float32)
    module["reverse"](x.numpy(), array)
    assert array.tolist() == x.flip(-1).tolist()


def test_a_result_may_lie_where_an_argument_does(module) -> None:
    values = torch.arange(7.0)
    x, out = values[:6], values[1:]  # a kernel that wrote at once would read its own results
    wanted = x**3
    module["cube"](x, 1.0, 0, out)
    assert torch.equal(out, wanted)


def raises(kind: type[Exception], call: Any) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    return str(caught.value)


def test_memory_that_a_result_does_not_fit_is_refused(module) -> None:
    x = torch.zeros(2, 3)
    reverse = module["reverse"]
    assert raises(ValueError, lambda: reverse(x, torch.zeros(3, 2))) == (
        "ort_test::reverse: the memory of the result 'out' has shape (3, 2) and dtype float32, "
        "expected shape (2, 3) and dtype float32."
    )
    assert "and dtype float64, expected" in raises(ValueError, lambda: reverse(x, x.double()))
    assert raises(ValueError, lambda: reverse(x, torch.zeros(1).expand(2, 3))) == (
        "ort_test::reverse: argument 'out' is written, but its elements share memory: dimension 0 "
        "was expanded to 2. Pass a clone."
    )
    assert raises(TypeError, lambda: reverse(x, None)) == (
        "ort_test::reverse: the memory of the result 'out' is None."
    )
    assert raises(TypeError, lambda: reverse(x, x, x)) == (
        "ort_test::reverse: takes 1 arguments, or 2 with the memory of its results, got 3."
    )


#: Values of another type than declared, then values that do not fit.
WRONG_TYPES: dict[str, dict[str, Any]] = {
    "no tensor": {"x": 3},
    "a text for a number": {"k": "3"},
    "a fraction for an int": {"k": 1.5},
    "a list in place of a number": {"scale": []},
    "a number in place of a list": {"sizes": 3},
    "a text in place of a list": {"sizes": "57"},
    "a text in a list": {"sizes": [1, "2"]},
    "a number in a list of tensors": {"others": [torch.ones(2, 3), 4]},
    "a tensor in place of a list": {"others": torch.ones(2, 2, 3)},
    "a number for a text": {"mode": 3},
    "a long text for a bool": {"on": "x" * 61},
    "None for a number": {"k": None},
    "a bool for a text": {"mode": True},
}
WRONG_VALUES: dict[str, dict[str, Any]] = {
    "a size": {"bias": torch.ones(4)},
    "a dtype": {"index": torch.zeros(2, dtype=torch.int32)},
    "another dtype than the first": {"bias": torch.ones(3, dtype=torch.float64)},
    "dimensions": {"x": torch.ones(3)},
    "no tensor at all": {"x": None},
    "too few": {"weights": (1.0,)},
    "None in a list": {"others": [None]},
    "a value": {"index": torch.tensor([0, 2])},
}


@pytest.mark.parametrize("wrong", [*WRONG_TYPES, *WRONG_VALUES])
def test_a_call_is_refused_in_the_words_of_pytorch(loaded, wrong) -> None:
    given = arguments(**(WRONG_TYPES | WRONG_VALUES)[wrong])
    with pytest.raises(opsmith.ArgumentError) as wanted:
        operators.everything(**given)
    kind = TypeError if wrong in WRONG_TYPES else ValueError
    assert raises(kind, lambda: loaded.ops.everything(**given)) == str(wanted.value)


def test_an_int_of_more_than_64_bits_is_refused(loaded) -> None:
    said = raises(TypeError, lambda: loaded.ops.everything(**arguments(k=2**63)))
    assert said.startswith("ort_test::everything: argument 'k' is of type ")
    assert said.endswith(", expected int.")


def test_a_failing_kernel_is_a_runtime_error(loaded) -> None:
    for mode in ("fail", "throw", "throw in a thread"):
        with pytest.raises(opsmith.OpsmithError) as wanted:
            operators.everything(**arguments(mode=mode))
        said = raises(RuntimeError, lambda: loaded.ops.everything(**arguments(mode=mode)))  # noqa: B023
        assert said == str(wanted.value)


def test_a_function_has_the_operators_own_signature(loaded) -> None:
    x = torch.arange(3.0)
    assert loaded.ops.cube(x, type=1).tolist() == [1, 2, 9]
    with pytest.raises(TypeError, match="unexpected keyword argument 'factor'"):
        loaded.ops.cube(x, factor=1)
    with pytest.raises(
        TypeError, match="takes from 9 to 15 positional arguments but 16 were given"
    ):
        loaded.ops.everything(*[x] * 16)
    assert loaded.ops.cube.__doc__.startswith("Give scale * x³ + type;")


def test_the_declared_backward_is_in_the_module(artifact, loaded) -> None:
    assert [use.name for use in artifact.manifest.operators][-2:] == [cube.name, cube_backward.name]
    x, grad = torch.arange(3.0), torch.ones(3)
    for library in (torch.asarray, np.asarray):
        found = loaded[cube_backward.name](*map(library, (x, grad, x)), 2.0)
        assert found.tolist() == [0, 6, 24]
    assert type(found) is np.ndarray


def test_what_an_operator_writes_into_is_written_in_place(loaded) -> None:
    total = np.ones(6)[::2]
    assert loaded.ops.accumulate(np.arange(6.0).reshape(2, 3), total).tolist() == [3, 12]
    assert total.tolist() == [7, 11, 15]


def test_an_array_that_is_fixed_is_not_written_into(loaded) -> None:
    jnp = pytest.importorskip("jax.numpy")
    x, fixed, total = np.ones((2, 3), np.float32), np.ones(3, np.float32), jnp.ones(3)
    fixed.flags.writeable = False
    with pytest.raises(BufferError, match="readonly"):
        loaded.ops.accumulate(x, fixed)
    said = raises(ValueError, lambda: loaded.ops.accumulate(x, total))
    assert said.startswith(
        "ort_test::accumulate: argument 'total' is written into, and an array of jaxlib cannot be."
    )
    assert total.tolist() == fixed.tolist() == [1, 1, 1]


def test_a_tensor_with_a_gradient_is_refused(loaded) -> None:
    x = torch.ones(2, 3, requires_grad=True)
    said = raises(ValueError, lambda: loaded.ops.reverse(x))
    assert said == (
        "ort_test::reverse: argument 'x' requires a gradient, and this function has no derivative. "
        "Pass x.detach(), or call the operator that it was exported from."
    )
    assert said[21:] in raises(
        ValueError, lambda: loaded.ops.weighted_sum([], [x], (0, 2))
    ).replace("'xs'", "'x'")


def test_a_view_that_is_negated_when_it_is_read_is_refused(loaded) -> None:
    x = torch.ones(2, 3, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    assert raises(ValueError, lambda: loaded.ops.reverse(x)) == (
        "ort_test::reverse: argument 'x' is a view that is negated when it is read. Pass "
        "x.resolve_neg()."
    )


def test_a_result_that_does_not_fit_into_memory_is_a_memory_error(loaded, module) -> None:
    x = np.lib.stride_tricks.as_strided(np.zeros(1), (2**40, 2**9), (0, 0))
    with pytest.raises(MemoryError, match=r"^ort_test::reverse: argument 'x' needs a contigu"):
        loaded.ops.reverse(x)


def test_a_program_without_python_calls_the_module(artifact, tmp_path) -> None:
    from tvm_ffi import libinfo

    source, program = Path(__file__).parent / "sources" / "program.cpp", tmp_path / "program"
    library = Path(libinfo.find_libtvm_ffi())
    command = ["g++", "-std=c++17", "-O0", f"-I{libinfo.find_include_path()}", source, library]
    subprocess.run([*command, f"-Wl,-rpath,{library.parent}", "-o", program], check=True)
    done = subprocess.run(
        [program, artifact.path("every/libevery.so")], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "3 3",
        "17 17",
        "55 55",
        "TypeError: tvm_ffi_test::cube: argument 'scale' is 'two' (str), expected float.",
    ]


def test_a_package_needs_no_pytorch_and_no_opsmith(artifact, tvm_ffi_python) -> None:
    script = """
import sys
import numpy as np
import every
x = np.arange(3, dtype=np.float32)
assert every.cube(x).tolist() == [0, 1, 8]
assert every.FUNCTIONS["tvm_ffi_test::cube"] is every.cube
assert not {"torch", "opsmith"} & set(sys.modules)
"""
    done = subprocess.run(
        [tvm_ffi_python, "-c", script], cwd=artifact.folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def rows(*select: str) -> dict[str, Any]:
    report = checks.run(cube, select=list(select), isolate=False, examples=6)
    return {row.check: row for row in report.rows if row.check in select and row.kernel == "cpu"}


def test_the_rows_of_the_check_pass_and_run_the_kernel() -> None:
    several = rows("tvm_ffi", "tvm_ffi_torch", "tvm_ffi_jax")
    assert len(several) == 3
    for name, found in several.items():
        assert found.status == "passed", (name, found.message)
        assert found.cases > 2, name


def test_a_row_of_the_check_tries_what_a_condition_forbids(
    monkeypatch: pytest.MonkeyPatch, loaded: Any
) -> None:
    with pytest.raises(ValueError, match="do not satisfy type > -8: -8 > -8 is false"):
        loaded.runner.run("tvm_ffi_test::cube", {"x": torch.ones(2), "scale": 1.0, "type": -8})
    tried: list[str] = []
    monkeypatch.setattr(
        "opsmith.checks.catalogue.targets._must_refuse",
        lambda proof, run, broken: tried.append(broken.condition),
    )
    assert rows("tvm_ffi")["tvm_ffi"].status == "passed"
    assert tried == ["type > -8"]


def test_the_rows_of_the_check_find_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    from opsmith.targets.hosted import functions

    monkeypatch.setattr(functions, "to_torch", lambda value: torch.as_tensor(value) + 1)
    found = rows("tvm_ffi")["tvm_ffi"]
    assert found.status == "failed"
    assert "in the tvm-ffi module" in found.message
