"""Compare the files with the declaration, in the words of OpPlugin and TorchAir."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import op_plugin_operators as operators
import pytest
import torch
import yaml
from jaxtyping import Float, Int64
from torch import Tensor
from torchgen.model import FunctionSchema, SchemaKind

import opsmith
from opsmith.operators import Operator


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("op_plugin") / "out"
    opsmith.export(operators.EVERY, target="op_plugin", out=folder, say=None)
    return folder


@pytest.fixture(scope="module")
def entries(exported: Path) -> dict[str, dict[str, Any]]:
    listed = yaml.safe_load((exported / "npu_custom.yaml").read_text())
    assert f"v{'.'.join(torch.__version__.split('.')[:2])}" in listed["all_version"]
    return {entry["func"].partition("(")[0]: entry for entry in listed["custom"]}


def alike(schema: Any) -> list[object]:
    """A schema without the operator's name."""
    arguments = [(a.name, str(a.type), a.default_value, a.kwarg_only) for a in schema.arguments]
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    return [arguments, written, [str(one.type) for one in schema.returns]]


def test_each_function_has_the_schema_of_the_operator_and_torchgen_reads_it(entries) -> None:
    assert list(entries) == [*(one.signature.name for one in operators.EVERY), "scaled_backward"]
    for operator in [*operators.EVERY, operators.scaled_backward]:
        func = entries[operator.signature.name]["func"]
        assert str(FunctionSchema.parse(func)) == func
        ours = getattr(torch.ops.npu_said, operator.signature.name).default._schema
        assert alike(torch._C.parse_schema(f"npu::{func}")) == alike(ours)
    assert FunctionSchema.parse(entries["moved"]["func"]).kind() is SchemaKind.mutable


def test_the_api_takes_tensors_then_attributes_then_results(entries) -> None:
    called = {name: entry["gen_opapi"]["exec"] for name, entry in entries.items()}
    assert called == {
        "scaled": "aclnnScaled, x, weight, eps, out",
        "mixed": "aclnnMixed, x, bias, opsmith_count, size, halves, opsmith_mode, flip, eps, "
        "steps, out0, out1, out2",
        "pooled": "aclnnPooled, x, opsmith_pad, opsmith_stride, out0, out1",
        "joined": "aclnnJoined, xs, halves, mask, out0, out1",
        "moved": "aclnnMoved, state, x, rate, out",
        "stepped": "aclnnStepped, params, grads, step",
        "scaled_backward": "aclnnScaledBackward, grad, x, weight, out0, out1",
    }


def test_sizes_and_dtypes_are_those_of_an_argument_where_one_has_them(entries) -> None:
    said = {name: entry["gen_opapi"] for name, entry in entries.items()}
    assert said["scaled"]["out"] == {"size": "x", "dtype": "x"}
    assert said["scaled_backward"]["out1"] == {"size": "weight", "dtype": "grad"}
    assert said["joined"]["out1"] == {"size": "xs[0]", "dtype": "xs[0]"}
    assert said["mixed"]["out1"] == {"size": "std::vector<int64_t>{}", "dtype": "at::kLong"}
    assert said["mixed"]["out2"]["dtype"] == "at::kBool"


def test_functions_with_symbolic_ints_are_listed_as_such(exported: Path) -> None:
    listed = yaml.safe_load((exported / "npu_custom.yaml").read_text())
    assert [one["func"].partition("(")[0] for one in listed["symint"]] == ["mixed", "pooled"]


