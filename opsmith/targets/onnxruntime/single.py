"""Call one operator in ONNX Runtime, without an exporter: a model of one node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.core.arguments import dtype_name
from opsmith.targets.onnx.node import DOMAIN_VERSION, ELEMENT_TYPES, NodeLayout
from opsmith.targets.onnxruntime.providers import PROVIDERS, open_session
from opsmith.targets.onnxruntime.session import (
    as_runtime_errors,
    from_ort,
    silent_options,
    to_ort,
)


class SingleNode:
    """A session whose model is one call of an operator, with fixed attributes.

    Args:
        operator: the operator to call.
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
