"""Operators in JAX: every kind of argument, vmap, messages, and a package that needs no torch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith

jax = pytest.importorskip("jax")
jnp = jax.numpy

import ort_operators as operators  # noqa: E402
from ort_calls import CALLS, arguments, expected  # noqa: E402

from opsmith.targets.jax import proofs  # noqa: E402
from opsmith.targets.jax.runner import to_jax, wide  # noqa: E402

EVERY = [operators.everything, operators.accumulate, operators.reverse]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> opsmith.Artifact:
    out = tmp_path_factory.mktemp("jax") / "dist"
    return opsmith.export(EVERY, target="jax", out=out, package="every", say=None)


@pytest.fixture(scope="module")
def loaded(artifact: opsmith.Artifact) -> Any:
    return opsmith.load(artifact.folder)


@pytest.fixture
def compiled() -> Iterator[list[str]]:
    """Each program that XLA compiles during a test."""
    events: list[str] = []

    def note(event: str, seconds: float, **more: Any) -> None:
        if event.endswith("backend_compile_duration"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield events
    jax.monitoring.clear_event_listeners()


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("changes", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_kind_of_argument_arrives(loaded, changes, dtype) -> None:
    given = arguments(dtype, **changes)
    found = loaded.runner.run("ort_test::everything", given)
    torch.testing.assert_close(found, expected(given))


@pytest.mark.slow
def test_what_an_operator_writes_into_is_returned(loaded) -> None:
    x, total = jnp.arange(6.0).reshape(2, 3), jnp.ones(3)
    rows, written = loaded.ops.accumulate(x, total)
    assert rows.tolist() == [3, 12]
    assert written.tolist() == [7, 11, 15]
    assert total.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_tensor_reaches_jax_as_a_copy_for_which_nothing_is_compiled(dtype, compiled) -> None:
    tensor = torch.ones(7, 31, dtype=dtype)
    array = to_jax(tensor)
    tensor.zero_()
    assert array.dtype == str(dtype).removeprefix("torch.")
    assert (np.asarray(array) == 1).all()
    assert not compiled


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "float16", "bfloat16"])
def test_every_dtype_arrives(loaded, dtype) -> None:
    x = jnp.arange(12).reshape(3, 4).astype(dtype)
    assert (loaded.ops.reverse(x) == x[:, ::-1]).all()


@pytest.mark.slow
def test_threads_and_scratch_are_there(loaded) -> None:
    x = jnp.arange(40000.0).reshape(4000, 10)
    for _ in range(20):
        assert (loaded.ops.reverse(x) == x[:, ::-1]).all()


@pytest.mark.slow
def test_an_exception_in_a_thread_leaves_as_an_error(loaded) -> None:
    given = {**ARRAYS, "k": 1, "on": True, "sizes": (), "weights": (0.0, 0.0)}
    with pytest.raises(jax.errors.JaxRuntimeError, match="everything: thrown in a thread"):
        jax.block_until_ready(loaded.ops.everything(**given, mode="throw in a thread"))
    with pytest.raises(jax.errors.JaxRuntimeError, match="asked to fail with k=1"):
        jax.block_until_ready(loaded.ops.everything(**given, mode="fail"))


@pytest.mark.slow
def test_under_jit_an_operator_is_one_call_of_the_kernel(loaded) -> None:
    f = jax.jit(lambda x: loaded.ops.reverse(loaded.ops.reverse(x) + 1))
    x = jnp.arange(6.0).reshape(2, 3)
    jax.block_until_ready(f(x))
    before = loaded.ops.reverse.library.calls()
    assert (f(x) == x + 1).all()
    assert loaded.ops.reverse.library.calls() == before + 2


@pytest.mark.slow
def test_vmap_lays_the_batch_into_a_parallel_dimension(tmp_path) -> None:
    from gallery.my_add.my_add import my_add

    opsmith.export(my_add, target="jax", out=tmp_path / "dist", say=None)
    f = opsmith.load(tmp_path / "dist").ops.my_add
    a, b = jnp.arange(12.0).reshape(3, 4), jnp.ones(4)
    before = f.library.calls()
    assert (jax.vmap(f, in_axes=(0, None))(a, b) == 2 * a + 1).all()
    assert (jax.vmap(jax.vmap(f), in_axes=1)(a[None], a[None]) == 3 * a[:, None]).all()
    assert f.library.calls() == before + 2


@pytest.mark.parametrize("shape", [(3, 2, 4), (3, 2, 0), (3, 0, 4), (0, 2, 4)])
def test_vmap_takes_a_named_dimension_whatever_the_sizes(shape) -> None:
    from opsmith.targets.jax.package.function import batched

    @opsmith.op("jax_test::doubled", parallel_dims=("N",))
    def doubled(x: Float[Tensor, "C N"]) -> Float[Tensor, "C N"]:
        return 2 * x

    seen = []

    def call(arrays: Any) -> Any:
        seen.append(arrays[0].shape)
        return (2 * arrays[0],)

    (found,) = jax.vmap(batched(doubled.signature, call))((jnp.ones(shape),))
    assert found.shape == shape
    assert (found == 2).all()
    samples, channels, points = shape
    assert seen[-1] == ((channels, samples * points) if samples else (channels, points))


@pytest.mark.slow
def test_a_check_compiles_a_case_under_vmap_as_one_program(loaded, compiled) -> None:
    given = arguments(torch.float32)
    proofs._batched(loaded, operators.everything, given)
    compiled.clear()  # the first call of a process compiles conversions of arguments, too
    found = proofs._batched(loaded, operators.everything, given)
    torch.testing.assert_close(found, expected(given))
    assert len(compiled) == 1


@pytest.mark.slow
def test_vmap_without_a_parallel_dimension_calls_once_per_sample(loaded) -> None:
    x = jnp.arange(24.0).reshape(4, 2, 3)
    before = loaded.ops.reverse.library.calls()
    assert (jax.vmap(loaded.ops.reverse)(x) == x[..., ::-1]).all()
    assert loaded.ops.reverse.library.calls() == before + 4
    rows, total = jax.vmap(loaded.ops.accumulate, in_axes=(0, None))(x, jnp.zeros(3))
    assert (rows == x.sum(2)).all()
    assert (total == 2 * x.sum(1)).all()


ARRAYS = {
    "x": jnp.ones((2, 3)),
    "bias": None,
    "index": None,
    "others": [],
    "more": None,
}
NUMBERS = {"k": 1, "on": True, "sizes": (), "weights": (0.0, 0.0)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"bias": jnp.ones(4)},
            "argument 'bias' does not fit Float[Tensor, \"M\"]: dimension 0 (M) is 4, expected 3.\n"
            "  got: shape (4,), dtype float32\n  bound so far: N=2, M=3 (M by 'x')",
        ),
        ({"x": 3}, "argument 'x' is 3 (int), expected Float[Tensor, \"N M\"]."),
        ({"k": "3"}, "argument 'k' is '3' (str), expected int."),
        ({"k": 1.5}, "argument 'k' is 1.5 (float), expected int."),
        ({"k": 2**63}, "argument 'k' is 9223372036854775808, expected an int of 64 bits."),
        ({"sizes": 3}, "argument 'sizes' is 3 (int), expected Sequence[int]."),
        ({"sizes": [1, "2"]}, "argument 'sizes[1]' is '2' (str), expected int."),
        ({"weights": (1.0,)}, "argument 'weights' has 1 elements, expected 2."),
        ({"others": [None]}, "argument 'others[0]' is None, expected Float[Tensor, \"N M\"]."),
        ({"wrong": 1}, "has no argument 'wrong'; there are x, bias"),
        (
            {"index": jnp.arange(2, dtype="int32")},
            "argument 'index' has dtype int32, expected int64.\n  got: shape (2,), dtype int32\n"
            "  bound so far: N=2, M=3\n  JAX makes arrays of 64 bits only after "
            'jax.config.update("jax_enable_x64", True)',
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(loaded, changes, message) -> None:
    with pytest.raises(opsmith.ArgumentError) as caught:
        loaded.ops.everything(**{**ARRAYS, **NUMBERS, **changes})
    assert message in str(caught.value)
    assert str(caught.value).startswith("ort_test::everything: ")


@pytest.mark.slow
def test_a_number_that_jax_traces_says_how_to_fix_it(loaded) -> None:
    def f(k: Any) -> Any:
        return loaded.ops.everything(**{**ARRAYS, **NUMBERS, "k": k})

    with pytest.raises(opsmith.ArgumentError, match=r"argument .k. is traced by JAX.*static_arg"):
        jax.jit(f)(1)
    assert jax.jit(f, static_argnums=0)(1)[0].shape == (2, 3)


@pytest.mark.slow
def test_a_value_out_of_range_is_found_before_the_kernel_reads(loaded) -> None:
    with wide():
        given = {**ARRAYS, **NUMBERS, "index": jnp.array([0, 2])}
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            jax.block_until_ready(loaded.ops.everything(**given))
    assert (
        "ort_test::everything: argument 'index' has value 2 at index 1, expected 0 <= value < 2 (N)"
        in str(caught.value)
    )


def test_a_size_that_only_the_data_decides_is_refused(tmp_path) -> None:
    with pytest.raises(opsmith.ExportError) as caught:
        opsmith.export(operators.positive_rows, target="jax", out=tmp_path / "dist")
    assert str(caught.value).startswith(
        "ort_test::positive_rows: only the data decides the size 'K' of its result, and JAX "
        "compiles programs whose sizes are all known."
    )
    assert not (tmp_path / "dist").exists()


def test_an_operator_without_a_cpp_kernel_is_refused(tmp_path) -> None:
    with pytest.raises(
        opsmith.ExportError, match="JAX calls a C\\+\\+ kernel, and the operator has"
    ):
        opsmith.export(operators.python_only, target="jax", out=tmp_path / "dist")


@pytest.mark.slow
def test_the_artifact_says_what_it_is_and_which_operators_have_gradients(artifact) -> None:
    text = (artifact.folder / "README.md").read_text(encoding="utf-8")
    assert 'python -c "import every; help(every.' in text
    for use in artifact.manifest.operators:
        name = use.name.partition("::")[2]
        assert f"- `every.{name}`: {use.note}\n" in text
    assert "README.md" in artifact.manifest.files


@pytest.mark.slow
def test_a_library_that_was_changed_is_not_loaded(artifact, tmp_path) -> None:
    shutil.copytree(artifact.folder / "every", tmp_path / "every")
    (library,) = (tmp_path / "every").glob("*reverse*.so")
    library.write_bytes(library.read_bytes() + b"!")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import every"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "is not the file that was exported: its SHA-256 is" in done.stderr


@pytest.mark.slow
def test_the_package_needs_neither_torch_nor_opsmith(artifact, jax_python, tmp_path) -> None:
    # Moved, as a folder is when it is shipped.
    shutil.copytree(artifact.folder / "every", tmp_path / "every")
    script = """
