"""A definition of FlashInfer-Bench or fi_trace is read as a specification, or refused in words."""

import json
from pathlib import Path

import pytest
import torch

from opsmith.errors import ArgumentError, LoadError
from opsmith.judge import judge
from opsmith.judge.definition import spec_of
from opsmith.sources.importing import import_operators
from opsmith.system.processes.sandbox.policy import unavailable

REFERENCE = """
import torch

def run(x, weight, scale):
    total = x.sum(-1)
    return {"out": x * weight * scale, "total": total}
"""
DEFINITION = {
    "name": "weighted_h8",
    "description": 'Multiply by a "weight".',
    "axes": {
        "batch": {"type": "var"},
        "hidden": {"type": "const", "value": 8},
        "batch_plus_1": {"type": "expr", "expression": "batch + 1"},
    },
    "inputs": {
        "x": {"shape": ["batch", "hidden"], "dtype": "float32"},
        "weight": {"shape": ["hidden"], "dtype": "float32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "out": {"shape": ["batch", "hidden"], "dtype": "float32"},
        "total": {"shape": ["batch"], "dtype": "float32"},
    },
    "reference": REFERENCE,
}

#: As FlashInfer's fi_trace writes it: a function of some name, which takes not all of the inputs.
TRACED = {
    "name": "ragged_h4",
    "axes": {
        "heads": {"type": "const", "value": 4},
        "page_size": {"type": "const", "value": 2},
        "num_pages": {"type": "var"},
        "requests": {"type": "var"},
        "len_indptr": {"type": "var"},
        "tokens": {"type": "var"},
        "half": {"type": "var"},
    },
    "constraints": [
        "len_indptr == requests + 1",
        "tokens == kv_indptr[-1].item()",
        "heads == 2 * half",
        "heads in (4, 8)",
    ],
    "inputs": {
        "cache": {"shape": ["num_pages", "page_size", "heads"], "dtype": "float32"},
        "kv_indptr": {"shape": ["len_indptr"], "dtype": "unknown"},
        "kv_indices": {"shape": ["tokens"], "dtype": "int32"},
        "kv_last_page_len": {"shape": ["requests"], "dtype": "int32"},
        "scale": {"shape": None, "dtype": "float32", "optional": True},
        "return_lse": {"shape": None, "dtype": "int32", "optional": True},
    },
    "outputs": {
        "out": {"shape": ["requests", "half"], "dtype": "float32"},
        "lse": {"shape": ["requests"], "dtype": "float32", "optional": True},
    },
    "reference": """
import torch

def _rows(cache, kv_indices):
    return cache[kv_indices.long()].sum(1)

@torch.no_grad()
def _ragged_reference(cache, kv_indptr, kv_indices, kv_last_page_len, scale=2.0):
    parts = torch.arange(len(kv_last_page_len)).repeat_interleave(kv_indptr.long().diff())
    out = torch.zeros(len(kv_last_page_len), 4).index_add(0, parts, _rows(cache, kv_indices))
    return (scale * out)[:, :2] + kv_last_page_len[:, None]
""",
}


@pytest.fixture
def written(tmp_path):
    """Write a definition that differs from `DEFINITION` in some fields."""

    def write(**changes):
        path = tmp_path / "definition.json"
        path.write_text(json.dumps(DEFINITION | changes))
        return path

    return write


def test_a_definition_declares_an_operator_with_its_reference(written, tmp_path):
    spec = spec_of(written(name="declared_h8"), tmp_path / "out")
    (operator,) = import_operators(str(spec)).operators
    assert operator.name == "flashinfer::declared_h8"
    assert operator.signature.schema() == (
        "declared_h8(Tensor x, Tensor weight, float scale) -> (Tensor, Tensor)"
    )
    x = torch.randn(3, 8)
    out, total = operator(x, torch.ones(8), 2.0)
    assert torch.equal(out, x * 2)
    assert torch.equal(total, x.sum(-1))
    with pytest.raises(Exception, match="8"):
        operator(torch.randn(3, 7), torch.ones(7), 2.0)


def test_what_fi_trace_dumps_is_a_specification_with_the_ranges_of_its_indices(written, tmp_path):
    (operator,) = import_operators(str(spec_of(written(**TRACED), tmp_path / "out"))).operators
    # The reference has a default for scale, takes no return_lse, and returns no lse.
    assert operator.signature.schema() == (
        "ragged_h4(Tensor cache, Tensor kv_indptr, Tensor kv_indices, Tensor kv_last_page_len)"
        " -> Tensor"
    )
    ints = {"dtype": torch.int32}
    right = {
        "cache": torch.ones(3, 2, 4),
        "kv_indptr": torch.tensor([0, 2, 2], **ints),
        "kv_indices": torch.tensor([2, 0], **ints),
        "kv_last_page_len": torch.tensor([1, 2], **ints),
    }
    assert operator(**right).tolist() == [[9, 9], [2, 2]]
    for name, values, said in [
        ("kv_indptr", [0, 2, 1], "argument 'kv_indptr' has value 1 at index 2"),
        ("kv_indptr", [0, 1, 1], "expected 2 (tokens) as the last value"),
        ("kv_indptr", [0, 2], "dimension 0 (requests+1) is 2, expected 3"),
        ("kv_indices", [3, 0], "expected 0 <= value < 3 (num_pages)"),
        ("kv_last_page_len", [0, 1], "argument 'kv_last_page_len' has value 0 at index 0"),
        ("kv_last_page_len", [1, 3], "argument 'kv_last_page_len' has value 3 at index 1"),
    ]:
        with pytest.raises(ArgumentError) as raised:
            operator(**right | {name: torch.tensor(values, **ints)})
        assert said in str(raised.value), name


@pytest.mark.slow
def test_each_definition_of_a_folder_is_for_the_candidate_of_its_name(cli, tmp_path):
    definitions, candidates = tmp_path / "definitions", tmp_path / "candidates"
    for folder in (definitions, candidates):
        folder.mkdir()
    for name, body in (("first_h8", "x * weight * scale, x.sum(-1)"), ("next_h8", "x, x.sum(-1)")):
        (definitions / f"{name}.json").write_text(json.dumps(DEFINITION | {"name": name}))
        (candidates / f"{name}.py").write_text(
            f"from {name} import {name}\n@{name}.register_kernel('cpu')\n"
            f"def kernel(x, weight, scale):\n    return {body}\n"
        )
    options = ["--seed=0", "--examples=4", "--first"]
    options += ["--trust-candidate"] if unavailable() else []
    done = cli("judge", definitions, "--candidates", candidates, *options)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = {Path(line["candidate"]).stem: line["outcome"] for line in lines}
    assert outcomes == {"first_h8": "accepted", "next_h8": "refused"}
    assert done.code == 1
    (definitions / "next_h8.json").unlink()
    lost = cli("judge", definitions, "--candidates", candidates, *options)
    assert lost.code == 2
    assert f"no such file: {definitions / 'next_h8.json'}" in lost.stderr
    alone = cli("judge", definitions, "--candidate", candidates / "first_h8.py")
    assert alone.code == 2
    assert "is a folder: name that of the candidates by --candidates" in alone.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reference": "x = ("}, "reference: not Python: "),
        ({"reference": "go = None"}, "reference: expected a function run, got "),
        ({"reference": "def go(): pass"}, "reference: expected go(x, weight, scale), got []"),
        ({"reference": "def run(x): pass"}, "expected run(x, weight, scale), got ["),
        ({"reference": 3}, "reference: expected Python source, got 3"),
        ({"name": "a-b"}, 'name: expected a name that is a Python identifier, got "a-b"'),
        ({"axes": []}, "axes: expected an object, got []"),
        ({"axes": {"batch": {"type": "var"}, "hidden": {"type": "const"}}}, "axes.hidden: "),
        ({"axes": {"batch": {"type": "var"}}}, "inputs.x.shape: expected axes among batch, got "),
        ({"inputs": {"x": {"shape": [], "dtype": "float9"}}}, "inputs.x.dtype: expected one of "),
        ({"inputs": {"x": {"shape": 4, "dtype": "int8"}}}, "inputs.x.shape: expected a list of "),
        ({"outputs": {}}, "outputs: expected at least one output, got {}"),
        ({"outputs": {"y": {"shape": None, "dtype": "int8"}}}, "outputs.y.shape: expected a list"),
    ],
)
def test_what_is_no_definition_is_refused_with_the_part(written, tmp_path, changes, said):
    path = written(**changes)
    with pytest.raises(LoadError) as raised:
        spec_of(path, tmp_path / "out")
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)


