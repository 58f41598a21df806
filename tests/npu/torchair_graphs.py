"""Compile models by TorchAir's own Python, with the converters of an export, and print the graphs.

`op_plugin.py` runs this in a process of its own: ``torchair_graphs.py FOLDER EXPORT``, where FOLDER
holds ``torchair`` of torch_npu's wheel. Its compiled part, which needs CANN, is a stand-in here,
which knows every type and prints each operator of a graph that it is given: nothing runs.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

#: The operators that are printed, without those that TorchAir itself adds.
OURS = ("Scaled", "Mixed", "Joined", "Moved")


class Names(type):
    """A class that has every enumerator."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class Compiled(ModuleType):
    """The compiled part of TorchAir as far as models are compiled."""

    def __init__(self) -> None:
        super().__init__("torchair.core._torchair")
        self.TorchDataType = Names("TorchDataType", (), {})
        self.TorchNpuGraphBase = Graph

    def get_registered_ir_def(self, op_type: str) -> tuple[str, list[Any], list[Any], list[Any]]:
        return "SUCCESS", [], [], []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args: None


class Graph:
    def __init__(self, name: str) -> None: ...

    def load(self, text: bytes, *rest: object) -> None:
        from torchair._ge_concrete_graph.ge_ir_pb2 import ModelDef

        model = ModelDef()
        model.ParseFromString(text)
        for op in (op for graph in model.graph for op in graph.op):
            if op.type not in OURS:
                continue
            told = {
                "type": op.type,
                "inputs": [desc.name for desc in op.input_desc],
                "outputs": [desc.name for desc in op.output_desc],
                "attributes": {
                    name: value_of(value)
                    for name, value in sorted(op.attr.items())
                    if not name.startswith("_")
                },
            }
            print(json.dumps(told))

    def set_hint_shape(self, *shapes: object) -> None: ...

    def compile(self) -> None: ...

    def run(self, *args: object) -> None:
        raise NotRunError


def value_of(attribute: Any) -> Any:
    """The value of an attribute of an operator in a graph: a number, a text or a list."""
    kind = attribute.WhichOneof("value")
    value = getattr(attribute, kind)
    if kind == "list":
        return [*value.i, *value.f, *value.b]
    return value.decode() if isinstance(value, bytes) else value


class NotRunError(RuntimeError):
    """Raised where an NPU would run the graph."""


def main(folder: str, export: str) -> None:
    sys.path[:0] = [folder, str(Path(__file__).parents[1] / "targets" / "op_plugin")]
    compiled = Compiled()
    sys.modules[compiled.__name__] = compiled
    import op_plugin_operators as ops
    import torchair

    runpy.run_path(str(Path(export) / "converters.py"))
    config = torchair.CompilerConfig()
    config.mode = "max-autotune"
    backend = torchair.get_npu_backend(compiler_config=config)
    x, weight = torch.ones(3, 4), torch.ones(4)
    for model, arguments in (
        (lambda x, weight: ops.scaled(x, weight, 0.5).relu(), (x, weight)),
        (lambda x: ops.mixed(2, x, None, (3, 5), [7], mode="mean"), (x,)),
        (lambda x, y, z, n: ops.joined([x, y], z, n), (x, x + 1, torch.ones(9), torch.arange(2))),
        (lambda state, x: (ops.moved(state, x, 0.25), state), (weight, weight + 1)),
    ):
        try:
            torch.compile(model, backend=backend, fullgraph=True)(*arguments)
        except NotRunError:
            continue


if __name__ == "__main__":
    main(*sys.argv[1:])
