"""A custom class in PyTorch: its objects hold, compute, change, are copied, saved and moved."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
import torch
from custom_class_samples import Counter, Everything, Scale, Ticket, everything
from jaxtyping import Float
from torch import Tensor, nn

import opsmith
from opsmith import ArgumentError, DeclarationError, MissingDependencyError, OpsmithError
from opsmith.operators import classes
from opsmith.operators.classes import runtime


class Holder(nn.Module):
    def __init__(self, held: torch.ScriptObject) -> None:
        super().__init__()
        self.held = held
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.held.forward(self.linear(x))


def saved(value: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


def test_it_is_a_torch_class():
    made = torch.classes.class_samples.Scale(3, torch.ones(3))
    assert isinstance(made, torch.ScriptObject)
    assert isinstance(made, Scale)
    assert isinstance(Scale(3, torch.ones(3)), Scale)
    assert not isinstance(Counter(0, torch.zeros(1)), Scale)
    assert not isinstance(3, Scale)
    assert (made.channels, made.factor, made.get_channels()) == (3, 2.0, 3)
    assert Scale.__doc__ == "Scales channels."
    assert repr(Counter) == (
        '<opsmith custom class class_samples::Counter(count: int, total: Float[Tensor, "C"])>'
    )
    assert classes.get("class_samples::Scale") is Scale
    assert classes.class_of(made) is Scale
    with pytest.raises(OpsmithError, match="no custom class 'a::B' was declared"):
        classes.get("a::B")


def test_a_method_runs_its_kernel():
    made = Scale.ramp(3)
    x = torch.randn(4, 3)
    made.forward(x)
    before = Scale.forward.native["cpu"].calls
    assert torch.equal(made.forward(x), x * torch.tensor([1.0, 2, 3]) * 2)
    assert Scale.forward.native["cpu"].calls == before + 1
    assert torch.equal(Scale.forward(made, x), made.forward(x))
    assert torch.equal(made.forward(x=x), made.forward(x))


def test_every_kind_of_field_travels():
    made = everything(maybe=torch.ones(3), limit=7)
    found = Everything.state(made)
    tables, maybe = found.pop("tables"), found.pop("maybe")
    assert found == {
        "pads": [1, 2],
        "sizes": [3, 4, 5],
        "scales": [1.5],
        "flags": [True, False],
        "names": ["x", "y"],
        "on": True,
        "eps": 1e-5,
        "mode": 'a\tb\n"q"\\',
        "limit": 7,
    }
    assert torch.equal(maybe, torch.ones(3))
    assert len(tables) == 2
    assert made.mode == 'a\tb\n"q"\\'
    x = torch.ones(2, 3)
    assert torch.equal(made.forward(x), torch.full((2, 3), 2 + 1 + 2 + 1.0))
    assert torch.equal(made.forward(x, 3, bias=True), torch.full((2, 3), 3 + 1 + 2 + 101.0))
    sums, *numbers = made.both(x)
    assert torch.equal(sums, torch.full((2,), 3.0))
    assert numbers == [12, 1e-5, True]
    assert [type(number) for number in numbers] == [int, float, bool]
    assert made.total() == 12
    assert made.get_names() == ["x", "y"]
    assert [row.tolist() for row in made.split(x)] == [[1, 1, 1], [1, 1, 1]]


def test_a_method_without_a_kernel_runs_its_reference():
    assert not Everything.forward.native
    before = Everything.forward.kernels["reference"].calls
    everything().forward(torch.ones(1, 3))
    assert Everything.forward.kernels["reference"].calls == before + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (0, torch.ones(0)),
            "class_samples::Scale: argument 'channels' is 0, expected 1 <= value.",
        ),
        ((3,), "class_samples::Scale: argument 'weight' is missing."),
        ((3.0, torch.ones(3)), "class_samples::Scale: argument 'channels' is float, expected int."),
        (
            (3, torch.ones(4)),
            "class_samples::Scale: argument 'weight' does not fit Float[Tensor, \"{channels}\"]: "
            "dimension 0 (channels) is 4, expected 3.\n  got: shape (4,), dtype float32",
        ),
    ],
)
def test_fields_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ArgumentError) as caught:
        Scale(*arguments)
    assert str(caught.value) == message


def test_what_cannot_be_an_object_or_attribute_is_said():
    made = Scale.ramp(3)
    with pytest.raises(RuntimeError, match="can't set attribute"):
        made.channels = 4
    with pytest.raises(AttributeError, match="does not have a field with name 'other'"):
        _ = made.other
    with pytest.raises(AttributeError, match="Scale has no method 'other'; there are forward, get"):
        _ = Scale.other
    with pytest.raises(OpsmithError, match="is not an object of class_samples::Scale"):
        Scale.state(Counter(0, torch.zeros(1)))
    with pytest.raises(OpsmithError, match=r"get_channels only returns the field 'channels'"):
        Scale.get_channels.register_kernel("cpu", source="x.cpp")
    # PyTorch itself makes this one, and does not look at fields; each method does.
    unchecked = torch.classes.class_samples.Scale(4, torch.ones(3))
    with pytest.raises(RuntimeError, match=r"argument 'weight' does not fit .*channels"):
        unchecked.forward(torch.ones(1, 4))


def test_a_bad_argument_of_a_method_is_refused():
    made = Scale.ramp(3)
    made.forward(torch.ones(1, 3))
    with pytest.raises(RuntimeError) as caught:
        made.forward(torch.ones(2, 4))
    assert str(caught.value).startswith(
        "class_samples::Scale_forward: argument 'x' does not fit Float[Tensor, \"N {channels}\"]: "
        "dimension 1 (channels) is 4, expected 3.\n  got: shape (2, 4), dtype float32"
    )


def test_gradients_and_transforms_pass_through_a_method():
    made = Scale.ramp(3)
    x = torch.randn(4, 3, requires_grad=True)
    made.forward(x).sum().backward()
    assert torch.equal(x.grad, torch.tensor([[2.0, 4.0, 6.0]]).expand(4, 3))
    weight = torch.ones(3, requires_grad=True)
    Scale(3, weight).forward(torch.ones(4, 3)).sum().backward()
    assert weight.grad.tolist() == [8, 8, 8]
    batch = torch.randn(5, 4, 3)
    mapped = torch.func.vmap(lambda item: made.forward(item))(batch)
    assert torch.equal(mapped, torch.stack([made.forward(item) for item in batch]))
    with pytest.raises(opsmith.DifferentiationError, match="Counter_forward"):
        Counter(0, torch.zeros(3)).forward(x)


def test_a_method_changes_what_it_declares():
    total = torch.zeros(3)
    made = Counter(0, total)
    assert torch.equal(made.forward(torch.ones(2, 3)), torch.ones(2, 3))
    assert torch.equal(made.forward(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    assert (made.count, made.get_count()) == (2, 2)
    assert made.total.tolist() == [4, 4, 4]
    assert total.tolist() == [4, 4, 4]  # the object holds the tensor that it was given
    assert Counter.forward.native["cpu"].calls > 0


def test_the_reference_changes_the_same():
    made = Counter(5, torch.zeros(3))
    arguments = {"count": 5, "total": torch.zeros(3), "x": torch.ones(2, 3)}
    out, count = Counter.forward.operator.reference(**arguments)
    assert torch.equal(out, made.forward(torch.ones(2, 3)))
    assert int(count) == made.count
    assert torch.equal(arguments["total"], made.total)


def test_a_class_without_tensors():
    ticket = Ticket(7)
    before = Ticket.next.native["cpu"].calls
    assert [ticket.next(), ticket.next(), ticket.number] == [7, 8, 9]
    assert Ticket.next.native["cpu"].calls == before + 2


def test_changes_from_several_threads_tear_nothing():
    ticket = Ticket(0)
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(ticket.next() for _ in range(300)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 1200
    assert 0 < ticket.number <= 1200


@opsmith.custom_class("class_samples::Wrong")
class Wrong:
    count: int
    row: Float[Tensor, "C"]

    def changes(self) -> float:
        self.count = 3
        return 1.0

    def sets(self) -> float:
        self.extra = 3
        return 1.0

    def returns(self) -> int:
        return 1.5  # type: ignore[return-value]

    @opsmith.method(mutates=("count", "row"))
    def reshapes(self) -> None:
        self.row = torch.zeros(1, 1)

    @opsmith.method(mutates=("count",))
    def retypes(self) -> None:
        self.count = "two"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("changes", "changes 'count'; declare it: @opsmith.method(mutates=(\"count\",))."),
        ("sets", "sets 'extra'; an object holds its declared fields and nothing else."),
        ("returns", "returned float, expected int."),
        (
            "reshapes",
            "set 'row' to torch.float32 (1, 1), but it is torch.float32 (2,): a method changes "
            "the values of a tensor, not its dtype or shape.",
        ),
        ("retypes", "set 'count' to str, expected int."),
    ],
)
def test_a_reference_that_does_what_it_did_not_declare(method, message):
    made = Wrong(1, torch.zeros(2))
    with pytest.raises(ArgumentError) as caught:
        getattr(made, method)()
    assert str(caught.value) == f"class_samples::Wrong.{method}: the reference {message}"


def test_a_deep_copy_is_deep():
    made = Counter(1, torch.zeros(3))
    holder = Holder(made)
    copied = copy.deepcopy(holder)
    made.forward(torch.ones(1, 3))
    assert copied.held.count == 1
    assert copied.held.total.tolist() == [0, 0, 0]
    assert Scale.state(copy.deepcopy(Scale(1, torch.ones(1, requires_grad=True))))[
        "weight"
    ].requires_grad
    assert copy.copy(made) is not None
    assert copy.deepcopy(Scale) is Scale
    assert copy.deepcopy(Scale.forward) is Scale.forward


def test_pickle_save_and_load_keep_the_state():
    made = Counter(4, torch.arange(3.0))
    for again in (
        pickle.loads(pickle.dumps(made)),
        torch.load(saved(made), weights_only=False),
        torch.load(saved(Holder(made)), weights_only=False).held,
    ):
        assert isinstance(again, Counter)
        assert again.count == 4
        assert torch.equal(again.total, torch.arange(3.0))
        assert again.forward(torch.ones(1, 3)).tolist() == [[5, 5, 5]]
    assert made.count == 4
    restored = Everything.state(pickle.loads(pickle.dumps(everything())))
    assert restored["mode"] == 'a\tb\n"q"\\'
    assert restored["maybe"] is None
    assert pickle.loads(pickle.dumps(Scale)) is Scale
    assert pickle.loads(pickle.dumps(Scale.forward)) is Scale.forward


def test_loading_weights_only_wants_the_type_allowed():
    buffer = saved(Counter(4, torch.zeros(1)))
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.ScriptObject"):
        torch.load(buffer)
    buffer.seek(0)
    with torch.serialization.safe_globals([torch.ScriptObject]):
        assert torch.load(buffer).count == 4


def test_an_object_stays_where_it_is_when_its_module_moves():
    holder = Holder(Scale.ramp(3))
    assert "held" not in holder.state_dict()
    x = torch.ones(2, 3)
    expected = holder(x)
    holder.half()
    assert holder.held.weight.dtype == torch.float32
    with pytest.raises(RuntimeError) as caught:
        holder(x.half())
    assert str(caught.value).startswith(
        "class_samples::Scale_forward: argument 'x' has dtype float16, expected float32: every "
        "Float tensor of a call has one dtype, and 'weight' fixed it."
    )
    holder.held = Scale.moved(holder.held, dtype=torch.float16)
    assert holder.held.weight.dtype == torch.float16
    assert torch.allclose(holder(x.half()).float(), expected, atol=2e-2)
    with pytest.raises(RuntimeError, match=r"argument 'x' is on meta, expected cpu"):
        holder.held.forward(x.half().to("meta"))
    assert Scale.moved(holder.held, device="meta").weight.device.type == "meta"
    assert Everything.moved(everything(), dtype=torch.float64).tables[1].dtype == torch.float64


def declare(source: str) -> Any:
    names: dict[str, Any] = {"__name__": __name__, "opsmith": opsmith, "Tensor": Tensor}
    exec(textwrap.dedent(source), names)
    return names["Again"]


AGAIN = """
@opsmith.custom_class("class_samples::Again")
class Again:
    size: int

    def forward(self, x: Tensor) -> Tensor:
        return x * self.size