@pytest.mark.parametrize("text", ["", "[", "[1]", '"a"', "\x00"])
def test_a_file_that_is_not_json_is_refused(tmp_path, text):
    path = tmp_path / "definition.json"
    path.write_text(text)
    with pytest.raises(LoadError, match=r"not a definition|expected an object"):
        spec_of(path, tmp_path / "out")


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "accepted"),
    [
        ("x * weight * scale, x.sum(-1)", True),
        ("torch.zeros_like(x), x.new_zeros(x.shape[0])", False),
    ],
)
def test_a_candidate_is_judged_against_a_definition(written, tmp_path, body, accepted):
    candidate = tmp_path / "kernels.py"
    candidate.write_text(
        "import torch\nfrom weighted_h8 import weighted_h8\n"
        "@weighted_h8.register_kernel('cpu')\n"
        f"def kernel(x, weight, scale):\n    return {body}\n"
    )
    definition = written()
    verdict = judge(definition, candidate, seed=0, examples=8, trust_candidate=True)
    assert verdict.accepted == accepted, verdict.report.explain()
    assert str(definition.resolve()) in verdict.digests
    assert {row.operator for row in verdict.report.rows} == {"flashinfer::weighted_h8"}


@pytest.mark.slow
def test_a_specification_without_a_case_refuses_nobody(cli, tmp_path):
    (tmp_path / "refusing.py").write_text(
        # One bool has the fewest kinds of values to be drawn in vain.
        "import opsmith\nfrom jaxtyping import Bool\nfrom torch import Tensor\n\n\n"
        "@opsmith.op('judged::refusing')\n"
        "def refusing(x: Bool[Tensor, '']) -> Bool[Tensor, '']:\n"
        "    raise ValueError('x is never right')\n"
    )
    (tmp_path / "kernels.py").write_text(
        "from refusing import refusing\n\n\n"
        "@refusing.register_kernel('cpu')\ndef kernel(x):\n    return x\n"
    )
    # Every sample is refused, and drawing them ends after this time at the latest.
    options = ["--json", "--examples=2", "--seconds=1"]
    options += ["--trust-candidate"] if unavailable() else []
    done = cli("judge", tmp_path / "refusing.py", "--candidate", tmp_path / "kernels.py", *options)
    assert done.code == 5
    row = json.loads(done.stdout)["rows"][0]
    assert (row["check"], row["status"]) == ("reference", "not run")
    assert "the reference refuses every sampled case, the last with: ValueError" in row["message"]
