"""What an operator does with kernels that are compiled; stand-ins for libraries run as Python."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from torch.library import Library

import opsmith
from opsmith.errors import BuildError, DeclarationError, MissingDependencyError
from opsmith.kernels import KernelSource, kernel_source
from opsmith.operators.core import registry
from opsmith.operators.dispatch.gates import argument_gate, autograd_gate
from opsmith.signature import signature_of

# PyTorch says it where a kernel takes another's place that was not withdrawn.
pytestmark = pytest.mark.filterwarnings("error:Warning only once for all operators")


class Loaded:
    """A library in this process: its kernel adds a number, and counts."""

    def __init__(self, source: KernelSource, adds: float, schema: str | None = None) -> None:
        self.source, self.adds, self.path = source, adds, Path(f"{source.what}.so")
        self.count = 0
        self.registered: Library | None = None
        self._schema = schema

    def register(self) -> None:
        signature = self.source.signature
        self.registered = Library(signature.namespace, "FRAGMENT")
        emulated = self.source.language.name == "CUDA on the CPU"
        key = "CPU" if emulated else self.source.device_row.dispatch_key
        self.registered.impl(signature.name, self.kernel, key)

    def unregister(self) -> None:
        if self.registered is not None:
            self.registered._destroy()
        self.registered = None

    def kernel(self, x: Tensor, *, k: int = 0) -> Tensor:
        self.count += 1
        return x + self.adds + k

    def calls(self) -> int:
        return self.count

    def dtypes(self) -> tuple[str, ...]:
        return ("float32",)

    def schema(self) -> str | None:
        return self._schema


class Workshop:
    """In place of compilers: what was built and loaded, and what the next one does."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.loaded: list[Loaded] = []
        self.fails: Exception | None = None
        self.schema: str | None = None

    def build(self, source: KernelSource) -> Path:
        self.built.append(source.what)
        if self.fails is not None:
            raise self.fails
        return Path(f"{source.what}.so")

    def load(self, source: KernelSource) -> Loaded:
        self.loaded.append(Loaded(source, 10.0 * (len(self.loaded) + 1), self.schema))
        return self.loaded[-1]


class Guard:
    """In place of the argument gate: which kernels it stands before."""

    opened: ClassVar[list[Guard]] = []

    def __init__(self, signature: Any, kernels: Mapping[str, KernelSource]) -> None:
        self.kernels, self.open = dict(kernels), True
        Guard.opened.append(self)

    def calls(self, key: str) -> int:
        return 7 + list(self.kernels).index(key)

    def close(self) -> None:
        self.open = False


