"""Build an operator's library for ONNX Runtime: its kernel and a generated adapter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsmith import kernels
from opsmith.errors import ExportError
from opsmith.kernels import HOST, KernelSource, adapters
from opsmith.operators import Operator
from opsmith.signature import Parameter, Signature, TensorType
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Expression, Name
from opsmith.signature.sizes.shapes import Fixed, Variadic
from opsmith.targets.exporting.operator_export import new_source
from opsmith.targets.onnx.forms import written_list
from opsmith.targets.onnx.node import ELEMENT_TYPES, NodeLayout
from opsmith.targets.onnxruntime.providers import PROVIDERS

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "adapter.cpp.j2"
_DOMAIN_TEMPLATE = _HERE / "domain.cpp.j2"
INCLUDE = _HERE / "include"


def kernel_of(operator: Operator, device: str = HOST) -> KernelSource:
    """Return the operator's kernel that ONNX Runtime can run.

    Args:
        device: the device type, one of `PROVIDERS`.
    """
    problem = written_list(operator)
    if problem:
        raise ExportError(f"{operator.name}: {problem}")
    kernel = operator.kernels.get(device)
    name, provider = operator.signature.name, PROVIDERS[device]
    if kernel is not None and kernel.entry is not None:
        return kernel.entry
    if kernel is None or kernel.source is None:
        have = f"no kernel for {provider.title}"
        if kernel is not None:
            have = f"only a Python one ({kernel.where})"
        new = new_source(operator, device, provider.suffix)
        raise ExportError(
            f"{operator.name}: the library form needs a C++ kernel, and there is {have}. Add one: "
            f'{name}.register_kernel("{device}", source="{new}"), or export it in the inline form.'
        )
    raise ExportError(
        f"{operator.name}: its {device.upper()} kernel {kernel.where} is written against PyTorch "
        f'(api="{kernel.source.api}"), which ONNX Runtime does not have. Write it against '
        "<opsmith/kernel.h>, or export it in the inline form."
    )


def build(source: KernelSource) -> Path:
    """Build the library that registers a kernel with ONNX Runtime, or find it in the cache.

    Raises:
        BuildError: the kernel does not compile, or needs PyTorch.
        MissingDependencyError: there is no compiler.
    """
    return adapters.build(
        source,
        "onnxruntime" if source.device == HOST else f"onnxruntime_{source.device}",
        adapter,
        title="ONNX Runtime",
        made_of=[_TEMPLATE, Path(__file__)],
        include=INCLUDE,
    )


def build_domain(signatures: Sequence[Signature], files: Sequence[str]) -> Path:
    """Build a library that registers several operators of a domain, or one on several devices.

    Args:
        files: file names of the operators' libraries, which will lie beside the new library.
    """
    first = signatures[0]

    def render() -> dict[str, str]:
        return {"domain.cpp": adapters.render(_DOMAIN_TEMPLATE, first, files=list(files))}

    sources = [_DOMAIN_TEMPLATE, *sorted(INCLUDE.rglob("*.h"))]
    digests = [file.read_bytes() for file in sources]
    return kernels.Recipe(
        f"{first.namespace}__onnxruntime",
        generated=kernels.Generated(kernels.generated_key(first, tuple(files), *digests), render),
        include_dirs=[INCLUDE],
        link_libraries=["dl"],
        flags=("-O1",),
        torch="none",
        what=f"the domain {first.namespace} (ONNX Runtime)",
    ).build()


def adapter(source: KernelSource) -> str:
    """Generate the source that connects ONNX Runtime with a kernel."""
    signature = source.signature
    layout = NodeLayout(signature)
    inference = _Inference(layout)
    return adapters.source(
        _TEMPLATE,
        signature,
        source.device,
        inputs=_input_ports(layout),
        outputs=inference.outputs(),
        inputs_of=_inputs_of(layout),
        written={p.name: len(signature.results) + i for i, p in enumerate(signature.mutated)},
        singles=len(layout.tensors),
        lists=len(layout.lists),
        dims=[d for d in signature.dims if d not in signature.variadic_dims],
        variadics=[d for d in signature.dims if d in signature.variadic_dims],
        variables=len(signature.dtype_variables),
        inferred=inference.inputs(),
        equations=inference.equations(),
        sizes=inference.attributes(),
    )


def _inputs_of(layout: NodeLayout) -> dict[str, str]:
    """Return the C++ expression for each tensor argument; the other arguments are attributes."""
    found = {}
    for position, parameter in enumerate(layout.tensors):
        name = adapters.quote(parameter.name)
        found[parameter.name] = (
            f"inputs.optional({position})"
            if parameter.optional
            else f"inputs.required({position}, {name})"
        )
    for position, parameter in enumerate(layout.lists):
        found[parameter.name] = f"inputs.several({position}, {adapters.quote(parameter.name)})"
    return found


def _element(owner: Any) -> int:
    """Return the ONNX element type, or 0 if each call decides it."""
    type_ = owner.tensor_type
    if type_.shape is None or type_.dtypes.generic:
        return 0
    return ELEMENT_TYPES[type_.dtypes.names[0]]


def _input_ports(layout: NodeLayout) -> list[dict[str, Any]]:
    ports = [
        {
            "type": _element(parameter),
            "characteristic": "optional" if parameter.optional else "required",
        }
        for parameter in layout.tensors
    ]
    if layout.lists:
        ports.append({"type": 0, "characteristic": "variadic"})
    return ports


class _Inference:
    """Generates the statements of shape inference: bind known sizes, compute sizes from them."""

    def __init__(self, layout: NodeLayout) -> None:
        self.layout = layout
        self.signature = layout.signature

    def inputs(self) -> list[dict[str, Any]]:
        """Return the binding statements of each input that determines a size or dtype."""
        found = []
        for position, parameter in enumerate(self.layout.tensors):
            lines = self._bind(parameter)
            if lines:
                found.append({"position": position, "lines": lines, "given": ""})
        # The first element of a list binds the sizes; the other elements must agree.
        first = str(len(self.layout.tensors))
        for number, parameter in enumerate(self.layout.lists):
            given = f"counts.size() > {number} && counts[{number}] > 0 && "
            lines = self._bind(parameter)
            if lines:
                found.append({"position": first, "lines": lines, "given": given})
            first += f" + std::max<int64_t>(counts[{number}], 0)"
        return found

    def _bind(self, parameter: Parameter) -> list[str]:
        type_ = parameter.tensor_type
        if type_ is None or type_.shape is None:
            return []
        lines = []
        chosen = self._chosen(type_)
        if chosen is not None:
            lines.append(f"if ({chosen} == 0) {chosen} = type;")
        shape = type_.shape
        compare = ">=" if shape.variadic is not None else "=="
        inner = []
        numbers = {
            equation.position: number
            for number, equation in enumerate(self.signature.equations)
            if equation.parameter == parameter.name
        }
        for position, (axis, dim) in enumerate(shape.axes()):
            at = str(axis) if axis >= 0 else f"sizes.size() - {-axis}"
            match dim:
                case Fixed(Name(name)):
                    inner.append(f"if (!dim_{name}.known()) dim_{name} = sizes[{at}];")
                case Variadic(str(name)):
                    last = f"sizes.begin() + (sizes.size() - {shape.rank - axis})"
                    inner.append(
                        f"if (!has_{name}) dims_{name}.assign(sizes.begin() + {at}, {last});"
                    )
                    inner.append(f"has_{name} = true;")
            if position in numbers:
                size = f"solved_{numbers[position]}"
                inner.append(f"if (!{size}.known()) {size} = sizes[{at}];")
        if inner:
            lines += [f"if (sizes.size() {compare} {shape.rank}) {{"]
            lines += [f"  {line}" for line in inner] + ["}"]
        return lines

    def equations(self) -> list[dict[str, str]]:
        """Return the name, condition, factor and rest of each equation, in their order."""
        return [
            {
                "name": equation.name,
                "known": " && ".join(self._known(equation.factor) + self._known(equation.rest))
                or "true",
                "factor": self._number(equation.factor),
                "rest": self._number(equation.rest),
            }
            for equation in self.signature.equations
        ]

    def _chosen(self, type_: TensorType) -> str | None:
        """Return the C++ variable with the dtype that the call chooses for a tensor."""
        position = self.signature.variable_position(type_)
        if position is None or self.signature.dtype_variables[position].is_complex(type_.dtypes):
            return None
        return f"chosen[{position}]"

    def attributes(self) -> list[str]:
        """Return the int arguments that determine sizes of results."""
        return sorted(
            {
                scalar.parameter
                for expression in self._expressions()
                for scalar in expressions.scalars_of(expression)
            }
        )

    def _expressions(self) -> list[Expression]:
        equations = [side for e in self.signature.equations for side in (e.factor, e.rest)]
        return equations + [
            dim.expression
            for result in self.signature.results
            if result.shape is not None
            for dim in self.signature.result_dims(result)
            if isinstance(dim, Fixed)
        ]

    def outputs(self) -> list[dict[str, Any]]:
        """Return type, shape and characteristic of each output."""
        found = []
        for result in self.signature.results:
            lines = ["known = false;"]
            if result.shape is not None:
                lines = [
                    line for dim in self.signature.result_dims(result) for line in self._size(dim)
                ]
            found.append(self._output(result, "required", lines))
        for parameter in self.signature.mutated:
            position = self.layout.tensors.index(parameter)
            lines = [f"known = shapes.input({position}, type, sizes);"]
            kind = "optional" if parameter.optional else "required"
            found.append(self._output(parameter, kind, lines))
        return found

    def _output(self, owner: Any, characteristic: str, lines: list[str]) -> dict[str, Any]:
        type_ = _element(owner)
        # The element type 0 says that nothing is known: a variable's tensors may be complex.
        element = self._chosen(owner.tensor_type) or str(type_)
        if isinstance(owner, Parameter) and owner.tensor_type and owner.tensor_type.shape is None:
            element = "type"
        return {"type": type_, "characteristic": characteristic, "lines": lines, "element": element}

    def _size(self, dim: Fixed | Variadic) -> list[str]:
        match dim:
            case Variadic(name):
                return [
                    f"known = known && has_{name};",
                    f"sizes.insert(sizes.end(), dims_{name}.begin(), dims_{name}.end());",
                ]
            case Fixed(Name(name)):
                if name in self.signature.data_dependent:
                    return ["sizes.push_back({});"]
                return [f"sizes.push_back(dim_{name});"]
        value = dim.expression
        if set(expressions.names(value)) & set(self.signature.data_dependent):
            return ["sizes.push_back({});"]
        condition, text = " && ".join(self._known(value)) or "true", self._number(value)
        return [f"sizes.push_back({condition} ? ort::Size{{{text}, nullptr}} : ort::Size{{}});"]

    @staticmethod
    def _known(value: Expression) -> list[str]:
        """Return the C++ conditions under which a size can be computed."""
        needed = [f"dim_{name}.known()" for name in sorted(expressions.names(value))]
        for scalar in sorted(expressions.scalars_of(value), key=str):
            needed.append(f"ints_{scalar.parameter}.size() > {scalar.index or 0}")
        return needed

    @staticmethod
    def _number(value: Expression) -> str:
        """Return a size as C++, computed from known sizes."""
        return adapters.expression(
            value,
            lambda name: f"dim_{name}.number",
            lambda parameter, index: f"ints_{parameter}[{index or 0}]",
        )
