"""Renders what is generated from a signature: argument header, checks, PyTorch adapter.

Jinja2 is imported here and nowhere else, and only when something has to be built.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from opsmith.kernels import cpp
from opsmith.kernels.checks import CheckCode
from opsmith.kernels.members import is_dependent, members_of, outputs_of, require_supported
from opsmith.kernels.symbols import (
    entry_symbol,
    raw_type,
    register_symbol,
    unregister_symbol,
)
from opsmith.kernels.version import version
from opsmith.signature.model import (
    Parameter,
    ScalarType,
    SequenceType,
    Signature,
    TensorListType,
    TensorType,
)

TEMPLATES = Path(__file__).parent / "templates"
DISPATCH_KEYS = {
    "cpu": "CPU",
    "cuda": "CUDA",
    "xpu": "XPU",
    "mps": "MPS",
    "npu": "PrivateUse1",
    "privateuseone": "PrivateUse1",
}


@cache
def _environment(folder: Path) -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(folder)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = cpp.quote
    return environment


def render(template: Path, signature: Signature, **more: Any) -> str:
    """Render a template that knows the names every adapter needs.

    Args:
        template: a ``.j2`` file; a target's own adapter may stand in the target's folder.
        signature: the operator's.
        more: further names for the template.

    Returns:
        The text. The template sees ``qualname``, ``namespace``, ``name``, ``schema``, ``version``,
        ``raw`` (the plain C struct), ``call`` (the class in ``<op>_check.h``), ``members``,
        ``outputs``, ``generic``, ``results``, ``allocations``, ``signature`` and the filter
        ``quote`` (a C++ string literal).
    """
    checks = CheckCode(signature)
    values: dict[str, Any] = {
        "version": version(),
        "signature": signature,
        "qualname": signature.qualname,
        "namespace": signature.namespace,
        "name": signature.name,
        "schema": signature.schema(),
        "raw": raw_type(signature),
        "call": f"{signature.namespace}__{signature.name}_call",
        "members": members_of(signature),
        "outputs": outputs_of(signature),
        "generic": checks.generic,
        "results": checks.results(),
        "allocations": checks.allocations(),
        **more,
    }
    text: str = _environment(template.parent).get_template(template.name).render(values)
    return text


def header(signature: Signature) -> str:
    """The argument header, ``<op>.h``."""
    initialisers = [f"{m.name}({m.convert})" for m in members_of(signature)]
    initialisers += [f"{o.name}(opsmith_context, {o.position})" for o in outputs_of(signature)]
    return render(TEMPLATES / "header.h.j2", signature, initialisers=initialisers)


def checks(signature: Signature) -> str:
    """The validation that all adapters share, ``<op>_check.h``."""
    code = CheckCode(signature)
    return render(
        TEMPLATES / "check.h.j2",
        signature,
        dims=code.dims,
        variadics=code.variadics,
        types=code.types,
        bind=code.bind(),
        values=code.values(),
        dependent_dims=code.dependent_dims,
    )


def kernel_files(signature: Signature) -> dict[str, str]:
    """What a kernel's source includes and every adapter needs, by file name.

    Raises:
        DeclarationError: a C++ kernel cannot take one of the parameters or results.
    """
    require_supported(signature)
    name = signature.name
    return {f"{name}.h": header(signature), f"{name}_check.h": checks(signature)}


def torch_adapter(signature: Signature, device: str, strided: bool | tuple[str, ...]) -> str:
    """The source that registers a kernel with PyTorch.

    Args:
        signature: the operator's.
        device: ``"cpu"``, ``"cuda"`` or ``"privateuse1"``.
        strided: whether the kernel takes tensors as they are, all or those named.
    """
    code = CheckCode(signature)
    results = []
    for position, result in enumerate(signature.results):
        type_ = result.tensor_type
        results.append(
            {
                "name": cpp.identifier(result.name),
                "handle": f"result_{result.name}",
                "position": position,
                "dependent": is_dependent(signature, result),
                "dtype": "raw.opsmith_dtype"
                if type_.dtypes.generic
                else cpp.dtype(type_.dtypes.names[0]),
            }
        )
    return render(
        TEMPLATES / "torch_adapter.cpp.j2",
        signature,
        device=device,
        key=DISPATCH_KEYS[device],
        entry=entry_symbol(signature, device),
        register=register_symbol(signature, device),
        unregister=unregister_symbol(signature, device),
        arguments=[
            _torch_argument(parameter, position, strided)
            for position, parameter in enumerate(signature.parameters)
        ],
        results=results,
        values=bool(code.values()),
    )


def _torch_argument(
    parameter: Parameter, position: int, strided: bool | tuple[str, ...]
) -> dict[str, str]:
    """The statements that one argument adds to the adapter."""
    local = f"arg_{parameter.name}"
    raw = f"raw.{cpp.identifier(parameter.name)}"
    value = f"stack[{position}]"
    as_is = strided is True or (strided is not False and parameter.name in strided)
    lines = {"take": "", "fill": "", "writable": "", "contiguous": "", "write_back": ""}
    match parameter.type:
        case TensorType():
            make = "::optional" if parameter.optional else ""
            initial = f"= TensorArgument{make}({value})" if make else f"({value})"
            lines["take"] = f"TensorArgument {local}{initial};".replace("=", " =")
            written = "true" if parameter.mutated else "false"
            lines["fill"] = f"{raw} = {local}.describe({written});"
            if not as_is:
                lines["contiguous"] = f"{local}.make_contiguous({written});"
            if parameter.mutated:
                lines["writable"] = f"{local}.check_writable(op_name, {cpp.quote(parameter.name)});"
                lines["write_back"] = f"{local}.write_back();"
        case TensorListType():
            taken = f"StackList::optional({value})" if parameter.optional else value
            lines["take"] = f"TensorListArgument {local}({taken});"
            lines["fill"] = f"{raw} = {local}.describe();"
            if not as_is:
                lines["contiguous"] = f"{local}.make_contiguous();"
        case ScalarType("str"):
            make = " = StringArgument::optional" if parameter.optional else ""
            lines["take"] = f"const StringArgument {local}{make}({value});"
            lines["fill"] = f"{raw} = {local}.raw();"
        case ScalarType(kind):
            type_ = {"int": "int64_t", "float": "double", "bool": "bool"}[kind]
            if parameter.optional:
                lines["take"] = f"const bool {local} = take_optional({value});"
                lines["fill"] = f"if ({local}) {raw} = {{1, from_stack<{type_}>({value})}};"
            else:
                lines["fill"] = f"{raw} = from_stack<{type_}>({value});"
        case SequenceType(kind, _):
            type_ = {"int": "int64_t", "float": "double", "bool": "uint8_t"}[kind]
            taken = f"StackList::optional({value})" if parameter.optional else value
            lines["take"] = f"const Scalars<{type_}> {local}({taken});"
            lines["fill"] = f"{raw} = {{{local}.count(), {local}.items()}};"
    return lines