"""


def test_declaring_again_replaces_methods_of_objects_that_are_there():
    first = declare(AGAIN)
    made = first(2)
    state = pickle.dumps(made)
    assert made.forward(torch.ones(1)).item() == 2
    declare(AGAIN)
    assert made.forward(torch.ones(1)).item() == 2
    second = declare(
        AGAIN.replace("x * self.size", "x + self.size") + "\n    def more(self) -> int:\n"
        "        return self.size + 1\n"
    )
    assert made.forward(torch.ones(1)).item() == 3
    assert made.more() == 3
    assert second(4).forward(torch.ones(1)).item() == 5
    assert pickle.loads(state).more() == 3


def test_declaring_again_with_other_fields_refuses_objects_that_are_there():
    made = declare(AGAIN)(2)
    state = pickle.dumps(made)
    again = declare(AGAIN.replace("size: int", "size: float\n    shift: int = 0"))
    assert again(0.5).forward(torch.ones(1)).item() == 0.5
    assert again(0.5).shift == 0
    with pytest.raises(RuntimeError) as caught:
        made.forward(torch.ones(1))
    assert str(caught.value) == (
        "class_samples::Again: this object was made before the class was declared again with other "
        "fields. It has (int size), the class now has (float size, int shift). Make the object "
        "again."
    )
    with pytest.raises(
        RuntimeError, match=r"different number of elements than type Tuple\[float, int\]"
    ):
        pickle.loads(state)
    restored = declare(AGAIN)
    assert made.forward(torch.ones(1)).item() == 2
    assert pickle.loads(state).size == 2
    with pytest.raises(RuntimeError, match="class_samples::Again has no field 'shift'"):
        _ = restored(1).shift


def test_a_class_of_another_module_is_told():
    declare(AGAIN)
    with pytest.warns(UserWarning, match="was declared in .*test_custom_class and is now declared"):
        exec(
            textwrap.dedent(AGAIN),
            {"__name__": "another_package", "opsmith": opsmith, "Tensor": Tensor},
        )
    with pytest.warns(UserWarning, match="class_samples::Again"):
        declare(AGAIN)


def test_a_name_that_pytorch_has_is_refused():
    class Taken:
        size: int

        def get_size(self) -> int:
            return self.size

    with pytest.raises(DeclarationError) as caught:
        opsmith.custom_class("quantized::Conv2dPackedParamsBase")(Taken)
    assert str(caught.value) == (
        "quantized::Conv2dPackedParamsBase: PyTorch already has a class of this name, which "
        "opsmith did not define. Give yours another name."
    )


def test_without_a_compiler_it_says_so(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        MissingDependencyError, match=r"custom classes \(once for this PyTorch\): CXX names"
    ):
        runtime.runtime_library.__wrapped__()


@pytest.mark.slow
def test_a_process_that_never_saw_the_declaration_loads_the_library(tmp_path):
    torch.save(Ticket(40, 2), tmp_path / "ticket.pt")
    runtime, library = Ticket.libraries()
    script = f"""
import ctypes, torch
try:
    torch.load({str(tmp_path / "ticket.pt")!r}, weights_only=False)
except RuntimeError as error:
    print("class_samples.Ticket" in str(error))
for path in ({str(runtime)!r}, {str(library)!r}):
    handle = ctypes.CDLL(path)
handle.opsmith_class_problem__class_samples__Ticket.restype = ctypes.c_char_p
print(handle.opsmith_class_problem__class_samples__Ticket())
ticket = torch.load({str(tmp_path / "ticket.pt")!r}, weights_only=False)
print(ticket.number)
try:
    ticket.next()
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [
        "True",
        "None",
        "40",
        "class_samples::Ticket.next: the operator class_samples::Ticket_next is not in this "
        "process. Load the library of its kernel first.",
    ], done.stderr
