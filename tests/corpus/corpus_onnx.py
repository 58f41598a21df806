"""Take cases and references from ONNX's own backend tests, for operators that are a standard node.

Each of these tests is a model of one node, with inputs and right results. An overload of PyTorch
stands for a node of the same name and without attributes if it takes tensors alone, and gives the
right results in each test whose inputs it takes. Its reference is ONNX's evaluator, in NumPy.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import corpus_suite
import numpy
import torch
from corpus_suite import stem_of

from opsmith.operators.adoption.adopt import overload_of

#: PyTorch's names of nodes, where they are others than the node's own in small letters.
_NAMES = {
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Max": "maximum",
    "Min": "minimum",
    "And": "logical_and",
    "Not": "logical_not",
    "Or": "logical_or",
    "Xor": "logical_xor",
    "Sign": "sgn",
    "Det": "linalg_det",
}


def _index() -> Path:
    return corpus_suite.FOLDER / "onnx.json"


def model_of(name: str) -> Path:
    """Return the file of the node that an overload stands for."""
    return corpus_suite.DRAFTS / f"onnx_{stem_of(name)}.onnx"


def names_of() -> list[str]:
    """Return the overloads that stand for a node; none before `collect`."""
    return json.loads(_index().read_text()) if _index().is_file() else []


def collect() -> list[str]:
    """Write the node and the inputs of the tests for each overload that stands for a node."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some results of the tests overflow
        tests = [one for one in collect_testcases(None) if _is_plain(one)]
    found = []
    for name in corpus_suite.here():
        overload = overload_of(name)
        if not _takes_tensors_alone(overload):
            continue
        own = [one for one in tests if _named(one.model.graph.node[0].op_type) == _short(name)]
        taken = list(_taken(overload, own))
        inputs = [one for _, one in taken]
        if inputs and all(map(bool, inputs)):
            model_of(name).write_bytes(taken[0][0].model.SerializeToString())
            torch.save([(tuple(one), {}) for one in inputs], model_of(name).with_suffix(".pt"))
            found.append(name)
    _index().write_text(json.dumps(sorted(found)))
    return sorted(found)


def _is_plain(test: Any) -> bool:
    node, *more = test.model.graph.node
    return not more and not node.attribute and len(node.output) == 1 and bool(test.data_sets)


def _takes_tensors_alone(overload: Any) -> bool:
    return all(str(one.type) == "Tensor" for one in overload._schema.arguments)


def _named(node: str) -> str:
    return _NAMES.get(node, node.lower())


def _short(name: str) -> str:
    return name.partition("::")[2].partition(".")[0]


def _taken(overload: Any, tests: Sequence[Any]) -> Iterator[tuple[Any, list[torch.Tensor]]]:
    """Yield the tests whose inputs an overload takes, with them; without if it fails the test."""
    for test in tests:
        for given, (wanted,) in test.data_sets:
            try:
                inputs = [_tensor(one) for one in given]
                gave = overload(*inputs)
            except Exception:  # another number of inputs, strings, a dtype that PyTorch has not
                continue
            right = _tensor(wanted)
            close = gave.shape == right.shape and torch.allclose(
                gave.double(), right.double(), rtol=1e-3, atol=1e-6, equal_nan=True
            )
            yield test, inputs if close else []


def _tensor(value: Any) -> torch.Tensor:
    return torch.from_numpy(numpy.array(value))


def evaluator(name: str) -> Callable[[Sequence[Any]], Any]:
    """Return a function that computes the node's result from NumPy's arrays."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(str(model_of(name)))
    names = [one.name for one in model.graph.input]
    node = ReferenceEvaluator(model)
    return lambda arrays: node.run(None, dict(zip(names, arrays, strict=True)))[0]
