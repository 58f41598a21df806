"""Export with the TorchScript exporter, which traces the module again and cannot use a program.

While it traces, calls of inlined operators are redirected to their references, and calls of
mutating operators to their functional twins. Functions that are registered temporarily write the
nodes of the remaining operators.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from opsmith.compat import torch_onnx, torch_pytree as pytree
from opsmith.compat.torch_autograd import is_view
from opsmith.compat.torch_ops import OpOverload, overload_schema
from opsmith.errors import ExportError, FormError
from opsmith.operators import Operator
from opsmith.operators.adoption.adopt import functions_call_operators
from opsmith.operators.core.arguments import DTYPES, dtype_name, generic_dtype
from opsmith.signature import Parameter, TensorType
from opsmith.system.scratch import scratch_folder
from opsmith.targets.exporting.lowering.choice import Choice, call_arguments
from opsmith.targets.exporting.lowering.functional import (
    call_twin,
    decode,
    encode,
    is_encoded,
    twin,
)
from opsmith.targets.exporting.lowering.inlining import Lowered
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.tracing import kept_sizes
from opsmith.targets.onnx.dynamo import quietly, refusal, typed_attributes
from opsmith.targets.onnx.emitter import Attributes, Emitter, in_order, translate
from opsmith.targets.onnx.exporter_patches import PATCHES
from opsmith.targets.onnx.node import DOMAIN_VERSION, NodeLayout
from opsmith.targets.onnx.size_inference import infer, result_sizes

DEFAULT_OPSET = 20
OPSETS = (9, 20)

_SUFFIXES = {"INT": "i", "FLOAT": "f", "STRING": "s", "TENSOR": "t"}


def knows(overload: OpOverload) -> bool:
    """Return whether the exporter itself can translate `overload`."""
    return torch_onnx.exports_by_torchscript(overload_schema(overload).name, OPSETS[1])


def export(model: Model, lowered: Lowered, opset: int) -> Any:
    """Trace and translate, and return the ``onnx_ir.Model``.

    Raises:
        ExportError: the exporter cannot trace or translate something; the message is the
            exporter's.
    """
    import onnx_ir
    from onnx_ir.passes.common import LiftConstantsToInitializersPass

    module = _Flat(model)
    inputs = tuple(value.clone() for value in model.flatten(model.args, model.kwargs))
    specs = (*model.inputs, *model.outputs)
    axes = {
        spec.name: {axis: size for axis, size in enumerate(spec.shape) if isinstance(size, str)}
        for spec in specs
    }
    nodes = {c.operator.signature.namespace for c in lowered.kept if c.form == "library"}
    domains = dict.fromkeys(nodes, DOMAIN_VERSION)
    problems: list[ExportError] = []
    with (
        scratch_folder("onnx") as folder,
        quietly(),
        _registered(lowered.kept, opset, problems),
        _Substitution(model, lowered),
        functions_call_operators(),
        torch.no_grad(),
    ):
        path = folder / "model.onnx"
        try:
            torch.onnx.export(
                module,
                inputs,
                str(path),
                dynamo=False,
                opset_version=opset,
                input_names=[spec.name for spec in model.inputs],
                output_names=[spec.name for spec in model.outputs],
                dynamic_axes={name: sizes for name, sizes in axes.items() if sizes},
                custom_opsets=domains,
            )
        except Exception as error:
            # An exception of opsmith's functions passes through C++, which changes its type.
            raise (problems[0] if problems else refusal(error)) from error
        loaded = onnx_ir.load(path)
        # Read the weights that lie beside the file before the folder is removed.
        for value in loaded.graph.initializers.values():
            if value.const_value is not None:
                value.const_value = onnx_ir.tensor(value.const_value.numpy(), name=value.name)
        # A program's weights were traced as constants; only initializers can be written to a
        # separate file.
        LiftConstantsToInitializersPass()(loaded)
    return loaded


class _Flat(nn.Module):
    """Wraps the model so that arguments and results are tensors only, in the manifest's order."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        module = model.module
        self.module = model.program.module() if module is None else module

    def train(self, mode: bool = True) -> _Flat:
        # The exporter sets the mode, which the module of an ExportedProgram refuses.
        self.training = mode
        return self

    def forward(self, *inputs: Tensor) -> Any:
        args, kwargs = self.model.unflatten(inputs)
        leaves = pytree.tree_leaves(self.module(*args, **kwargs))
        found = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
        return found[0] if len(found) == 1 else found


