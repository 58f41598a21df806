"""Define how `opsmith check` runs operators in ONNX Runtime: each form, by both exporters."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.compat.torch_pytree import tree_leaves
from opsmith.errors import CheckError
from opsmith.kernels import HOST
from opsmith.kernels.libraries.loaded_library import calls_in
from opsmith.operators import Operator
from opsmith.operators.core.arguments import dtype_name
from opsmith.operators.core.onnx_choice import latest, translations
from opsmith.operators.core.operator import Kernel
from opsmith.signature.dtypes import COMPLEX
from opsmith.targets.exporting.conformance import DirectProof, ModelProof
from opsmith.targets.exporting.operator_export import left_out
from opsmith.targets.exporting.protocol import Route
from opsmith.targets.onnx.node import DOMAIN_VERSION, ELEMENT_TYPES, NodeLayout
from opsmith.targets.onnxruntime.providers import PROVIDERS, open_session
from opsmith.targets.onnxruntime.session import as_runtime_errors, from_ort, silent_options, to_ort

_FORMS = {
    "standard": "as register_onnx says",
    "library": "with the library",
    "inline": "with the reference inlined",
}
_EXPORTERS = {"dynamo": "torch.onnx", "torchscript": "its TorchScript exporter"}
_LACKS = frozenset(COMPLEX)
#: ONNX Runtime computes the sigmoid as a quotient of polynomials; its error is up to 1.4 units in
#: the last place of 1 (measured with ONNX Runtime 1.31 on a CPU).
_BESIDE_ONE = {"aten::sigmoid": 1.4}
#: The nodes `Elu`, `Celu` and `Selu` subtract 1 from the exponential.
_OF_NODES = {**_BESIDE_ONE, "aten::expm1": 1.0, "aten::elu": 1.0}
#: Names in ``opsmith bench`` by form and exporter. Only one exporter is timed for each form, since
#: both write equally fast models.
_TIMED = {
    ("library", "dynamo"): "onnxruntime",
    ("standard", "dynamo"): "onnxruntime, standard operators",
}


def _opened(operator: Operator) -> Callable[[Mapping[str, Any]], list[Tensor]]:
    from opsmith.targets.onnxruntime import library

    signature = operator.signature

    def run(arguments: Mapping[str, Any]) -> list[Tensor]:
        tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
        device = tensors[0].device if tensors else torch.device(HOST)
        path = library.build(library.kernel_of(operator, device.type))
        loaded = ctypes.CDLL(str(path))
        before = calls_in(loaded, signature, device.type)
        results = SingleNode(operator, path, device.type, arguments)(arguments)
        if calls_in(loaded, signature, device.type) == before:
            raise CheckError("did not run the kernel")
        return [result.to(device) for result in results]

    return run


def _no_library(operator: Operator, kernel: Kernel) -> str | None:
    from opsmith.targets.onnx.forms import written_list

    if kernel.device not in ("reference", *PROVIDERS):
        return f"ONNX Runtime runs no kernels for {kernel.device} here"
    problem = written_list(operator)
    if problem:
        return problem
    if kernel.entry is None:
        python = kernel.source is None
        return "the kernel is Python" if python else "the kernel is written against PyTorch"
    return None if kernel.device == HOST else PROVIDERS[kernel.device].missing() or None


def _proof(form: str, exporter: str) -> ModelProof:
    suffix = "" if exporter == "dynamo" else f"-{exporter}"

    def obstacle(operator: Operator, kernel: Kernel) -> str | None:
        if kernel.device not in (HOST, "reference"):
            return "models are exported for the CPU here"
        if form == "library":
            return _no_library(operator, kernel)
        if form == "inline":
            return None
        if not translations(operator):
            return "register_onnx was not called"
        first, last = _first_opset(operator), _writer(exporter).OPSETS[1]
        if first > last:
            return f"its standard form needs opset {first}, and the exporter writes up to {last}"
        return None

    def options(operator: Operator) -> Mapping[str, Any]:
        found: dict[str, Any] = {"form": {operator.name: form}, "exporter": exporter}
        if form == "standard":
            found["opset"] = _opset(operator, exporter)
        return found

    def about(operator: Operator) -> str:
        if form == "inline":
            return f"reference: {operator.kernels['reference'].where}"
        return _translation(operator, exporter)

    def remark(operator: Operator, kernel: Kernel) -> str:
        del operator
        return left_out(kernel) if form == "inline" else ""

    return ModelProof(
        name=f"onnx-{form}{suffix}",
        summary=f"a model exported by {_EXPORTERS[exporter]} {_FORMS[form]} runs in ONNX Runtime",
        what="the exported model",
        obstacle=obstacle,
        options=options,
        about=Route.about if form == "library" else about,
        remark=remark,
        functional=True,
        # If ONNX lacks an operator, or inlining fixes a size, the author is not at fault.
        may_refuse=form == "inline",
        # Attributes of ONNX's operators may depend on sizes.
        may_fix=form in ("standard", "inline"),
        lacks=_LACKS,
        timed=_TIMED.get((form, exporter), ""),
        beside_one={"inline": _BESIDE_ONE, "standard": _OF_NODES}.get(form, {}),
    )


def _writer(exporter: str) -> Any:
    from opsmith.targets.onnx import dynamo, torchscript

    return torchscript if exporter == "torchscript" else dynamo


def _opset(operator: Operator, exporter: str) -> int:
    """Return the exporter's default opset, or a later one if the standard form requires it."""
    return max(_first_opset(operator), int(_writer(exporter).DEFAULT_OPSET))


