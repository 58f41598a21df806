"""Name what to install where tvm-ffi is missing, and keep the target unknown to all else."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import ort_operators as operators
import pytest

import opsmith
from opsmith.targets import get_target
from opsmith.targets.tvm_ffi.proofs import PROOFS

TARGETS = Path(opsmith.__file__).parent / "targets"


def test_no_other_file_names_the_target() -> None:
    own = TARGETS / "tvm_ffi"
    texts = {
        path: path.read_text(errors="replace")
        for path in TARGETS.parent.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and own not in path.parents
    }
    assert len(texts) > 400
    # Kernels that come as such modules know tvm-ffi, and nothing of the target.
    named = re.compile(r"targets[./]tvm_ffi|TvmFfiTarget|tvm_ffi_(torch|jax)")
    assert not [path for path, text in texts.items() if named.search(text)]
    known = re.compile(r"tvm.ffi", re.IGNORECASE)
    assert not [
        path for path, text in texts.items() if TARGETS in path.parents and known.search(text)
    ]


def test_where_the_runtime_is_missing_the_target_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if "tvm_ffi" in name else find(name)
    )
    assert get_target("tvm_ffi").available() == (
        'tvm_ffi is not installed. Get it: pip install "opsmith[tvm-ffi]"'
    )


def test_an_operator_that_the_module_cannot_call_is_refused(tmp_path) -> None:
    pytest.importorskip("tvm_ffi")
    with pytest.raises(opsmith.ExportError) as caught:
        opsmith.export(operators.python_only, target="tvm_ffi", out=tmp_path / "dist")
    assert str(caught.value) == (
        "ort_test::python_only: tvm-ffi calls a C++ kernel, and the operator has none for the CPU. "
        'Add one: python_only.register_kernel("cpu", source="python_only.cpp").'
    )


@pytest.mark.parametrize(
    "operator",
    [operators.accumulate, operators.positive_rows, operators.weighted_sum, operators.everything],
)
def test_the_row_of_jax_says_what_jax_does_not_pass(operator) -> None:
    (row,) = [route for route in PROOFS if route.name == "tvm_ffi_jax"]
    why = row.obstacle(operator, operator.kernels["cpu"])
    assert why is not None
    assert why.startswith("jax-tvm-ffi passes arrays, of which none is written, then numbers and t")