def test_a_name_of_atens_gets_the_namespace_and_torchgen_the_tag_that_it_asks_for(tmp_path) -> None:
    @opsmith.op("npu_taken::dropout")
    def dropout(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 1

    opsmith.export(dropout, target="op_plugin", out=tmp_path / "out", say=None)
    (entry,) = yaml.safe_load((tmp_path / "out" / "npu_custom.yaml").read_text())["custom"]
    assert entry["func"] == "npu_taken_dropout(Tensor x) -> Tensor"
    assert entry["tags"] == "nondeterministic_seeded"
    assert entry["gen_opapi"]["exec"] == "aclnnDropout, x, out"


class Registered:
    """Stands in for torchair, whose compiled part needs CANN: it takes down what is asked of it.

    ``make npu`` runs the converters in TorchAir's own Python.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
        self.converters: dict[object, Any] = {}
        module = ModuleType("torchair")
        module.ge = SimpleNamespace(  # type: ignore[attr-defined]
            custom_op=lambda op_type, **parts: SimpleNamespace(
                op_type=op_type, **parts, __getitem__=None
            ),
            attr=self,
        )
        module.register_fx_node_ge_converter = lambda op: (  # type: ignore[attr-defined]
            lambda function: self.converters.setdefault(op, function)
        )
        monkeypatch.setitem(sys.modules, "torchair", module)
        exec(compile(file.read_text(), str(file), "exec"), {})

    def __getattr__(self, kind: str) -> Any:
        return lambda value: (kind, value)


def test_a_converter_passes_inputs_attributes_and_outputs_by_name(monkeypatch, exported) -> None:
    converters = Registered(monkeypatch, exported / "converters.py").converters
    assert len(converters) == 7
    made = converters[torch.ops.npu_said.mixed.default](2, "x", None, [3, 5], [7], mode="mean")
    assert made.op_type == "Mixed"
    assert made.inputs == {"x": "x", "bias": None}
    assert made.attrs == {
        "count": ("Int", 2),
        "size": ("ListInt", [3, 5]),
        "halves": ("ListInt", [7]),
        "mode": ("Str", "mean"),
        "flip": ("Bool", False),
        "eps": ("Float", 1e-6),
        "steps": ("ListInt", (1, 2)),
    }
    assert made.outputs == ["out0", "out1", "out2"]


def test_what_is_written_is_an_output_of_its_name_and_not_returned(monkeypatch, exported) -> None:
    text = (exported / "converters.py").read_text()
    moved = text.partition("def moved(")[2].partition("\n\n\n")[0]
    assert 'outputs=["state", "out", ]' in moved and "return made[1]" in moved
    stepped = text.partition("def stepped(")[2].partition("\n\n\n")[0]
    assert 'outputs=[("params", len(params)), "step", ]' in stepped and "return" not in stepped


def test_an_export_says_that_nothing_was_run_and_cannot_be_loaded(tmp_path) -> None:
    @opsmith.op("npu_said::cased")
    def cased(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 1

    cased.register_cases(lambda dtype, seed: [{"x": torch.ones(2, dtype=dtype)}])
    said: list[str] = []
    opsmith.export(cased, target="op_plugin", out=tmp_path / "out", say=said.append)
    why = "the files are sources, which CANN compiles for an NPU"
    assert said[:2] == ["npu_said::cased: aclnnCased", f"not compared with PyTorch: {why}"]
    with pytest.raises(opsmith.ArtifactError, match="has sources, which CANN compiles for an NPU"):
        opsmith.load(tmp_path / "out")


def test_the_type_in_cann_is_chosen_by_operator(tmp_path) -> None:
    def called(what: Operator | Sequence[Operator], **options: Any) -> list[str]:
        opsmith.export(
            what, target="op_plugin", out=tmp_path / "out", overwrite=True, say=None, **options
        )
        text = (tmp_path / "out" / "npu_custom.yaml").read_text()
        return re.findall(r"exec: (\w+)", text)

    assert called(operators.moved, op_type="MyMoved") == ["aclnnMyMoved"]
    both = {"npu_said::scaled": "A", "npu_said::scaled_backward": "B"}
    assert called(operators.scaled, op_type=both) == ["aclnnA", "aclnnB"]
    for wrong in ({"npu_said::moves": "A"}, "A"):
        with pytest.raises(opsmith.ExportError) as caught:
            called([operators.moved, operators.pooled], op_type=wrong)
        assert str(caught.value) == (
            f"op_type={wrong!r}: give types by name, of npu_said::moved, npu_said::pooled"
        )


def test_a_dtype_that_no_argument_has_is_refused(tmp_path) -> None:
    file = Path(__file__).parents[3] / "examples" / "todays_operators" / "rfft.py"
    with pytest.raises(opsmith.ExportError) as caught:
        opsmith.export(file, target="op_plugin", out=tmp_path / "out", say=None)
    why = "no required tensor has the dtype of its result 'out'."
    assert str(caught.value) == f"today::rfft: {why}"


def test_an_operator_of_pytorchs_is_a_kernel_of_the_declaration() -> None:
    library = torch.library.Library("npu_made", "DEF")
    library.define("halved(Tensor x, *, SymInt n=2) -> Tensor")
    library.impl("halved", lambda x, n=2: x / n, "CPU")

    @opsmith.op("npu_said::halved")
    def halved(x: Float[Tensor, "N"], *, n: int = 2) -> Float[Tensor, "N"]:
        return x * float("nan")

    halved.register_kernel("cpu", torch.ops.npu_made.halved)
    assert torch.equal(halved(torch.ones(3), n=4), torch.full((3,), 0.25))
    model = torch.compile(lambda x: halved(x), fullgraph=True, backend="aot_eager")
    assert torch.equal(model(torch.ones(3)), torch.full((3,), 0.5))


def refused() -> dict[str, tuple[Any, str]]:
    """Functions that cannot be said, and why."""

    def absent(x: Float[Tensor, "N"], k: int | None = None) -> Float[Tensor, "N"]: ...
    def floats(x: Float[Tensor, "N"], scales: Sequence[float]) -> Float[Tensor, "N"]: ...
    def flags(x: Float[Tensor, "N"], flags: Sequence[bool]) -> Float[Tensor, "N"]: ...
    def word(x: Float[Tensor, "N"], default: int) -> Float[Tensor, "N"]: ...
    def lists(x: Float[Tensor, "N"], ys: list[Float[Tensor, "N"]] | None) -> Float[Tensor, "N"]: ...
    def unknown(x: Float[Tensor, "N"]) -> Float[Tensor, "M"]: ...
    def shapeless(x: Tensor) -> Tensor: ...
    def several(x: Float[Tensor, "N"]) -> list[Tensor]: ...
    def empty(xs: list[Float[Tensor, "..."]], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...
    def alone(size: int) -> Int64[Tensor, "{size}"]: ...

    lists_of = "OpPlugin passes ints alone."
    why = {
        absent: "argument 'k' may be None; in CANN only a tensor that is read may.",
        floats: f"argument 'scales' is a list of float; {lists_of}",
        flags: f"argument 'flags' is a list of bool; {lists_of}",
        word: "argument 'default' is a word of C++, and OpPlugin keeps it.",
        lists: "argument 'ys' may be None; in CANN only a tensor that is read may.",
        unknown: "no required tensor has the size 'M' of its result 'out'.",
        shapeless: "its result 'out' has no declared sizes.",
        several: "its result 'out' has no declared sizes.",
        empty: "OpPlugin makes results like the first tensor, and a call may have none.",
        alone: "OpPlugin makes results like the first tensor, and a call may have none.",
    }
    return {function.__name__: (function, text) for function, text in why.items()}


@pytest.mark.parametrize("name", refused())
def test_what_the_formats_cannot_say_is_refused_and_nothing_is_written(name, tmp_path) -> None:
    function, why = refused()[name]
    more = {"unknown": {"data_dependent": ("M",)}}.get(name, {})
    operator = opsmith.op(f"npu_refused::{name}", **more)(function)
    with pytest.raises(opsmith.ExportError) as caught:
        opsmith.export(operator, target="op_plugin", out=tmp_path / "out", say=None)
    assert str(caught.value) == f"npu_refused::{name}: {why}"
    assert not (tmp_path / "out").exists()