def _translation(operator: Operator, exporter: str) -> str:
    taken = latest(operator, _opset(operator, exporter))
    assert taken is not None, "the route has an obstacle without one"
    return f"ONNX translation: {taken.where}"


def _first_opset(operator: Operator) -> int:
    return min(translation.opset for translation in translations(operator))


PROOFS: tuple[Route, ...] = (
    DirectProof(
        name="onnxruntime",
        summary="the library for ONNX Runtime gives right results",
        what="ONNX Runtime",
        opened=_opened,
        obstacle=_no_library,
        lacks=_LACKS,
    ),
    *(_proof(form, exporter) for form in _FORMS for exporter in _EXPORTERS),
)


class SingleNode:
    """A session whose model is one call of an operator, with fixed attributes.

    Args:
        library: path of its library for ONNX Runtime.
        device: the device type of the library's kernel.
        arguments: arguments by name; those that are not tensors become the fixed attributes.
    """

    def __init__(
        self, operator: Operator, library: Path, device: str, arguments: Mapping[str, Any]
    ) -> None:
        from onnx import helper

        signature = operator.signature
        self._layout = NodeLayout(signature)
        inputs = self._layout.inputs(arguments)
        self._names = ["" if value is None else f"input_{i}" for i, value in enumerate(inputs)]
        # An argument that is absent has no new contents.
        absent = [arguments[parameter.name] is None for parameter in signature.mutated]
        absent = [False] * len(signature.results) + absent
        outputs = ["" if no_value else f"output_{i}" for i, no_value in enumerate(absent)]
        self._outputs = [name for name in outputs if name]
        node = helper.make_node(signature.name, self._names, outputs, domain=signature.namespace)
        for name, value in self._layout.attribute_values(arguments).items():
            kind = helper.AttributeProto.INTS if value == [] else None
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
        graph = helper.make_graph(
            [node],
            signature.name,
            [
                helper.make_tensor_value_info(
                    name, ELEMENT_TYPES[dtype_name(value.dtype)], [None] * value.dim()
                )
                for name, value in zip(self._names, inputs, strict=True)
                if name
            ],
            # The library's own shape inference determines the outputs' types.
            [helper.make_empty_tensor_value_info(name) for name in self._outputs],
        )
        domains = [
            helper.make_opsetid("", 18),
            helper.make_opsetid(signature.namespace, DOMAIN_VERSION),
        ]
        model = helper.make_model(graph, opset_imports=domains, ir_version=9)
        options = silent_options()
        options.register_custom_ops_library(str(library))
        names = [PROVIDERS[device].name]
        self._session = open_session(model.SerializeToString(), options, names)

    def __call__(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """Run the node; return the results, then the new contents of mutated arguments."""
        inputs = self._layout.inputs(arguments)
        feeds = {
            name: to_ort(value.contiguous())
            for name, value in zip(self._names, inputs, strict=True)
            if name
        }
        with as_runtime_errors():
            found = self._session.run_with_ort_values(self._outputs, feeds)
        return [from_ort(value) for value in found]
