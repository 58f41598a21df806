"""An operator that knows nothing of opsmith gets the declaration of a spec."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.errors import DeclarationError, LoadError
from opsmith.operators.adoption.adopted import AdoptedOperator, Specification, find_adopted
from opsmith.sources.spec_file import is_name, specified, take


@torch.library.custom_op("specified_foreign::clip", mutates_args=())
def clip(x: Tensor, low: float) -> Tensor:
    return x.clamp(min=low)


@torch.library.custom_op("specified_foreign::keep", mutates_args=())
def keep(x: Tensor, low: float) -> Tensor:
    return x.clamp(min=low)


SPEC = """
import opsmith
import torch
from jaxtyping import Float
from torch import Tensor

def floor_at(x: Float[Tensor, "*n"], low: float) -> Float[Tensor, "*n"]:
    return torch.where(x < low, low, x).to(x.dtype)

clip = opsmith.op("specified_spec::clip", floor_at)
other = opsmith.op("specified_spec::other", floor_at)

@clip.register_cases
def cases(dtype, seed):
    yield {"x": torch.zeros(3, dtype=dtype), "low": 1.0}

@clip.register_cost
def cost(x, itemsize):
    return opsmith.Cost(bytes=2 * x.numel() * itemsize)
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file that declares two operators, one of them ``clip``."""
    path = tmp_path_factory.mktemp("spec") / "specified_spec.py"
    path.write_text(SPEC)
    return str(path)


def test_a_name_is_told_from_a_file_or_a_module() -> None:
    assert is_name("torchvision::nms")
    assert is_name("aten::add.Tensor")
    assert not is_name("ops/nms.py")
    assert not is_name("my_package.ops")


def test_an_operator_has_all_that_the_spec_says_of_its_namesake(spec: str) -> None:
    operator = specified("specified_foreign::clip", spec)
    assert isinstance(operator, AdoptedOperator)
    assert operator.name == "specified_foreign::clip"
    assert operator.overload is torch.ops.specified_foreign.clip.default
    assert operator.specification == Specification(
        "specified_foreign::clip", "specified_spec::clip", ()
    )
    assert find_adopted(operator.overload) is operator
    assert operator.reference(torch.zeros(2), 1.5).tolist() == [1.5, 1.5]
    (function,) = operator.cases
    assert [case["low"] for case in function(torch.float32, 0)] == [1.0]
    assert operator.cost is not None
    found = operator.cost({"x": torch.zeros(4), "low": 0.0})
    assert found == opsmith.Cost(bytes=32)
    # Another process does the same by the specification alone.
    assert take(operator.specification).specification == operator.specification


def test_a_spec_without_a_namesake_says_what_it_declares(spec: str) -> None:
    with pytest.raises(LoadError) as caught:
        specified("specified_foreign::keep", spec)
    assert str(caught.value) == (
        f"{spec} has no declaration for specified_foreign::keep: it declares "
        "specified_spec::clip, specified_spec::other. Call one of them 'keep', or adopt the "
        'operator there: @opsmith.adopt("specified_foreign::keep")'
    )


def test_the_only_operator_of_a_spec_needs_no_name_in_common(tmp_path: Path) -> None:
    path = tmp_path / "only.py"
    path.write_text(SPEC.replace("clip", "only").replace("\nother", "\n# other"))
    operator = specified("specified_foreign::keep", str(path))
    assert operator.specification is not None
    assert operator.specification.declared == "specified_spec::only"


def test_a_spec_may_adopt_the_operator_itself(tmp_path: Path) -> None:
    path = tmp_path / "adopts.py"
    path.write_text(
        SPEC.partition("clip =")[0] + '\nopsmith.adopt("specified_foreign::clip", floor_at)\n'
    )
    operator = specified("specified_foreign::clip", str(path))
    assert operator.specification == Specification("specified_foreign::clip", "", ())
    assert take(operator.specification) is operator


def test_what_is_missing_is_said_with_how_to_import_it(spec: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        specified("specified_nowhere::clip", spec)
    assert str(caught.value) == (
        "specified_nowhere::clip: PyTorch has no such operator. Import the package that defines "
        "it first. No package specified_nowhere is installed here. (--import MODULE)"
    )
    package = tmp_path / "specified_late.py"
    package.write_text(
        "import torch\nfrom torch import Tensor\n"
        '@torch.library.custom_op("specified_late::clip", mutates_args=())\n'
        "def clip(x: Tensor, low: float) -> Tensor:\n    return x.clamp(min=low)\n"
    )
    operator = specified("specified_late::clip", spec, [str(package)])
    assert operator.specification is not None
    ((module, named),) = operator.specification.modules
    assert named == str(package)
    assert module.startswith("specified_late")


def test_a_package_of_the_namespace_is_imported_unasked(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specified_package.py").write_text(
        "import torch\nfrom torch import Tensor\n"
        '@torch.library.custom_op("specified_package::clip", mutates_args=())\n'
        "def clip(x: Tensor, low: float) -> Tensor:\n    return x.clamp(min=low)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    operator = specified("specified_package::clip", spec)
    assert operator.specification is not None
    assert operator.specification.modules == (("specified_package", "specified_package"),)


def test_what_was_not_declared_in_this_process_cannot_be_taken() -> None:
    for declared in ("specified_spec::never", ""):
        with pytest.raises(LoadError, match=r"^aten::sinc is not declared$"):
            take(Specification("aten::sinc", declared))


def test_a_declaration_of_other_parameters_shows_both(tmp_path: Path) -> None:
    path = tmp_path / "otherwise.py"
    path.write_text(SPEC.replace("low: float", "low: int").replace("specified_spec", "otherwise"))
    with pytest.raises(DeclarationError) as caught:
        specified("specified_foreign::clip", str(path))
    assert str(caught.value) == (
        "specified_foreign::clip: the declaration differs from the operator.\n"
        "  declared: specified_foreign::clip(Tensor x, SymInt low) -> Tensor\n"
        "  operator: specified_foreign::clip(Tensor x, float low) -> Tensor\n"
        "  argument 'low' is float, declared as int"
    )