import sys
import jax, jax.numpy as jnp
import every
x = jnp.arange(12.0).reshape(3, 4)
assert (every.reverse(x) == x[:, ::-1]).all()
assert (jax.vmap(every.reverse)(x) == x[:, ::-1]).all()
assert every.FUNCTIONS["ort_test::reverse"] is every.reverse
try:
    every.reverse(3)
except ValueError as error:
    print(error)
assert not {"torch", "opsmith"} & set(sys.modules)
"""
    done = subprocess.run(
        [str(jax_python), "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == (
        "ort_test::reverse: argument 'x' is 3 (int), expected Real[Tensor, \"*batch N\"]."
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [">f4", "O", "U3"])
def test_an_array_of_a_dtype_that_jax_does_not_have_is_named(loaded, dtype: str) -> None:
    with pytest.raises(opsmith.ArgumentError, match="argument 'x' is an array of dtype"):
        loaded.ops.reverse(np.ones(3).astype(dtype))


@pytest.mark.slow
def test_a_number_whose_class_raises_or_that_is_too_large_is_named(loaded) -> None:
    x, total = jnp.ones((2, 3)), jnp.ones(3)

    class NoIndex:
        def __index__(self) -> int:
            raise RuntimeError("no index")

    with pytest.raises(opsmith.ArgumentError, match="'factor' is of type NoIndex, expected int"):
        loaded.ops.accumulate(x, total, NoIndex())
    given = {**ARRAYS, "k": 1, "on": True, "sizes": (), "weights": (0.0, 0.0)}
    with pytest.raises(opsmith.ArgumentError, match="'scale' is an int of 1329 bits"):
        loaded.ops.everything(**given, scale=10**400)


@pytest.mark.slow
def test_a_parameter_may_be_called_self(tmp_path) -> None:
    @opsmith.op("jax_self::halved")
    def halved(self: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return self / 2

    (tmp_path / "halved.cpp").write_text(
        '#include <opsmith/kernel.h>\n#include "halved.h"\n'
        "void halved(const opsmith::Context&, const jax_self::halved_args& a) {\n"
        "  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.self[i] / 2;\n}\n"
        "OPSMITH_KERNEL(jax_self, halved, cpu)\n"
    )
    halved.register_kernel("cpu", source=tmp_path / "halved.cpp")
    opsmith.export(halved, target="jax", out=tmp_path / "dist", say=None)
    loaded = opsmith.load(tmp_path / "dist")
    assert loaded.ops.halved(self=jnp.ones(2)).tolist() == [0.5, 0.5]
