"""Artifacts and loaded models say what they hold, and why they do not take something."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from opsmith import ArgumentError, ArtifactError, CheckError, MissingDependencyError
from opsmith.targets.exporting import artifact as artifacts
from opsmith.targets.exporting.artifact import (
    Agreement,
    Artifact,
    CallSpec,
    File,
    Manifest,
    OperatorUse,
    TensorSpec,
)
from opsmith.targets.exporting.loaded_artifact import LoadedModel, LoadedOperators, load_artifact
from opsmith.targets.exporting.protocol import Runner
from opsmith.targets.exporting.registry import get_target
from opsmith.targets.exporting.verification import compare, sampled_inputs

WHOLE = Manifest(
    "onnx",
    {"torch": "2.13.0"},
    (TensorSpec("x", "float32", ("N", 3)), TensorSpec("y", "int64", ("2*N", "N - K"))),
    (TensorSpec("output", "float32", ("N",)),),
    {"N": (2, 5), "K": (0, None)},
    CallSpec("", "", (0, 1, {"is": 4}), (0, {"is": None})),
    "model",
    (OperatorUse("ns::f", "library", 2, "a note"),),
    {"model": "model.onnx"},
    Agreement(3, 0.5, "output"),
    {"model.onnx": File("00", 3)},
)


class Recorder(Runner):
    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.functions = {"a::f": len, "b::f": max, "b::g": min}

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        self.inputs = list(inputs)
        return [inputs[0] * 2]


def loaded(tmp_path: Path, manifest: Manifest = WHOLE) -> Any:
    return LoadedModel(Artifact(tmp_path, manifest), Recorder())


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    assert Manifest.from_json(WHOLE.to_json(), tmp_path) == WHOLE
    assert json.loads(WHOLE.to_json())["manifest"] == artifacts.VERSION
    bare = Manifest("jax", {}, kind="operators")
    assert Manifest.from_json(bare.to_json(), tmp_path) == bare
    assert bare.agreement is None
    first = {**json.loads(WHOLE.to_json()), "manifest": 1}
    del first["kind"]
    assert Manifest.from_json(json.dumps(first), tmp_path) == WHOLE
    assert [spec.type for spec in WHOLE.inputs] == ["float32 (N, 3)", "int64 (2*N, N - K)"]
    assert str(WHOLE.outputs[0]) == "output: float32 (N,)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "is not the manifest of an opsmith artifact"),
        ("[1]", "is not the manifest of an opsmith artifact"),
        ("{}", "is not the manifest of an opsmith artifact"),
        (
            '{"manifest": 9}',
            "has version 9, and this opsmith reads versions 1 and 2. Export again, or install the "
            "opsmith that exported it.",
        ),
        ('{"manifest": 2}', "is damaged: target is missing"),
    ],
)
def test_what_is_no_manifest_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        Manifest.from_json(text, tmp_path)
    assert str(caught.value) == f"{tmp_path} {said}"


def write(folder: Path, **files: str) -> None:
    with artifacts.replacing(folder, overwrite=False) as made:
        for name, text in files.items():
            (made / name).write_text(text)
        manifest = Manifest("onnx", {}, files=artifacts.list_files(made))
        (made / artifacts.MANIFEST).write_text(manifest.to_json())


def refused(function: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(ArtifactError) as caught:
        function(*args, **options)
    return str(caught.value)


def test_a_file_that_is_not_what_was_exported_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    assert refused(Artifact.open, folder) == (
        f"{folder} is not an opsmith artifact: no such folder"
    )
    folder.mkdir()
    assert refused(Artifact.open, folder) == (
        f"{folder} is not an opsmith artifact: it has no manifest.json"
    )
    write(folder, model="abc", weights="d")
    opened = Artifact.open(folder)
    assert opened.path("model") == folder / "model"
    assert sorted(opened.manifest.files) == ["model", "weights"]
    assert refused(opened.path, "other") == f"{folder / 'manifest.json'} lists no file 'other'"
    (folder / "model").write_text("abcd")
    said = refused(Artifact.open, str(folder)).splitlines()
    assert said[0] == f"{folder / 'model'} is not the file that was exported, and is not loaded."
    assert said[1].startswith("  SHA-256 in the manifest: ba7816bf") and said[1].endswith(
        "(3 bytes)"
    )
    assert said[2].startswith("  SHA-256 of the file:     88d4266f") and said[2].endswith(
        "(4 bytes)"
    )
    (folder / "model").unlink()
    assert refused(Artifact.open, folder) == (
        f"{folder / 'model'} is missing; the manifest lists it. Export the model again."
    )
    (folder / "model").mkdir()
    assert refused(Artifact.open, folder).startswith(f"{folder / 'model'} cannot be read: ")
    (folder / "manifest.json").write_bytes(b"\xff")
    assert refused(Artifact.open, folder).startswith(f"{folder / 'manifest.json'} cannot be read: ")
    for name in ("../model", "/model"):
        outside = Artifact(folder, Manifest("onnx", {}, files={name: File("0", 1)}))
        assert refused(outside.verify, name) == (
            f"{folder / 'manifest.json'} names {name!r}, outside the artifact"
        )


def test_what_is_there_is_replaced_only_where_it_may_be(tmp_path: Path) -> None:
    folder = tmp_path / "sub" / "made"
    write(folder, model="abc")
    assert folder.stat().st_mode & 0o777 == (tmp_path / "sub").stat().st_mode & 0o777
    said = (
        f"{folder} holds an artifact already. Pass overwrite=True (--overwrite) to replace it, "
        "or choose another folder."
    )
    assert refused(write, folder, model="x") == said
    assert (folder / "model").read_text() == "abc"
    with artifacts.replacing(folder, overwrite=True) as made:
        (made / "new").write_text("n")
        assert (folder / "model").exists()
    assert [path.name for path in folder.iterdir()] == ["new"]
    assert refused(artifacts.refuse_to_replace, folder, overwrite=True) == (
        f"{folder} exists and is not an opsmith artifact, so it is not replaced. Choose another "
        "folder."
    )
    with pytest.raises(ZeroDivisionError), artifacts.replacing(tmp_path / "b", overwrite=False):
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sub"]
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["made"]


GOOD = (torch.ones(4, 3), torch.ones(8, 4, dtype=torch.int64))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (GOOD[:1], "takes 2 inputs (x, y), got 1."),
        (
            (torch.ones(4, 3, dtype=torch.float64), GOOD[1]),
            "input 'x' has dtype float64, expected float32.\n  got: shape (4, 3), dtype float64",
        ),
        (
            (torch.ones(4), GOOD[1]),
            "input 'x' has 1 dimensions, expected 2 for float32 (N, 3).\n"
            "  got: shape (4,), dtype float32",
        ),
        (
            (torch.ones(4, 2), GOOD[1]),
            "input 'x' does not fit float32 (N, 3): dimension 1 is 2, expected 3: the model was "
            "exported for this size alone. Name it in dynamic_shapes to allow others.\n"
            "  got: shape (4, 2), dtype float32",
        ),
        (
            (torch.ones(1, 3), GOOD[1]),
            "input 'x' does not fit float32 (N, 3): dimension 0 (N) is 1, the export allows "
            "2 <= N <= 5.\n  got: shape (1, 3), dtype float32",
        ),
        (
            (torch.ones(6, 3), GOOD[1]),
            "input 'x' does not fit float32 (N, 3): dimension 0 (N) is 6, the export allows "
            "2 <= N <= 5.\n  got: shape (6, 3), dtype float32",
        ),
        (
            (torch.ones(4, 3), torch.ones(7, 4, dtype=torch.int64)),
            "input 'y' does not fit int64 (2*N, N - K): dimension 0 (2*N) is 7, expected 8.",
        ),
        ((3, GOOD[1]), None),
        ((object(), GOOD[1]), "input 'x' is object, expected a dense tensor."),
        (
            (GOOD[0].to_sparse(), GOOD[1]),
            "input 'x' is a tensor of layout sparse_coo, expected a dense tensor.",
        ),
        ((*GOOD, object()), "input '2' is object, expected a dense tensor."),
    ],
)
def test_an_input_that_does_not_fit_is_said(tmp_path: Path, inputs: Any, said: str | None) -> None:
    with pytest.raises(ArgumentError) as caught:
        loaded(tmp_path).run(inputs)
    assert said is None or str(caught.value) == f"{tmp_path}: {said}"


@pytest.mark.parametrize(
    ("dim", "low", "size", "hinted"),
    [
        ("x_dim_0", 2, 1, True),
        ("x_dim_0", 2, 0, True),
        ("x_dim_0", 3, 2, False),
        ("x_dim_0", 3, 1, False),
        ("N", 2, 1, False),
    ],
)
def test_a_size_that_nobody_named_begins_at_2_and_the_message_says_why(
    tmp_path: Path, dim: str, low: int, size: int, hinted: bool
) -> None:
    inputs = (TensorSpec("x", "float32", (dim,)),)
    model = loaded(tmp_path, Manifest("onnx", {}, inputs, dims={dim: (low, None)}))
    with pytest.raises(ArgumentError) as caught:
        model.run([torch.ones(size)])
    hint = (
        " The smallest size is 2 in torch.export for Dim.DYNAMIC and Dim.AUTO, and 0 for "
        'Dim("n"): use the latter in dynamic_shapes to allow smaller sizes.'
    )
    assert str(caught.value) == (
        f"{tmp_path}: input 'x' does not fit float32 ({dim},): dimension 0 ({dim}) is {size}, the "
        f"export allows {low} <= {dim}.{hint if hinted else ''}\n"
        f"  got: shape ({size},), dtype float32"
    )


def test_one_name_is_one_size(tmp_path: Path) -> None:
    inputs = (TensorSpec("x", "float32", ("N",)), TensorSpec("y", "float32", ("M", "N")))
    model = loaded(tmp_path, Manifest("onnx", {}, inputs, dims={"N": (0, None), "M": (1, None)}))
    model.run((torch.ones(0), torch.ones(1, 0)))
    with pytest.raises(ArgumentError) as caught:
        model.run((torch.ones(2), torch.ones(1, 3)))
    assert str(caught.value) == (
        f"{tmp_path}: input 'y' does not fit float32 (M, N): dimension 1 (N) is 3, expected 2.\n"
        "  got: shape (1, 3), dtype float32\n  bound so far: N=2, M=1 (N by 'x')"
    )
    with pytest.raises(ArgumentError, match=r"dimension 0 \(M\) is 0, the export allows 1 <= M\."):
        model.run((torch.ones(2), torch.ones(0, 2)))
    one = loaded(tmp_path, Manifest("onnx", {}, inputs[:1], dims={"N": (0, None)}))
    with pytest.raises(ArgumentError, match=r"takes 1 input \(x\), got 2\."):
        one.run((torch.ones(2), torch.ones(2)))


@pytest.mark.parametrize(
    ("shape", "dims", "sizes", "wrong"),
    [
        (("3*s + 1",), {"s": (2, 3)}, [(7,), (10,)], [(4,), (8,), (13,)]),
        (("8 - 2*s",), {"s": (1, None)}, [(6,), (4,)], [(8,), (5,)]),
        # The symbol that one size gives is in another size.
        (("2*s", "s*t - 1"), {"s": (1, None), "t": (1, None)}, [(4, 5)], [(4, 6), (3, 5)]),
        # Nobody can say which symbols these are.
        (("s*s", "s//2", "s + t"), {"s": (1, None), "t": (1, None)}, [(3, 3, 3)], []),
    ],
)
def test_a_symbol_that_stands_alone_nowhere_follows_from_the_size(
    tmp_path: Path,
    shape: tuple[str, ...],
    dims: dict[str, Any],
    sizes: list[tuple[int, ...]],
    wrong: list[tuple[int, ...]],
) -> None:
    inputs = (TensorSpec("x", "float32", shape),)
    model = loaded(tmp_path, Manifest("onnx", {}, inputs, dims=dims))
    for one in sizes:
        model.run([torch.ones(one)])
    for one in wrong:
        with pytest.raises(ArgumentError, match=r" is \d+, the export allows .* with \d <= [st]"):
            model.run([torch.ones(one)])


def test_a_loaded_model_is_called_as_the_model_was(tmp_path: Path) -> None:
    model = loaded(tmp_path)
    assert repr(model) == f"<onnx artifact {tmp_path} (x: float32 (N, 3), y: int64 (2*N, N - K))>"
    x = torch.ones(3, 4).T.requires_grad_()
    got, nothing = model(x, GOOD[1], 4)
    assert (got.tolist(), nothing) == ((torch.ones(4, 3) * 2).tolist(), None)
    assert all(t.is_contiguous() and not t.requires_grad for t in model.runner.inputs)
    model(x, GOOD[1].numpy(), 4)
    with pytest.raises(ArgumentError) as caught:
        model(x, GOOD[1], 5)
    assert str(caught.value) == (
        f"{tmp_path}: an argument is 5, but the model was exported for 4, which is now a "
        f"constant in it"
    )
    with pytest.raises(ArgumentError) as caught:
        model(x, GOOD[1])
    said = str(caught.value).splitlines()
    assert said[0] == f"{tmp_path}: the arguments are not nested as the exported model's."
    assert said[1] == "  expected: None"
    assert said[-1] == "  inputs: x: float32 (N, 3), y: int64 (2*N, N - K)"


def test_keywords_come_in_any_order(tmp_path: Path) -> None:
    _, structure = pytree.tree_flatten(((), {"a": 0, "b": 0}))
    _, returned = pytree.tree_flatten({"out": 0})
    call = CallSpec(pytree.treespec_dumps(structure), pytree.treespec_dumps(returned), (0, 1), (0,))
    inputs = (TensorSpec("a", "float32", (1,)), TensorSpec("b", "float32", (2,)))
    model = loaded(tmp_path, Manifest("onnx", {}, inputs, call=call))
    a, b = torch.ones(1), torch.ones(2)
    assert model(b=b, a=a)["out"].tolist() == [2]
    for wrong in ({"a": a}, {"a": a, "c": b}, {"a": a, "b": [b]}):
        with pytest.raises(ArgumentError, match="the arguments are not nested as the exported"):
            model(**wrong)


def test_an_argument_that_is_nested_otherwise_is_named_by_its_inputs(tmp_path: Path) -> None:
    _, structure = pytree.tree_flatten(((0, [0, 0]), {}))
    call = CallSpec(pytree.treespec_dumps(structure), "", (0, 1, 2), (0,))
    inputs = tuple(TensorSpec(name, "float32", (1,)) for name in ("a", "b_0", "b_1"))
    model = loaded(tmp_path, Manifest("onnx", {}, inputs, call=call))
    a = torch.ones(1)
    for given, said in [
        ((a, [a]), "  argument 1 ('b_0', 'b_1'): expected a list of 2, got a list of 1"),
        (([], [a, a]), "  argument 0 ('a'): expected a tensor, got a list of 0"),
        ((a,), "  argument 1 ('b_0', 'b_1'): expected a list of 2, got nothing"),
    ]:
        with pytest.raises(ArgumentError) as caught:
            model(*given)
        assert str(caught.value).splitlines()[1] == said
    with pytest.raises(ArgumentError, match="input 'b_0' is a nested tensor, expected a dense"):
        model(a, [torch.nested.nested_tensor([a, a]), a])


def test_loaded_operators_are_found_by_either_name(tmp_path: Path) -> None:
    manifest = Manifest("jax", {}, kind="operators")
    made = LoadedOperators(Artifact(tmp_path, manifest), Recorder())
    assert repr(made) == f"<jax artifact {tmp_path} (operators a::f, b::f, b::g)>"
    assert (made["a::f"], made.ops.g, len(made), dir(made.ops)) == (len, min, 3, ["f", "g"])
    with pytest.raises(KeyError) as missing:
        made["h"]
    assert missing.value.args == (f"{tmp_path} has no operator 'h'; it has a::f, b::f, b::g",)
    for name, said in (
        ("f", 'has a::f and b::f; use the whole name of one, loaded["a::f"]'),
        ("h", "has no operator 'h'; it has a::f, b::f, b::g"),
    ):
        with pytest.raises(AttributeError) as caught:
            getattr(made.ops, name)
        assert str(caught.value) == f"{tmp_path} {said}"
        with pytest.raises(AttributeError) as caught:
            getattr(made, name)
        assert str(caught.value) == f"{tmp_path} {said}"
    assert not hasattr(made.ops, "__deepcopy__")
    assert made.g is min
    assert {"f", "g", "runner", "items"} <= set(dir(made))
    assert copy.copy(made).g is min


def test_an_artifact_of_a_kind_that_its_target_does_not_load_is_refused(tmp_path: Path) -> None:
    for kind, held in (("operators", "operators"), ("other", "other")):
        artifact = Artifact(tmp_path, Manifest("aotinductor", {}, kind=kind))
        assert refused(load_artifact, artifact) == (
            f"{tmp_path} holds {held}, which the target 'aotinductor' (AOTInductor) of this "
            "opsmith does not load"
        )


def test_an_artifact_whose_runtime_is_missing_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = get_target("aotinductor")
    monkeypatch.setattr(type(target), "available", lambda self: "no compiler. Install g++")
    with pytest.raises(MissingDependencyError) as caught:
        load_artifact(Artifact(tmp_path, Manifest("aotinductor", {}, kind="model")))
    assert str(caught.value) == f"{tmp_path} needs AOTInductor: no compiler. Install g++"


def test_a_large_file_is_counted_and_hashed_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    assert artifacts.file_digest(path) == File(hashlib.sha256(content).hexdigest(), 2_560_000)


def sampled(dims: dict[str, Any], *inputs: tuple[Tensor, tuple[Any, ...]], count: int = 4) -> Any:
    specs = [TensorSpec(f"x{i}", str(v.dtype), shape) for i, (v, shape) in enumerate(inputs)]
    values = [value for value, _ in inputs]
    model: Any = SimpleNamespace(
        inputs=specs, dims=dims, args=(), kwargs={}, flatten=lambda args, kwargs: values
    )
    return list(sampled_inputs(model, count))


def test_an_artifact_is_compared_at_sizes_that_the_export_allows() -> None:
    def sizes(dims: dict[str, Any], count: int = 4) -> list[int]:
        x = torch.arange(4.0) + 0.5
        found = sampled(dims, (x, ("N",)), (x.repeat(2), ("2*N",)), count=count)
        assert all(2 * len(a) == len(b) for a, b in found)
        return [len(a) for a, _ in found]

    assert sizes({"N": (0, None)}) == [4, 5, 8, 3, 13]
    assert sizes({"N": (0, None)}, count=2) == [4, 5, 8]
    assert sizes({"N": (4, 6)}) == [4, 5, 6], "within the limits, and none twice"
    assert sizes({"N": (2, None)})[-1] == 13
    assert sizes({"M": (0, None)}) == [4], "a size that is fixed stays"
    assert [len(a) for (a,) in sampled({"N": (0, None)}, (torch.ones(1), ("N",)))] == [1, 2, 4]


def test_sampled_floats_are_the_examples_own_and_integers_stay() -> None:
    x, k = torch.arange(64.0), torch.arange(64)
    ((a, b),) = sampled({}, (x, (64,)), (k, (64,)))
    assert b is k
    assert not torch.equal(a, x) and torch.equal(a.sort().values, x)
    same = torch.full((64,), 2.0, dtype=torch.float16)
    ((a,),) = sampled({}, (same, (64,)))
    assert a.dtype is torch.float16 and a.unique().numel() > 32, "equal ones say too little"
    ((again,),) = sampled({}, (same, (64,)))
    assert torch.equal(a, again), "what a failure was found with is drawn again"
    ((a,),) = sampled({}, (torch.tensor([5.0]), (1,)))
    assert a.shape == (1,) and a.item() != 5.0
    ((a,),) = sampled({}, (torch.empty(0), (0,)))
    assert a.numel() == 0
    for most in (5, None):
        found = sampled({"N": (0, most)}, (torch.empty(0, 2), ("N", 2)))
        assert [tuple(a.shape) for (a,) in found] == [(0, 2), (1, 2)]
    # A larger input repeats the example's values, a smaller one has its first.
    found = sampled({"N": (1, None)}, (torch.tensor([5, 6, 7]), ("N",)))
    assert [value.tolist() for (value,) in found] == [
        [5, 6, 7], [5, 6, 7, 5], [5, 6, 7, 5, 6, 7], [5, 6], [5, 6, 7, 5, 6, 7, 5, 6, 7, 5],
    ]  # fmt: skip


def test_sampled_rows_stay_together_and_name_only_what_is_there() -> None:
    images = torch.arange(3 * 8.0).reshape(3, 8) + 0.25
    boxes = torch.tensor([[0, 1.5, 2.5], [2, 3.5, 4.5], [1, 5.5, 6.5], [2, 7.5, 8.5]])
    sizes = set()
    for fixed in ({}, {"N": (1, None), "K": (1, None)}):
        shapes = (("N", 8), ("K", 3)) if fixed else ((3, 8), (4, 3))
        for n, k in sampled(fixed, (images, shapes[0]), (boxes, shapes[1])):
            assert {tuple(row) for row in k.tolist()} <= {tuple(row) for row in boxes.tolist()}
            assert int(k[:, 0].max()) < len(n)
            sizes.add((len(n), len(k)))
    assert sizes == {(3, 4), (4, 5), (6, 8), (10, 13)}, "two images would lack the third"
    without = torch.tensor([[0, 1.5, 2.5], [1, 3.5, 4.5]])
    found = sampled({"N": (1, None)}, (images, ("N", 8)), (without, (2, 3)))
    assert [len(n) for n, _ in found] == [3, 4, 6, 2, 10]


def test_equal_rows_become_different_ones_without_other_indices() -> None:
    box = torch.tensor([[2, 1.5, 2.5, 4.0]])
    *_, (grown,) = sampled({"K": (1, None)}, (box, ("K", 4)))
    assert len(grown) == 4 and len(grown.unique(dim=0)) == 4
    assert (grown[:, 0] == 2).all() and (grown[:, 3] == 4).all()
    assert (grown[:, 1] < 1.5).all() and (grown[:, 1] >= 0.75).all()
    ((zeros,),) = sampled({}, (torch.zeros(64, 5), (64, 5)))
    assert zeros.unique().numel() > 64 and not zeros.int().any(), "an index 0 stays one"


class Careless(Runner):
    """Agrees on the example alone."""

    def __init__(self, example: Tensor) -> None:
        self.example = example

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [inputs[0] * (2 if torch.equal(inputs[0], self.example) else 3)]


def test_a_runtime_that_differs_on_sampled_inputs_alone_says_what_to_pass() -> None:
    x = torch.arange(12.0).reshape(4, 3) + 0.5
    specs = [TensorSpec("x", "float32", (4, 3))]
    model: Any = SimpleNamespace(
        inputs=specs,
        outputs=[TensorSpec("y", "float32", (4, 3))],
        dims={},
        args=(x,),
        kwargs={},
        flatten=lambda args, kwargs: list(args),
        unflatten=lambda values: (values, {}),
        module=lambda x: x * 2,
        program=SimpleNamespace(
            graph_signature=SimpleNamespace(input_specs=[]), graph=SimpleNamespace(nodes=[])
        ),
    )
    assert compare(model, Careless(x), "Echo", samples=[(x,)]).samples == 2
    with pytest.raises(CheckError) as caught:
        compare(model, Careless(x), "Echo")
    message = str(caught.value)
    assert message.startswith("Echo disagrees with PyTorch in the output 'y'")
    assert message.endswith(
        "On the example the two agree. These inputs, of sizes (4, 3), have its numbers in other "
        "places: where the model takes no such inputs, pass verify=[args, ...] with those to "
        "compare on."
    )
    with pytest.raises(CheckError) as caught:
        compare(model, Careless(x + 1), "Echo")
    assert "On the example" not in str(caught.value), "the example comes first"
