"""A custom class in a model that is traced, exported, lowered, compiled and packaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from custom_class_samples import Counter, Everything, Scale, Ticket, everything
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch._higher_order_ops.torchbind import call_torchbind
from torch.export import Dim, ExportedProgram

import opsmith
from opsmith import ArgumentError, ExportError, OpsmithError
from opsmith.operators.classes.torchbind import classes_in, lower_torchbind

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # PyTorch's own, while tracing


class Model(nn.Module):
    """Holds an object of its own, and one in a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.scale = Scale.ramp(3)
        self.inner = nn.Module()
        self.inner.everything = everything(maybe=torch.ones(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.scale.forward(self.linear(x)) * self.scale.get_channels()
        z = self.inner.everything.forward(x, k=3, bias=True)
        sums, total, eps, on = self.inner.everything.both(x)
        return y + z * total * (1 + eps) * on, sums


class Calls(nn.Module):
    """Calls a function with its object."""

    def __init__(self, held: Any, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.held = held
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.held, x)


def exported(model: nn.Module, **options: Any) -> ExportedProgram:
    n = Dim("n", min=1, max=64)
    shapes = {"x": {0: n}}
    return torch.export.export(model, (torch.ones(2, 3),), dynamic_shapes=shapes, **options)


def targets(program: ExportedProgram) -> list[Any]:
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def agree(model: nn.Module, program: ExportedProgram) -> None:
    runs = program.module()
    for n in (1, 2, 7):
        x = torch.randn(n, 3)
        with torch.no_grad():
            for wanted, got in zip(model(x), runs(x), strict=True):
                assert torch.equal(wanted, got)


def test_an_export_has_the_calls_and_agrees():
    model = Model().eval()
    program = exported(model)
    assert targets(program).count(call_torchbind) == 4
    agree(model, program)
    assert {
        owner.name: [method.name for method in methods]
        for owner, methods in classes_in(program).items()
    } == {
        "class_samples::Scale": ["forward", "get_channels"],
        "class_samples::Everything": ["forward", "both"],
    }


def test_an_exported_program_is_saved_with_its_objects(tmp_path):
    # PyTorch does not read back a method that returns a number; lowered, it does.
    model = Calls(Scale.ramp(3), lambda held, x: (held.forward(x) + 1,))
    torch.export.save(exported(model), tmp_path / "model.pt2")
    agree(model, torch.export.load(tmp_path / "model.pt2"))


@pytest.mark.parametrize("strict", [False, True])
def test_a_lowered_program_calls_operators_and_agrees(strict, tmp_path):
    model = Model().eval()
    program = exported(model, strict=strict)
    before = str(program.graph)
    lowered = lower_torchbind(program)
    assert str(program.graph) == before
    assert call_torchbind not in targets(lowered)
    assert not classes_in(lowered)
    assert Scale.forward.operator.overload in targets(lowered)
    assert not [v for v in lowered.constants.values() if not isinstance(v, Tensor)]
    agree(model, lowered)
    torch.export.save(lowered, tmp_path / "model.pt2")
    agree(model, torch.export.load(tmp_path / "model.pt2"))
    assert lower_torchbind(lowered) is lowered


def test_a_lowered_program_can_be_inlined():
    model = Model().eval()
    methods = (Scale.forward, Everything.forward, Everything.both)
    table = {m.operator.overload: m.operator.reference for m in methods}
    inlined = lower_torchbind(exported(model)).run_decompositions(table)
    assert {getattr(target, "namespace", "aten") for target in targets(inlined)} == {"aten"}
    with torch.no_grad():
        x = torch.randn(5, 3)
        for wanted, got in zip(model(x), inlined.module()(x), strict=True):
            torch.testing.assert_close(wanted, got)


def test_what_a_method_returns_may_be_the_result():
    model = Calls(Scale.ramp(3), lambda held, x: (held.forward(x), held.forward(x) + 1))
    agree(model, lower_torchbind(exported(model)))
    both = Calls(everything(), lambda held, x: held.both(x)[:1])
    agree(both, lower_torchbind(exported(both)))


def test_fields_and_numbers_become_constants():
    held = everything(maybe=torch.arange(3.0))
    lowered = lower_torchbind(exported(Calls(held, lambda held, x: x * held.total())))
    assert targets(lowered) == [torch.ops.aten.mul.Tensor]

    @opsmith.custom_class("class_samples::Row")
    class Row:
        row: Float[Tensor, "C"]

        def get_row(self) -> Float[Tensor, "C"]:
            return self.row

    row = lower_torchbind(exported(Calls(Row(torch.arange(3.0)), lambda held, x: held.get_row())))
    assert targets(row) == []
    assert row.module()(torch.ones(2, 3)).tolist() == [0, 1, 2]


@pytest.mark.slow
def test_state_that_changes_is_refused_by_name_or_kept():
    model = Calls((counter := Counter(0, torch.zeros(3))), lambda held, x: held.forward(x) + 1)
    program = exported(model)
    assert counter.count == 0  # tracing changes a copy
    with pytest.raises(ExportError) as caught:
        lower_torchbind(program)
    assert str(caught.value) == (
        "class_samples::Counter.forward changes 'count', and the program that this target runs "
        "keeps nothing between calls. Export to aotinductor, which carries the object, or return "
        "the new value and pass it in again."
    )
    kept = lower_torchbind(program, keep_mutating=True)
    assert kept is program
    assert [owner.name for owner in classes_in(kept)] == ["class_samples::Counter"]
    runs = kept.module()
    assert runs(torch.ones(1, 3)).tolist() == [[2, 2, 2]]
    assert runs(torch.ones(1, 3)).tolist() == [[3, 3, 3]]


@opsmith.custom_class("class_samples::Norm")
class Norm:
    row: Float[Tensor, "C"]

    def norm(self) -> float:
        return float(self.row.norm())

    def size(self) -> int:
        return self.row.numel()

    def length(self, x: Float[Tensor, "N C"]) -> Int64[Tensor, ""]:
        return torch.tensor(x.shape[0])


@pytest.mark.parametrize(
    ("held", "function", "message"),
    [
        (
            Counter(0, torch.zeros(3)),
            lambda held, x: x * held.get_count(),
            "class_samples::Counter.get_count: returns a number, and methods change 'count': a "
            "traced program would bake in the current value. Return a tensor",
        ),
        (
            Ticket(0),
            lambda held, x: x * held.next(),
            "class_samples::Ticket.next: returns a number, and methods change 'number'",
        ),
        (
            Norm(torch.ones(3)),
            lambda held, x: x * held.norm(),
            "class_samples::Norm.norm: returns float computed from a tensor's values or from a "
            "size that is not fixed, which a traced program cannot keep as a number.",
        ),
    ],
)
def test_a_number_that_may_change_is_refused_while_tracing(held, function, message):
    with pytest.raises(OpsmithError) as caught:
        exported(Calls(held, function))
    assert message in str(caught.value)


def test_a_number_that_stays_is_traced():
    held = Norm(torch.ones(3))
    assert held.norm() == pytest.approx(3**0.5)
    program = exported(Calls(held, lambda held, x: x * held.size()))
    assert program.module()(torch.ones(1, 3)).tolist() == [[3, 3, 3]]


def test_a_wrong_shape_is_found_while_tracing():
    with pytest.raises(ArgumentError, match=r"Scale_forward: argument 'x' does not fit"):
        exported(Calls(Scale.ramp(4), lambda held, x: held.forward(x)))


def test_torch_compile_runs_it_and_refuses_to_lose_a_gradient():
    model = Calls(Scale.ramp(3), lambda held, x: held.forward(x) + 1)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(4, 3)
    assert torch.equal(compiled(x), model(x))
    needs = x.clone().requires_grad_()
    with torch.no_grad():
        assert torch.equal(compiled(needs), model(needs))
    with pytest.raises(RuntimeError, match=r"Scale.forward: torch.compile would lose the gradient"):
        compiled(needs)
    counting = Calls(Counter(0, torch.zeros(3)), lambda held, x: held.forward(x))
    compiled = torch.compile(counting, fullgraph=True, backend="aot_eager")
    assert [compiled(torch.ones(1, 3))[0, 0].item() for _ in range(3)] == [1, 2, 3]
    assert counting.held.count == 3


class Chain(nn.Module):
    """Calls its objects one after the other."""

    def __init__(self, *held: Any) -> None:
        super().__init__()
        self.count = len(held)
        for position, value in enumerate(held):
            setattr(self, f"held{position}", value)

    def forward(self, x: Tensor) -> Tensor:
        for position in range(self.count):
            x = getattr(self, f"held{position}").forward(x)
        return x


def shared_scales(count: int) -> list[Any]:
    weight = torch.tensor([2.0, 3.0, 4.0])
    return [Scale(3, weight, float(position + 1)) for position in range(count)]


MANY_OBJECTS = {
    "two": lambda: [Scale.ramp(3), Scale.ramp(3)],
    "three": lambda: [Scale.ramp(3), Scale(3, torch.ones(3)), Scale(3, torch.full((3,), 2.0))],
    "two that share a tensor": lambda: shared_scales(2),
    "three that share a tensor": lambda: shared_scales(3),
    "one object twice": lambda: shared_scales(1) * 2,
    "one object at many places": lambda: shared_scales(1) * 20,
    "of two classes": lambda: [Scale.ramp(3), Counter(1, torch.zeros(3)), Scale.ramp(3)],
}


@pytest.mark.parametrize("name", MANY_OBJECTS)
def test_a_model_with_several_objects_compiles(name):
    torch._dynamo.reset()
    make, x = MANY_OBJECTS[name], torch.randn(4, 3)
    eager, compiled = Chain(*make()), Chain(*make())
    run = torch.compile(compiled, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        assert torch.equal(run(x), eager(x))


def test_an_object_may_share_a_tensor_with_its_module():
    torch._dynamo.reset()

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3), requires_grad=False)
            self.scale = Scale(3, self.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.scale.forward(x) + self.weight

    model = Tied()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(1, 3)).tolist() == [[3, 3, 3]]
    model.weight.fill_(2)
    assert compiled(torch.ones(1, 3)).tolist() == [[6, 6, 6]]


def test_a_compiled_call_copies_no_field():
    model = Chain(Scale.ramp(3), Scale.ramp(3))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.ones(2, 3)
    compiled(x)
    with torch.profiler.profile() as profile:
        compiled(x)
    names = {event.key for event in profile.key_averages()}
    assert "class_samples::Scale_forward" in names
    assert not names & {"aten::clone", "aten::copy_"}


def test_what_tracing_sees_follows_a_field_that_gets_other_memory():
    weight = torch.ones(3)
    scale = Scale(3, weight)

    def seen() -> Tensor:
        return dict(scale.__obj_flatten__())["weight"]

    assert len({id(tensor) for tensor in [weight, *(seen() for _ in range(200))]}) == 201
    assert seen().data_ptr() == weight.data_ptr()
    weight.data = torch.full((3,), 5.0)
    assert seen().tolist() == Scale.state(scale)["weight"].tolist() == [5, 5, 5]
    weight.requires_grad_()
    assert seen().requires_grad


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["three", "two that share a tensor", "one object twice"])
def test_a_model_with_several_objects_is_lowered(name, strict):
    model = Chain(*MANY_OBJECTS[name]())
    program = exported(model, strict=strict)
    x = torch.randn(5, 3)
    assert torch.equal(lower_torchbind(program).module()(x), model(x))