class _Substitution(TorchFunctionMode):
    """Redirects calls of custom operators according to their forms."""

    def __init__(self, model: Model, lowered: Lowered) -> None:
        super().__init__()
        self._functions: dict[Any, Callable[..., Any]] = {}
        self._inlined: set[Any] = set()
        calls = model.operators(adopted=True)
        for choice, _ in lowered.choices:
            operator = choice.operator
            function: Callable[..., Any] = operator.reference
            if choice.form == "inline":
                _require_visible(operator)
                self._inlined |= {operator.overload, operator.overload.overloadpacket}
            else:
                function = _kept(operator)
            substitute = _with_constants(operator, function, calls.get(operator, []))
            if choice.form == "inline":
                substitute = _refusing_values(operator, substitute)
            # torch.ops.ns.name(...) appears as the packet, an Operator's call as the overload.
            for called in (operator.overload, operator.overload.overloadpacket):
                self._functions[called] = substitute

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        substitute = self._functions.get(func)
        if substitute is None:
            return func(*args, **(kwargs or {}))
        # A reference may call further operators; the substitute of a kept operator calls the
        # operator itself.
        with self if func in self._inlined else contextlib.nullcontext():
            return substitute(*args, **(kwargs or {}))


_READ = ("Converting a tensor to a Python list", "Converting a tensor to a Python number")


