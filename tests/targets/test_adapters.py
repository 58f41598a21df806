"""One anatomy: a call takes the same steps in every runtime."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jaxtyping import Float, Int64
from torch import Tensor

from opsmith.checks import harness
from opsmith.kernels import Recipe, adapters, kernel_source
from opsmith.kernels.codegen.cpp_names import entry_symbol
from opsmith.signature import Signature, signature_of
from opsmith.targets.aotinductor.libraries import Plan, shim
from opsmith.targets.hosted import library as hosted
from opsmith.targets.jax import library as jax
from opsmith.targets.onnxruntime import library as onnxruntime


def everything(
    x: Float[Tensor, "N M"],
    y: Float[Tensor, "N"] | None,
    several: list[Float[Tensor, "N M"]],
    w: Float[Tensor, "N M"],
    n: int,
    m: float | None,
    text: str,
    flags: Sequence[bool] | None,
    double: bool,
) -> tuple[Float[Tensor, "N {n}"], Int64[Tensor, "K"]]: ...


SIGNATURE = signature_of(
    everything, "adapters::everything", mutates_args=("w",), data_dependent=("K",)
)
SOURCE = kernel_source(SIGNATURE, "cpu", Path("everything.cpp"), strided=True)
ADAPTERS = {
    "torch": adapters.torch_adapter(SIGNATURE, "cpu", True),
    "aotinductor": shim(SOURCE, "tag"),
    "onnxruntime": onnxruntime.adapter(SOURCE),
    "jax": jax.adapter(SOURCE),
    "hosted": hosted.adapter(SOURCE),
}


def steps(text: str) -> list[str]:
    """What the adapter does between taking the arguments and giving the results."""
    body = re.search(r"\n(  \w+ raw\{\};\n.*?)\n}\n", text, re.DOTALL)
    assert body is not None
    lines = [re.sub(r"^  Call call\(.*", "  Call call", line) for line in body[1].splitlines()]
    given = [i for i, line in enumerate(lines) if "require_allocated" in line]
    return lines[: given[-1] + 1]


def test_every_runtime_takes_the_same_steps() -> None:
    expected = steps(ADAPTERS["torch"])
    assert len(expected) > 30
    for name, text in ADAPTERS.items():
        assert steps(text) == expected, name


def test_every_runtime_hands_the_kernel_structs_that_say_their_version_and_size() -> None:
    """So that a kernel of another release says so there too; tests/kernels/test_interface.py."""
    struct, entry = "adapters__everything_raw", entry_symbol(SIGNATURE, "cpu")
    for name, text in ADAPTERS.items():
        declared, called = re.findall(rf"\b{entry}\(([^)]*)", text)
        assert declared == f"const {struct}*, const opsmith::opsmith_context*", name
        # Both structs are filled in where they are defined, and reach the kernel as they are.
        assert called == "&raw, call.context(", name
        assert f"  {struct} raw{{}};\n" in text, name
        assert "opsmith_head" not in text and "opsmith_context context" not in text, name


class Made(Exception):
    """What a library is made of, of which nothing is compiled here."""


BUILDS: dict[str, Callable[[], Any]] = {
    "torch": lambda: SOURCE.build(),
    "aotinductor": lambda: Plan(SimpleNamespace(signature=SIGNATURE), SOURCE, []).build(),  # type: ignore[arg-type]
    "aotinductor, by the dispatcher": lambda: Plan(
        SimpleNamespace(signature=SIGNATURE),  # type: ignore[arg-type]
        SOURCE,
        [],
        proxy="why",
    ).build(),
    "onnxruntime": lambda: onnxruntime.build(SOURCE),
    "jax": lambda: jax.build(SOURCE),
    "hosted": lambda: hosted.build("everything", [SOURCE], "Python"),
    "harness": lambda: harness.build(SOURCE),
}


@pytest.mark.parametrize("runtime", BUILDS)
def test_the_kernel_that_a_runtime_calls_is_in_the_library_of_its_adapter(
    runtime: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One opsmith compiles both: a kernel of another release is not called by an adapter of this.

    The library binds to its own; tests/kernels/test_interface.py.
    """
    (tmp_path / "pytorchs").write_text("")

    def build(recipe: Recipe) -> Path:
        if runtime.startswith("aotinductor") and recipe.name == "adapters__everything__cpu":
            return tmp_path / "pytorchs"  # its digest is in the name of the shim
        raise Made(recipe.objects, recipe.common.generated.render())

    monkeypatch.setattr(Recipe, "build", build)
    with pytest.raises(Made) as made:
        BUILDS[runtime]()
    (unit, *adapter), files = made.value.args
    for one in adapter:
        files = {**files, **one.generated.render()}
    assert unit.source == SOURCE.path.resolve()
    entry = entry_symbol(SIGNATURE, "cpu")
    assert [name for name, text in files.items() if entry in text and name.endswith(".cpp")]


def test_a_changed_header_of_an_adapter_makes_another_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = []

    def build(recipe: Recipe) -> Path:
        keys.append(recipe.common.generated.key)
        return tmp_path

    monkeypatch.setattr(Recipe, "build", build)
    header = tmp_path / "inner" / "results.h"
    header.parent.mkdir()
    for text in ("// one", "// two", "// one"):
        header.write_text(text)
        adapters.build(
            SOURCE, "hosted", hosted.adapter, title="Python", made_of=[], include=tmp_path
        )
    assert keys[0] == keys[2] != keys[1]


def test_an_argument_of_each_kind_is_the_same_type_in_every_runtime() -> None:
    def taken(text: str) -> set[tuple[str, str]]:
        return set(re.findall(r"Argument<([^>]+)> (arg_\w+)", text))

    assert len(taken(ADAPTERS["torch"])) == len(SIGNATURE.parameters)
    for name, text in ADAPTERS.items():
        assert taken(text) == taken(ADAPTERS["torch"]), name


def test_a_parameter_may_be_called_as_cpp_calls_a_type() -> None:
    (argument,) = [a for a in adapters.arguments_of(SIGNATURE) if a.name == "double"]
    assert argument.member == "double_"
    for text in ADAPTERS.values():
        assert "raw.double_ = arg_double.raw();" in text


def test_only_the_tensors_that_a_kernel_wants_contiguous_are_copied() -> None:
    def copied(signature: Signature, strided: bool | tuple[str, ...]) -> list[str]:
        return [a.name for a in adapters.arguments_of(signature, strided) if a.copied]

    assert copied(SIGNATURE, False) == ["x", "y", "several", "w"]
    assert copied(SIGNATURE, ("x", "several")) == ["y", "w"]
    assert copied(SIGNATURE, True) == []