def two_tensors(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x + y


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    found = Workshop()
    monkeypatch.setattr(KernelSource, "build", lambda source: found.build(source))
    monkeypatch.setattr(KernelSource, "load", lambda source: found.load(source))
    monkeypatch.setattr(argument_gate, "build", lambda signature: None)
    monkeypatch.setattr(argument_gate, "ArgumentGate", Guard)
    for loader in ("load", "load_recorder"):
        cached: Any = lambda: None  # noqa: E731
        cached.cache_info = getattr(autograd_gate, loader).cache_info
        monkeypatch.setattr(autograd_gate, loader, cached)
    monkeypatch.setattr(Guard, "opened", [])
    return found


@pytest.fixture
def declare(tmp_path: Path) -> Callable[..., opsmith.Operator]:
    def make(name: str = "raised", reference: Any = None, **more: Any) -> opsmith.Operator:
        def raised(x: Float[Tensor, "N"], *, k: int = 0) -> Float[Tensor, "N"]:
            return x + 1 + k

        raised.__name__ = name
        return opsmith.op(f"native_kernels::{name}", **more)(reference or raised)

    (tmp_path / "raised.cpp").write_text("")
    (tmp_path / "raised.cu").write_text("")
    return make


def test_the_first_call_builds_and_loads_and_later_ones_only_run(
    workshop: Workshop, declare: Any, tmp_path: Path
) -> None:
    raised = declare()
    raised.register_kernel("cpu", source=tmp_path / "raised.cpp")
    kernel = raised.kernels["cpu"]
    assert (workshop.built, kernel.calls, kernel.dtypes) == ([], 0, ())
    x = torch.zeros(2)
    assert raised(x, k=1).tolist() == [11.0, 11.0]
    assert raised(x).tolist() == [10.0, 10.0]
    assert workshop.built == ["native_kernels::raised (cpu)"]
    assert (kernel.calls, kernel.dtypes) == (2, ("float32",))
    assert raised.build() == raised.build("cpu") == [Path("native_kernels::raised (cpu).so")]
    assert raised.build("cuda") == []
    assert len(workshop.loaded) == 1
    # Registered again, the source may be another.
    raised.register_kernel("cpu", source=tmp_path / "raised.cpp")
    assert workshop.loaded[0].registered is None
    assert raised(x).tolist() == [20.0, 20.0]


def test_what_was_registered_stays_until_a_build_has_not_failed(
    workshop: Workshop, declare: Any, tmp_path: Path
) -> None:
    raised = declare()
    raised.register_kernel("cpu", source=tmp_path / "raised.cpp")
    workshop.fails = BuildError("raised.cpp does not compile")
    for _ in range(2):
        with pytest.raises(BuildError, match=r"raised\.cpp does not compile"):
            raised(torch.zeros(2))
    workshop.fails = None
    assert raised(torch.zeros(1)).tolist() == [10.0]


def test_a_source_that_defines_the_operator_otherwise_is_refused_and_nothing_is_lost(
    workshop: Workshop, declare: Any, tmp_path: Path
) -> None:
    raised = declare()
    raised.register_kernel("cpu", source=tmp_path / "raised.cpp", api="torch")
    theirs = "native_kernels::raised(Tensor x, *, int k=0) -> {}"
    for returned in ("(Tensor, Tensor)", "int"):
        workshop.schema = theirs.format(returned)
        with pytest.raises(DeclarationError) as caught:
            raised(torch.zeros(1))
        assert str(caught.value) == (
            "native_kernels::raised: the schema in the C++ source differs from the "
            f"declaration's.\n  C++:         {theirs.format(returned)}\n"
            "  declaration: native_kernels::raised(Tensor x, *, SymInt k=0) -> Tensor"
        )
    for arguments in (
        "Tensor y, *, int k=0",
        "Tensor? x, *, int k=0",
        "Tensor x, float k",
        "Tensor x",
    ):
        workshop.schema = f"native_kernels::raised({arguments}) -> Tensor"
        with pytest.raises(DeclarationError, match=r"the schema in the C\+\+ source differs"):
            raised.build()
    workshop.schema = "native_kernels::raised(Tensor x, *, SymInt k=0) -> Tensor"
    before = len(workshop.loaded)
    assert raised(torch.zeros(1)).tolist() == [10.0 * (before + 1)]


def test_operators_of_one_source_get_their_kernels_at_once(
    workshop: Workshop, declare: Any, tmp_path: Path
) -> None:
    source, other = tmp_path / "raised.cpp", tmp_path / "other.cpp"
    other.write_text("")
    operators = [declare(name) for name in ("one", "two", "apart")]
    for operator, path in zip(operators, (source, source, other), strict=True):
        operator.register_kernel("cpu", source=path, api="torch")
    one, two, apart = (operator.kernels["cpu"] for operator in operators)
    operators[0].build()
    assert one.library is not None and two.library is not None and apart.library is None
    # Whoever validates for them counts their calls.
    assert one.calls == two.calls == 7
    assert [list(guard.kernels) for guard in Guard.opened] == [["CPU"], ["CPU"]]


def test_a_strided_kernel_leaves_other_operators_alone(
    workshop: Workshop, declare: Any, tmp_path: Path
) -> None:
    for api in ("opsmith", "torch"):
        strided, plain = declare(f"strided_{api}", reference=two_tensors), declare(f"plain_{api}")
        for operator, names in ((strided, ("y",)), (plain, ())):
            operator.register_kernel("cpu", source=tmp_path / "raised.cpp", api=api, strided=names)
        plain.build()
        assert (strided.kernels["cpu"].library is not None) is (api == "torch")
        strided.build()
        sources = [operator.kernels["cpu"].source for operator in (strided, plain)]
        assert [source.strided for source in sources] == [("y",), ()]


def test_operators_in_one_library_have_the_same_compiler_options(
    declare: Any, tmp_path: Path
) -> None:
    source = tmp_path / "raised.cpp"
    first, second = declare("with_a"), declare("with_b")
    first.register_kernel("cpu", source=source, api="torch", flags=("-DA",))
    second.register_kernel("cpu", source=source, api="torch", flags=("-DB",))
    with pytest.raises(DeclarationError) as caught:
        second(torch.zeros(1))
    assert str(caught.value) == (
        f"native_kernels::with_b (cpu): loading {source} registers the kernels of all its "
        "operators, so that they have the same flags, but they are ('-DB',) for "
        "native_kernels::with_b and ('-DA',) for native_kernels::with_a. Register both with the "
        "same flags, or give each operator a file of its own."
    )
    # Kernels of api="opsmith" have a library each.
    for operator, flag in ((first, "-DA"), (second, "-DB")):
        operator.register_kernel("cpu", source=source, flags=(flag,))
    (one, two) = (operator.kernels["cpu"].source for operator in (first, second))
    assert not one.shares_library(two)
    assert [unit.flags for unit in map(one.language.unit, (one, two))] == [("-DA",), ("-DB",)]


def test_a_file_that_registers_itself_is_one_library_for_operators_of_any_namespace(
    tmp_path: Path,
) -> None:
    (tmp_path / "raised.cpp").write_text("")

    def raised(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...

    here, there = (
        kernel_source(signature_of(raised, name), "cpu", tmp_path / "raised.cpp", api="torch")
        for name in ("native_kernels::raised", "native_kernels_too::raised")
    )
    assert here.shares_library(there)
    assert here.language.library(here).name == there.language.library(there).name


def test_a_kernel_that_is_disabled_while_another_loads_it_stays_so(
    workshop: Workshop, declare: Any, tmp_path: Path
) -> None:
    one, two = declare("first"), declare("second")
    for operator in (one, two):
        operator.register_kernel("cpu", source=tmp_path / "raised.cpp", api="torch")
    with two.set_kernel_enabled("cpu", False):
        assert one(torch.zeros(1)).tolist() == [10.0]
        assert two(torch.zeros(1)).tolist() == [1.0]
        assert two.build() == []
    assert two(torch.zeros(1)).tolist() != [1.0]


def test_the_gate_stands_before_all_kernels_that_do_not_validate_and_before_no_other(
    workshop: Workshop, declare: Any, tmp_path: Path
) -> None:
    raised = declare()
    for device in ("cpu", "xpu"):
        raised.register_kernel(device, source=tmp_path / "raised.cpp", api="torch")
    raised.kernels["cpu"].build(raised)
    assert raised.kernels["xpu"].calls == 0
    raised.kernels["xpu"].build(raised)
    first, second = Guard.opened
    assert (list(first.kernels), first.open) == (["CPU"], False)
    assert (list(second.kernels), second.open) == (["CPU", "XPU"], True)
    assert [raised.kernels[device].calls for device in ("cpu", "xpu")] == [7, 8]
    raised.register_kernel("cpu", lambda x: x)
    assert not second.open
    assert [list(guard.kernels) for guard in Guard.opened[2:]] == [["XPU"]]
    raised.register_kernel("xpu", lambda x: x)
    assert len(Guard.opened) == 3 and not Guard.opened[2].open


def test_build_passes_over_kernels_for_devices_that_are_not_here(
    workshop: Workshop, declare: Any, tmp_path: Path
) -> None:
    raised = declare()
    raised.register_kernel("xpu", source=tmp_path / "raised.cpp")
    raised.register_kernel("cpu", source=tmp_path / "raised.cpp")
    real, missing = workshop.build, MissingDependencyError("no compiler for it")

    def build(source: KernelSource) -> Path:
        if source.device == "xpu":
            raise missing
        return real(source)

    workshop.build = build  # type: ignore[method-assign]
    assert raised.build() == [Path("native_kernels::raised (cpu).so")]
    with pytest.raises(MissingDependencyError, match="no compiler for it"):
        raised.build("xpu")
    workshop.build = real  # type: ignore[method-assign]
    raised.register_kernel("cpu", source=tmp_path / "raised.cpp")
    workshop.fails = missing
    with pytest.raises(MissingDependencyError, match="no compiler for it"):
        raised.build()  # the CPU is here, so that its kernel is wanted


@pytest.mark.parametrize("before", ["kernel", "reference", "reference for the CPU", "nothing"])
def test_an_emulated_kernel_takes_tensors_of_the_cpu_and_gives_way_to_what_was_there(
    workshop: Workshop, declare: Any, tmp_path: Path, before: str
) -> None:
    devices = {"reference for the CPU": "cpu", "nothing": "cuda"}.get(before)
    raised = declare(f"emulated_{before.replace(' ', '_')}", device_types=devices)
    if before == "kernel":
        raised.register_kernel("cpu", lambda x, k: x + 2 + k)
    raised.register_kernel("cuda", source=tmp_path / "raised.cu")
    x = torch.zeros(1)

    def call() -> list[float] | str:
        try:
            return raised(x).tolist()
        except NotImplementedError as error:
            return str(error).partition(" with arguments")[0]

    there = call()
    if before == "nothing":
        assert there == f"Could not run '{raised.name}'"
    else:
        assert there == [2.0 if before == "kernel" else 1.0]
    with opsmith.emulate("cuda"):
        workshop.fails = BuildError("it does not compile")
        with pytest.raises(BuildError, match="it does not compile"):
            raised(x)
        workshop.fails = None
        assert raised(x, k=2).tolist() == [12.0]
        assert raised(x).tolist() == [10.0]
    assert call() == there
    assert raised.kernels["cuda"].calls == 0


class Opened:
    """In place of the autograd gate: what each was opened with."""

    every: ClassVar[list[Opened]] = []
    before_out_variants: ClassVar[list[Opened]] = []

    def __init__(
        self,
        library: Any,
        signature: Any,
        derivative: Any,
        declared: Any = None,
        *,
        out: bool = False,
    ) -> None:
        self.library, self.signature, self.declared, self.open = library, signature, declared, True
        assert callable(derivative)
        (Opened.before_out_variants if out else Opened.every).append(self)

    def close(self) -> None:
        self.open = False


def test_one_autograd_gate_stands_before_a_kernel_and_records_what_is_declared(
    workshop: Workshop, declare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, recorder = object(), object()
    monkeypatch.setattr(Opened, "every", [])
    monkeypatch.setattr(Opened, "before_out_variants", [])
    monkeypatch.setattr(autograd_gate, "Gate", Opened)
    monkeypatch.setattr(autograd_gate, "built_beside", lambda operators: contextlib.nullcontext())
    monkeypatch.setattr(autograd_gate, "load", lambda: plain)
    monkeypatch.setattr(autograd_gate, "load_recorder", lambda: recorder)

    def gradient(grad: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return grad.clone()

    backward = opsmith.op("native_kernels::gradient")(gradient)
    raised = declare("recorded")
    raised.register_kernel("cpu", source=tmp_path / "raised.cpp")
    raised.build()
    raised.register_kernel("cpu", source=tmp_path / "raised.cpp")
    raised.build()
    (opened,) = Opened.every  # one, for all kernels
    assert (opened.library, opened.signature, opened.declared) == (plain, raised.signature, None)
    (before_out,) = Opened.before_out_variants
    assert (before_out.library, before_out.signature) == (plain, raised.signature)

    raised.register_backward(backward, grads={"x": 0})
    assert not opened.open
    assert Opened.every[-1].library is recorder
    assert Opened.every[-1].declared is raised.declared_backward is not None

    monkeypatch.setattr(autograd_gate, "load_recorder", lambda: None)  # it does not compile
    raised.register_backward(backward, grads={"x": 0})
    assert (Opened.every[-1].library, Opened.every[-1].declared) == (plain, None)
    assert len(Opened.every) == 3
    assert before_out.open and len(Opened.before_out_variants) == 1
    raised._registration.withdraw()
    assert not before_out.open


def test_emulating_what_nobody_registered_says_how_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "all_operators", lambda: ())
    with pytest.raises(DeclarationError) as caught, opsmith.emulate("tpu"):
        pass
    assert str(caught.value) == "opsmith.emulate('tpu'): expected 'cuda' or 'npu'"
    with pytest.raises(DeclarationError) as caught, opsmith.emulate("npu"):
        pass
    assert str(caught.value) == (
        "opsmith.emulate('npu'): no operator has a kernel registered with "
        """source="….cpp", language='ascendc'"""
    )