def _refusing_values(operator: Operator, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` to refuse a trace that would make the example's values part of the model."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught, kept_sizes():
            warnings.simplefilter("always", torch.jit.TracerWarning)
            returned = function(*args, **kwargs)
        for warning in caught:
            if str(warning.message).startswith(_READ):
                raise FormError(
                    operator.name,
                    "its reference reads values of a tensor (.tolist(), "
                    ".item()), which tracing would fix to the example's. Write it without these, "
                    "or use the library form.",
                )
        return returned

    return run


def _require_visible(operator: Operator) -> None:
    """Refuse to inline PyTorch's own operators, whose calls cannot be replaced in a trace."""
    if operator.signature.namespace == "aten":
        raise FormError(
            operator.name,
            "the TorchScript exporter cannot inline PyTorch's own operators. Say "
            'how ONNX computes it (register_onnx), or export with exporter="dynamo".',
        )


def _traced(operator: Operator) -> OpOverload:
    """Return the traced overload of a kept operator: its own, or its twin if tracing needs that."""
    signature = operator.signature
    if signature.mutated or any(is_encoded(parameter) for parameter in signature.parameters):
        return twin(operator, traced=True)
    return operator.overload


def _kept(operator: Operator) -> Callable[..., Any]:
    traced = _traced(operator)
    if traced is operator.overload:
        return operator.overload

    def run(*args: Any, **kwargs: Any) -> Any:
        return call_twin(operator, traced, encode(operator, operator.arguments(args, kwargs)))

    return run


def _refuse_views(operator: Operator, arguments: Mapping[str, Any]) -> None:
    """Refuse to write into part of a tensor: this exporter would silently omit the write."""
    for parameter in operator.signature.mutated:
        value = arguments[parameter.name]
        if isinstance(value, Tensor) and is_view(value):
            raise FormError(
                operator.name,
                f"writes into {parameter.name!r}, which is a view of another "
                "tensor (a slice, perhaps), and the TorchScript exporter loses such writes. Pass a "
                'tensor of its own, or export with exporter="dynamo".',
            )


def _with_constants(
    operator: Operator, function: Callable[..., Any], nodes: Sequence[Any]
) -> Callable[..., Any]:
    """Wrap `function` to turn sizes, which tracing made tensors, back into numbers.

    Args:
        nodes: the calls of the program, which tell which numbers are constants.
    """
    names = [p.name for p in operator.signature.parameters if p.is_scalar or p.is_sequence]
    calls = [call_arguments(operator, node) for node in nodes]
    number = bool | int | float | str

    def in_all(name: str, kind: Any, every: Callable[[Iterable[bool]], bool]) -> bool:
        found = (every(isinstance(item, kind) for item in _items(call[name])) for call in calls)
        return bool(calls) and all(found)

    fixed = [name for name in names if in_all(name, number | None, all)]
    computed = [name for name in names if in_all(name, torch.fx.Node, any)]

    def run(*args: Any, **kwargs: Any) -> Any:
        arguments = operator.arguments(args, kwargs)
        for name in computed:
            if all(isinstance(item, number) for item in _items(arguments[name])):
                raise FormError(
                    operator.name,
                    f"argument {name!r} is computed while the model runs, by way of a number of "
                    "Python (.item(), for example), which tracing would fix to the example's "
                    f'{arguments[name]}. Export with exporter="dynamo".',
                )
        with warnings.catch_warnings():
            # Ignore the warning that they become constants, which is the purpose here.
            warnings.simplefilter("ignore", torch.jit.TracerWarning)
            for name in fixed:
                value = arguments[name]
                if isinstance(value, Tensor):
                    arguments[name] = value.item()
                elif isinstance(value, list | tuple):
                    arguments[name] = [v.item() if isinstance(v, Tensor) else v for v in value]
        _refuse_views(operator, arguments)
        positional, keywords = operator.split(arguments)
        return function(*positional, **keywords)

    return run


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


@contextlib.contextmanager
def _registered(
    choices: Sequence[Choice], opset: int, problems: list[ExportError]
) -> Iterator[None]:
    """Register the functions that make nodes with the exporter during the block."""
    functions: dict[str, Callable[..., Any]] = dict(PATCHES)
    for choice in choices:
        make = _standard(choice) if choice.form == "standard" else _own_node(choice.operator)
        name = overload_schema(_traced(choice.operator)).name
        functions[name] = _symbolic(choice.operator, make, problems)
    # The exporter looks up operators by the opset, and nodes of a domain by the domain's version.
    # Register each function under both versions, since a translation may make a node that has its
    # operator's name.
    versions = {
        (name, version): function
        for name, function in functions.items()
        for version in ((opset,) if name.startswith("aten::") else (opset, DOMAIN_VERSION))
    }
    with torch_onnx.symbolics_registered(versions):
        yield


_Make = Callable[[Any, dict[str, Any]], Sequence[Any]]


def _symbolic(operator: Operator, make: _Make, problems: list[ExportError]) -> Callable[..., Any]:
    parameters = in_order(operator, operator.signature.by_name)

    def run(g: Any, *args: Any) -> Any:
        try:
            arguments = {
                parameter.name: _argument(operator, parameter, value)
                for parameter, value in zip(parameters, args, strict=True)
            }
            arguments = decode(operator, arguments)
            values = make(g, arguments)
        except ExportError as error:
            problems.append(error)
            raise
        _record_types(operator, arguments, values)
        return values[0] if len(values) == 1 else tuple(values)

    return run


def _argument(operator: Operator, parameter: Parameter, value: Any) -> Any:
    if not isinstance(value, torch_onnx.GraphValue):
        return value
    node = value.node()
    if node.mustBeNone():
        return None
    if parameter.is_tensor:
        return value
    if node.kind() == "prim::ListConstruct":
        items = list(node.inputs())
        if parameter.is_tensor_list:
            return items
        return [_constant(operator, parameter, item) for item in items]
    return _constant(operator, parameter, value)


def _constant(operator: Operator, parameter: Parameter, value: Any) -> Any:
    node = value.node()
    if node.kind() == "prim::Constant":
        return value.toIValue()
    if node.kind() != "onnx::Constant":
        raise FormError(
            operator.name,
            f"argument {parameter.name!r} is computed while the model runs "
            f"({node.kind()}), and an attribute of an ONNX node is fixed. Give it a constant, or "
            "use the inline form.",
        )
    found = getattr(node, node.kindOf("value"))("value")
    return found.tolist() if isinstance(found, Tensor) else found


def _standard(choice: Choice) -> _Make:
    translation = choice.how
    assert translation is not None

    def make(g: Any, arguments: dict[str, Any]) -> Sequence[Any]:
        operator = choice.operator
        if translation.symbolic:
            assert callable(translation.how)
            made = translation.how(g, *in_order(operator, arguments))
            return tuple(made) if isinstance(made, list | tuple) else (made,)
        emitter = TorchScriptEmitter(operator, g)
        return translate(translation, emitter, operator, arguments)

    return make


def _own_node(operator: Operator) -> _Make:
    layout = NodeLayout(operator.signature)

    def make(g: Any, arguments: dict[str, Any]) -> Sequence[Any]:
        return add_node(
            g,
            operator.name,
            layout.inputs(arguments),
            typed_attributes(layout, arguments),
            layout.output_count,
        )

    return make


def add_node(
    g: Any, name: str, inputs: Sequence[Any], attributes: Attributes, outputs: int
) -> Sequence[Any]:
    """Add a node to the graph that the exporter is building, and return its outputs."""
    suffixed = {f"{key}_{_SUFFIXES[kind.rstrip('S')]}": value for key, kind, value in attributes}
    values = [torch_onnx.absent(g) if value is None else value for value in inputs]
    made = g.op(name, *values, outputs=outputs, **suffixed)
    return (made,) if outputs == 1 else tuple(made)


class TorchScriptEmitter(Emitter):
    """Writes nodes into the graph that the TorchScript exporter is building."""

    def __init__(self, operator: Operator, g: Any) -> None:
        super().__init__(operator, g.opset)
        self._g = g

    def _emit(
        self, domain: str, op_type: str, inputs: list[Any], attributes: Attributes, outputs: int
    ) -> Sequence[Any]:
        name = f"{domain}::{op_type}" if domain else op_type
        return add_node(self._g, name, inputs, attributes, outputs)

    def _dtype_of(self, value: Any) -> str | None:
        found = torch_onnx.dtype_of(value)
        return None if found is None else dtype_name(found)

    def _shape_of(self, value: Any) -> list[int | None] | None:
        return torch_onnx.sizes_of(value)

    def _is_value(self, value: Any) -> bool:
        return isinstance(value, torch_onnx.GraphValue)


def _record_types(operator: Operator, arguments: Mapping[str, Any], values: Sequence[Any]) -> None:
    """Record the dtypes of the outputs, and their shapes as far as they are known."""
    known = infer(operator.signature, arguments, torch_onnx.sizes_of)
    generic = generic_dtype(operator.signature, arguments, torch_onnx.dtype_of)
    for result, value in zip(operator.signature.results, values, strict=False):
        type_ = result.type
        if not isinstance(type_, TensorType) or type_.shape is None:
            continue
        name = operator.signature.dtype_in(type_, generic)
        if name is None:
            continue
        sizes = result_sizes(operator.signature, result, known, arguments)
        torch_onnx.record(value, DTYPES[name], sizes)
    count = len(operator.signature.results)
    for parameter, value in zip(operator.signature.mutated, values[count:], strict=True):
        if arguments[parameter.name] is not None:
            value.setType(arguments[parameter.name].type())
