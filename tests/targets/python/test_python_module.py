"""Operators as functions of a Python module: every kind of argument, every library, its words."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

import opsmith

pytest.importorskip("nanobind")


import ort_operators as operators
import python_operators as own
from ort_calls import CALLS, arguments, expected

pytestmark = pytest.mark.slow  # a module of nanobind with three kernels

EVERY = [
    operators.everything,
    operators.accumulate,
    operators.reverse,
    operators.positive_rows,
    operators.weighted_sum,
    own.look,
    own.look_strided,
    own.wait_for,
]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> opsmith.Artifact:
    out = tmp_path_factory.mktemp("python") / "dist"
    return opsmith.export(EVERY, target="python", out=out, package="every", say=None)


@pytest.fixture(scope="module")
def loaded(artifact: opsmith.Artifact) -> Any:
    return opsmith.load(artifact.folder)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("changes", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_kind_of_argument_arrives(loaded, changes, dtype) -> None:
    given = arguments(dtype, **changes)
    found = loaded.runner.run("ort_test::everything", given)
    torch.testing.assert_close(found, expected(given))


@pytest.mark.slow
def test_numbers_may_be_numpys(loaded) -> None:
    given = {name: numpy_of(value) for name, value in arguments().items()}
    wanted = loaded.ops.everything(**given)
    given |= {
        "k": np.int32(3),
        "on": np.bool_(True),
        "sizes": np.array([5, 7], np.int16),
        "weights": np.array([0.1, 0.25]),
    }
    for one, other in zip(loaded.ops.everything(**given), wanted, strict=True):
        assert (one == other).all()


def numpy_of(value: Any) -> Any:
    if isinstance(value, list):
        return [numpy_of(item) for item in value]
    return value.numpy() if isinstance(value, torch.Tensor) else value


@pytest.mark.slow
def test_what_an_operator_writes_into_is_written_in_place(loaded) -> None:
    x, total = np.arange(6.0).reshape(2, 3), np.ones(6)[::2]
    rows = loaded.ops.accumulate(x, total)
    assert rows.tolist() == [3, 12]
    assert total.tolist() == [7, 11, 15]


def test_what_cannot_be_written_into_is_refused(loaded) -> None:
    x = np.ones((2, 3))
    fixed = np.ones(3)
    fixed.flags.writeable = False
    with pytest.raises(opsmith.ArgumentError) as caught:
        loaded.ops.accumulate(x, fixed)
    assert str(caught.value) == (
        "ort_test::accumulate: argument 'total' is written into, and this array is read-only. "
        "Pass a "
        "copy."
    )
    expanded = torch.ones(1, dtype=torch.float64).expand(3)
    with pytest.raises(opsmith.ArgumentError, match="dimension 0 was expanded to 3"):
        loaded.ops.accumulate(x, expanded)
    assert loaded.ops.accumulate(fixed.reshape(1, 3), np.ones(3)).tolist() == [3]


def test_an_array_that_jax_keeps_fixed_is_not_written_into(loaded) -> None:
    jnp = pytest.importorskip("jax.numpy")
    total = jnp.ones(3)
    with pytest.raises(
        opsmith.ArgumentError, match="'total' is written into, and an array of jaxlib"
    ):
        loaded.ops.accumulate(np.ones((2, 3), np.float32), total)
    assert total.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
def test_every_dtype_of_numpys_arrives(loaded, dtype) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    found = loaded.ops.reverse(x)
    assert found.dtype == x.dtype
    assert (found == x[:, ::-1]).all()


def test_an_array_of_ml_dtypes_arrives(loaded) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(12).reshape(3, 4).astype(ml_dtypes.bfloat16)
    found = loaded.ops.reverse(x.T)
    assert found.dtype == x.dtype
    assert (found == x.T[:, ::-1]).all()


def test_a_size_that_only_the_data_decides_is_allocated_by_the_kernel(loaded) -> None:
    x = np.array([[1, 2], [-1, 3], [4, 5.0]])
    rows, which = loaded.ops.positive_rows(x)
    assert rows.tolist() == [[1, 2], [4, 5]]
    assert which.tolist() == [0, 2]
    rows, which = loaded.ops.positive_rows(torch.tensor(x))
    assert rows.tolist() == [[1, 2], [4, 5]]
    assert isinstance(which, torch.Tensor)


def test_nothing_is_copied_on_the_way(loaded) -> None:
    x = np.ones((2, 3), np.float32)
    assert loaded.ops.look(x).tolist() == [x.ctypes.data, 3, 1]
    assert loaded.ops.look(torch.from_numpy(x)).tolist() == [x.ctypes.data, 3, 1]
    turned = x[::-1, ::2]
    assert loaded.ops.look_strided(turned).tolist() == [turned.ctypes.data, -3, 2]
    copy, *strides = loaded.ops.look(turned).tolist()
    assert copy != turned.ctypes.data
    assert strides == [2, 1]


def test_an_array_that_is_not_aligned_is_refused(loaded) -> None:
    x = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    with pytest.raises(opsmith.ArgumentError) as caught:
        loaded.ops.look(x)
    assert str(caught.value) == (
        "python_test::look: argument 'x' does not begin at a multiple of its element's size in "
        "memory. Pass a copy."
    )


def test_results_are_of_the_library_of_the_first_tensor(loaded) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = loaded.ops.reverse(x)
    assert type(made) is np.ndarray
    assert made.flags.owndata
    assert made.flags.writeable
    tensor = loaded.ops.reverse(torch.from_numpy(x))
    assert type(tensor) is torch.Tensor
    assert tensor.tolist() == made.tolist()
    assert type(loaded.ops.reverse(memoryview(x))) is np.ndarray
    assert type(loaded.ops.weighted_sum([], [torch.from_numpy(x)], [0, 2])) is torch.Tensor
    rows = loaded.ops.accumulate(x, torch.zeros(3))
    assert type(rows) is np.ndarray


def test_results_stay_when_the_call_is_over(loaded) -> None:
    for make in (np.asarray, torch.from_numpy):
        x = np.arange(600.0).reshape(200, 3)
        kept = [loaded.ops.reverse(make(x + i)) for i in range(50)]
        for i, one in enumerate(kept):
            assert (np.asarray(one) == (x + i)[:, ::-1]).all()


def test_jax_gets_its_own_arrays(loaded) -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(6, dtype="float32").reshape(2, 3)
    found = loaded.ops.reverse(x)
    assert isinstance(found, jax.Array)
    assert found.tolist() == x[:, ::-1].tolist()
    half = loaded.ops.reverse(x.astype("bfloat16"))
    assert half.dtype == "bfloat16"
    assert half.tolist() == x[:, ::-1].tolist()


BAD: dict[str, dict[str, Any]] = {
    "a size": {"bias": torch.ones(4)},
    "a dtype": {"index": torch.zeros(2, dtype=torch.int32)},
    "another dtype than the first": {"bias": torch.ones(3, dtype=torch.float64)},
    "dimensions": {"x": torch.ones(3)},
    "no tensor": {"x": 3},
    "no tensor at all": {"x": None},
    "a text for a number": {"k": "3"},
    "a fraction for an int": {"k": 1.5},
    "an int that is too large": {"k": 2**63},
    "a list in place of a number": {"scale": []},
    "a number in place of a list": {"sizes": 3},
    "a text in place of a list": {"sizes": "57"},
    "a text in a list": {"sizes": [1, "2"]},
    "too few": {"weights": (1.0,)},
    "None in a list": {"others": [None]},
    "a number in a list of tensors": {"others": [torch.ones(2, 3), 4]},
    "a tensor in place of a list": {"others": torch.ones(2, 2, 3)},
    "another name": {"wrong": 1},
    "a value": {"index": torch.tensor([0, 2])},
    "a number for a text": {"mode": 3},
}


@pytest.mark.parametrize("changes", BAD.values(), ids=BAD)
def test_a_call_is_refused_in_the_words_of_pytorch(loaded, changes) -> None:
    given = arguments(**changes)
    with pytest.raises(opsmith.ArgumentError) as wanted:
        operators.everything(**given)
    with pytest.raises(opsmith.ArgumentError) as found:
        loaded.ops.everything(**given)
    assert str(found.value) == str(wanted.value)
    assert type(found.value) is type(wanted.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda f, x: f(),
        lambda f, x: f(x),
        lambda f, x: f(x, x[0], 3, 4),
        lambda f, x: f(x, x=x),
        lambda f, x: f(x, totals=x[0]),
        lambda f, x: f(total=x[0]),
    ],
)
def test_a_call_with_other_arguments_is_refused_in_the_words_of_pytorch(loaded, call) -> None:
    x = torch.ones(2, 3)
    with pytest.raises(opsmith.ArgumentError) as wanted:
        call(operators.accumulate, x)
    with pytest.raises(opsmith.ArgumentError) as found:
        call(loaded.ops.accumulate, x)
    assert str(found.value) == str(wanted.value)


def test_an_argument_that_is_given_by_name_alone_is_refused_by_position(loaded) -> None:
    given = arguments()
    args = [*given.values(), 0.1, "plain", (), None, None, None, 0.5]
    with pytest.raises(opsmith.ArgumentError) as wanted:
        operators.everything(*args)
    with pytest.raises(opsmith.ArgumentError) as found:
        loaded.ops.everything(*args)
    assert str(found.value) == str(wanted.value)


def test_a_failing_kernel_is_an_error_of_its_own(loaded) -> None:
    for mode in ("fail", "throw", "throw in a thread"):
        with pytest.raises(opsmith.OpsmithError) as wanted:
            operators.everything(**arguments(mode=mode))
        with pytest.raises(opsmith.OpsmithError) as found:
            loaded.ops.everything(**arguments(mode=mode))
        assert str(found.value) == str(wanted.value)
        assert not isinstance(found.value, ValueError)


def test_a_tensor_with_a_gradient_is_refused(loaded) -> None:
    with pytest.raises(opsmith.ArgumentError) as caught:
        loaded.ops.reverse(torch.ones(2, 3, requires_grad=True))
    assert str(caught.value) == (
        "ort_test::reverse: argument 'x' requires a gradient, and this function has no derivative. "
        "Pass x.detach(), or call the operator that it was exported from."
    )


def test_a_tensor_that_is_conjugated_when_read_is_refused(loaded) -> None:
    with pytest.raises(opsmith.ArgumentError, match=r"'x' shares no memory: .* conj"):
        loaded.ops.reverse(torch.ones(2, 3, dtype=torch.complex64).conj())


@pytest.mark.parametrize(
    "x", [torch.tensor([[0 - 2j]]).conj().imag, torch._neg_view(torch.ones(2, 3))]
)
def test_a_tensor_that_is_negated_when_read_is_refused(loaded, x) -> None:
    with pytest.raises(opsmith.ArgumentError) as caught:
        loaded.ops.reverse(x)
    assert str(caught.value) == (
        "ort_test::reverse: argument 'x' is a view that is negated when it is read. Pass "
        "x.resolve_neg()."
    )
    with pytest.raises(opsmith.ArgumentError, match="'total' is a view that is negated"):
        loaded.ops.accumulate(np.ones((2, 3), np.float32), torch._neg_view(torch.ones(3)))


def freed() -> torch.Tensor:
    x = torch.ones(2, 3)
    x.untyped_storage().resize_(0)
    return x


WITHOUT_VALUES = {
    "fake": lambda call: call(FakeTensorMode().from_tensor(torch.ones(2, 3))),
    "functional": lambda call: torch.func.functionalize(call)(torch.ones(2, 3)),
    "freed": lambda call: call(freed()),
    "zeros": lambda call: call(torch._efficientzerotensor((2, 3))),
}


@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
@pytest.mark.parametrize("attempt", WITHOUT_VALUES.values(), ids=WITHOUT_VALUES)
def test_a_tensor_without_values_is_refused_and_not_read(loaded, attempt) -> None:
    with pytest.raises(opsmith.ArgumentError, match=r"argument 'x' is a .*which has no values"):
        attempt(loaded.ops.reverse)


def test_a_tensor_that_exceeds_its_storage_is_not_written(loaded) -> None:
    total = torch.zeros(6)[3:]
    total.untyped_storage().resize_(20)
    with pytest.raises(
        opsmith.ArgumentError, match="'total' has a storage that was resized to les"
    ):
        loaded.ops.accumulate(np.ones((2, 3), np.float32), total)
    loaded.ops.accumulate(np.ones((2, 2), np.float32), total[:2])
    assert total[:2].tolist() == [4, 4]


class Reverse(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x + 1) * 2


@pytest.mark.filterwarnings("ignore:Dynamo does not know")
def test_torch_compile_breaks_its_graph_at_a_function(loaded) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    compiled = torch.compile(Reverse(loaded.ops.reverse), backend="eager")
    assert torch.equal(compiled(x), (x + 1).flip(1) * 2)
    with pytest.raises(opsmith.ArgumentError, match=r"argument 'x' has 0 dimensions"):
        compiled(x[0, 0])
    with pytest.raises(opsmith.ArgumentError, match=r"'x' shares no memory: .* conj"):
        torch.compile(lambda x: loaded.ops.reverse(x.conj()), backend="eager")(x.to(torch.cfloat))


def test_torch_export_is_told_that_a_function_has_no_graph(loaded) -> None:
    with pytest.raises(opsmith.ArgumentError, match="or call the operator that it was exported"):
        torch.export.export(Reverse(loaded.ops.reverse), (torch.ones(2, 3),), strict=False)


def test_an_array_on_another_device_is_refused(loaded) -> None:
    class Elsewhere:
        device = "cuda:0"

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("not for you")

    with pytest.raises(opsmith.ArgumentError) as caught:
        loaded.ops.reverse(Elsewhere())
    assert str(caught.value) == (
        "ort_test::reverse: argument 'x' is on cuda:0, and this function runs on the CPU."
    )


@pytest.mark.parametrize("library", [torch.Tensor, np.ndarray])
def test_a_class_of_arrays_is_no_array(loaded, library) -> None:
    with pytest.raises(opsmith.ArgumentError) as caught:
        loaded.ops.reverse(library)
    assert "argument 'x' is of type " in str(caught.value)


def test_an_array_whose_memory_cannot_be_shared_is_refused_with_the_reason(loaded) -> None:
    with pytest.raises(opsmith.ArgumentError) as caught:
        loaded.ops.reverse(np.ones((2, 3), ">f4"))
    assert str(caught.value).startswith("ort_test::reverse: argument 'x' shares no memory: ")
    assert "byte order" in str(caught.value)


def test_a_result_that_does_not_fit_into_memory_is_a_memory_error(loaded) -> None:
    # As large as can be asked for, and nothing of it is there.
    x = np.lib.stride_tricks.as_strided(np.zeros(1), (2**40, 2**9), (0, 0))
    for value in (x, torch.zeros(1).expand(2**40, 2**9)):
        with pytest.raises(MemoryError, match=r"^ort_test::reverse: argument 'x' needs a contigu"):
            loaded.ops.reverse(value)


def test_the_interpreter_runs_while_a_kernel_computes(loaded) -> None:
    flag = np.zeros(1, np.int64)
    waiting = threading.Thread(target=lambda: flag.__setitem__(0, 1))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(loaded.ops.wait_for, flag)
        waiting.start()
        assert done.result() is None
    waiting.join()


def test_calls_from_several_threads_do_not_meet(loaded) -> None:
    def run(seed: int) -> bool:
        x = np.random.default_rng(seed).random((300, 10))
        return all((loaded.ops.reverse(x) == x[:, ::-1]).all() for _ in range(30))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(16)))


def test_a_function_is_documented(loaded) -> None:
    function = loaded.ops.everything
    signature = inspect.signature(function)
    defaults = ["scale", "mode", "flags", "extra", "ratio", "label", "shift"]
    assert list(signature.parameters) == [*arguments(), *defaults]
    assert signature.parameters["scale"].default == 0.1
    assert signature.parameters["shift"].kind is inspect.Parameter.KEYWORD_ONLY
    assert function.__doc__.startswith("Use every argument in a way that shows in the results.")
    text = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert 'more: list[Float[Tensor, "_"]] | None,' in text
    assert repr(function) == "<built-in function everything>"


def test_a_function_can_be_pickled(loaded) -> None:
    assert pickle.loads(pickle.dumps(loaded.ops.reverse)) is loaded.ops.reverse


def test_what_is_read_does_not_change_while_its_memory_is_written(loaded) -> None:
    for whole in (np.ones(9), np.ones(9)[::-1]):
        x, total = whole[:6].reshape(2, 3), whole[3:6]
        assert loaded.ops.accumulate(x, total).tolist() == [3, 3]
        assert total.tolist() == [5, 5, 5]


class _Declining(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def test_a_tensor_whose_class_declines_every_question_is_named(loaded) -> None:
    with pytest.raises(opsmith.ArgumentError, match="argument 'total' shares no memory: Multiple"):
        loaded.ops.accumulate(np.ones((2, 3)), torch.ones(3).as_subclass(_Declining))