@pytest.mark.long
def test_a_model_with_several_objects_becomes_a_program(tmp_path):
    model = Chain(*shared_scales(2), Scale.ramp(3))
    n = Dim("n", min=2, max=64)
    artifact = opsmith.export(
        model,
        (torch.ones(2, 3),),
        target="aotinductor",
        out=tmp_path / "several",
        dynamic_shapes={"x": {0: n}},
    )
    x = torch.randn(5, 3)
    torch.testing.assert_close(opsmith.load(artifact.folder)(x), model(x))


@pytest.mark.long
def test_a_package_carries_the_state(tmp_path):
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = Scale.ramp(3)
            self.counter = Counter(10, torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.counter.forward(self.scale.forward(x)) + 1

    lowered = lower_torchbind(exported(Both()), keep_mutating=True)
    assert [owner.name for owner in classes_in(lowered)] == ["class_samples::Counter"]
    with torch.no_grad():
        torch._inductor.aoti_compile_and_package(
            lowered,
            package_path=str(tmp_path / "model.pt2"),
            inductor_configs={"aot_inductor.precompile_headers": False},
        )
    for _ in range(2):  # each loaded package has an object of its own
        model = torch._inductor.aoti_load_package(str(tmp_path / "model.pt2"))
        assert model(torch.ones(2, 3)).tolist() == [[23, 45, 67]] * 2
        assert model(torch.ones(1, 3)).tolist() == [[25, 49, 73]]
