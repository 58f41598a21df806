"""Render the files generated from a signature, with the templates in ``templates``.

Jinja2 is imported in this file only, and only if something has to be built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from opsmith.errors import MissingDependencyError
from opsmith.kernels.codegen import cpp_names
from opsmith.kernels.codegen.argument_struct import (
    choices_of,
    members_of,
    outputs_of,
    require_supported,
)
from opsmith.kernels.codegen.cpp_names import identifier, quote, raw_type
from opsmith.kernels.codegen.validation import ValidationCode
from opsmith.signature.constraints import Column, Constraint, ValueRange
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter, TensorType
from opsmith.signature.sizes import expressions
from opsmith.system.version import version
from opsmith.untyped import Untyped

TEMPLATES = Path(__file__).parent / "templates"


@cache
def _environment(folder: Path) -> Untyped:
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependencyError(
            "generating C++ needs jinja2, which is not installed. Get it: "
            "pip install 'opsmith[build]'"
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([str(folder), str(TEMPLATES)]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quote"] = cpp_names.quote
    return environment


def render(template: Path, signature: Signature, **more: object) -> str:
    """Render a template.

    Args:
        template: a ``.j2`` file; it may extend one of ``templates``.
        more: further names for the template.

    Returns:
        The text. The template has the names ``qualname``, ``namespace``, ``name``, ``schema``,
        ``version``, ``raw`` (the plain C struct), ``call`` (the class in ``<op>_check.h``) and
        ``signature``, and the filter ``quote`` (a C++ string literal).
    """
    values: dict[str, object] = {
        "version": version(),
        "signature": signature,
        "qualname": signature.qualname,
        "namespace": signature.namespace,
        "name": signature.name,
        "schema": signature.schema(),
        "raw": raw_type(signature),
        "call": f"{signature.namespace}__{signature.name}_call",
        **more,
    }
    text: str = _environment(template.parent).get_template(template.name).render(values)
    return text


def argument_header(signature: Signature) -> str:
    """Return ``<op>.h``, the argument struct as the kernel sees it."""
    members, outputs = members_of(signature), outputs_of(signature)
    initialisers = [f"{m.name}({m.convert})" for m in members]
    initialisers += [f"{o.name}(opsmith_context, {o.position})" for o in outputs]
    return render(
        TEMPLATES / "header.h.j2",
        signature,
        variables=ValidationCode(signature).variables,
        members=members,
        outputs=outputs,
        initialisers=initialisers,
        choices=choices_of(signature),
        guards=guards_of(signature),
    )


def validation_header(signature: Signature) -> str:
    """Return ``<op>_check.h``, the validation that all adapters share."""
    code = ValidationCode(signature)
    return render(
        TEMPLATES / "validation.h.j2",
        signature,
        variables=code.variables,
        dims=code.dims,
        variadics=code.variadics,
        types=code.types,
        items=code.items,
        bind=code.bind(),
        values=code.values(),
        results=code.results(),
        allocations=code.allocations(),
        dependent_dims=code.dependent_dims,
    )


def kernel_files(signature: Signature) -> dict[str, str]:
    """Return the headers that a kernel's source includes and every adapter needs, by file name.

    Raises:
        DeclarationError: C++ kernels do not support one of the parameters or results.
    """
    require_supported(signature)
    name = signature.name
    return {
        f"{name}.h": argument_header(signature),
        f"{name}_check.h": validation_header(signature),
    }


@dataclass(frozen=True)
class _GuardCode:
    """The check of one tensor.

    Attributes:
        start: C++ for the name of the argument that holds the starts of its runs.
        reasons: C++ for the expressions that its limits come from.
        column: C++ for whether one column alone holds indices.
    """

    name: str
    start: str
    reasons: str
    column: str
    line: str


def guards_of(signature: Signature) -> list[_GuardCode]:
    """Return the checks of read-only tensors that hold integers or indices, and have a range.

    Other floating-point values and the order of values are checked on the host only, since they
    never make a kernel read outside its memory.
    """
    code = _InRawStruct(signature)
    found: list[_GuardCode] = []
    for parameter, constraint in _looked_at(signature):
        range_ = constraint.range if isinstance(constraint, Column) else constraint
        member = f"&{raw_type(signature)}::{identifier(parameter.name)}"
        text = code.text(constraint)
        line = f"look({len(found)}, {member}, {text});"
        if isinstance(constraint, Column):
            line = line.replace("look(", "look_at_column(", 1)
        elif range_.start is not None:
            start = next(p for p in signature.parameters if p.name == range_.start)
            own = _range_of(signature, start)
            whole = f"Whole({code.text(own)})" if own is not None else "Whole()"
            starts = f"raw.{identifier(start.name)}"
            line = f"look_at_runs({len(found)}, {member}, {starts}, {text}, {whole});"
        reasons = ", ".join(b.reason for b in range_.bounds if b.reason is not None)
        found.append(
            _GuardCode(
                parameter.name,
                "nullptr" if range_.start is None else quote(range_.start),
                quote(reasons) if reasons else "nullptr",
                "true" if isinstance(constraint, Column) else "false",
                line,
            )
        )
    return found


def _looked_at(signature: Signature) -> Iterator[tuple[Parameter, ValueRange | Column]]:
    for parameter in signature.parameters:
        range_ = _range_of(signature, parameter)
        columns = {one.place: one for one in parameter.columns if _is_bound(signature, one)}
        if range_ is not None:
            yield parameter, range_
        elif _has_dtypes(parameter, ("int", "uint8", "float16", "bfloat16", "float32", "float64")):
            yield from ((parameter, one) for one in columns.values())


def _range_of(signature: Signature, parameter: Parameter) -> ValueRange | None:
    if not _has_dtypes(parameter, ("int", "uint8")):
        return None
    ranges = sorted(parameter.ranges, key=lambda one: not one.reads)
    return next((one for one in ranges[:1] if _is_bound(signature, one)), None)


def _has_dtypes(parameter: Parameter, begin: tuple[str, ...]) -> bool:
    """Return whether a tensor that is only read has one of some dtypes."""
    type_ = parameter.type
    if not isinstance(type_, TensorType) or type_.shape is None or parameter.mutated:
        return False
    # The kernel that looks at the values asks each tensor for its dtype.
    return all(name.startswith(begin) for name in type_.dtypes.names)


def _is_bound(signature: Signature, constraint: Constraint) -> bool:
    """Return whether every call knows the integers that values are compared with."""
    return all(
        not isinstance(bound.value, float)
        and set(expressions.names(bound.value)) <= set(signature.certain_dims)
        for bound in constraint.bounds
    )


class _InRawStruct(ValidationCode):
    """Writes ranges over the members of the ``_raw`` struct, where every dimension is bound."""

    def text(self, constraint: Constraint) -> str:
        """Return a constraint as C++."""
        return self._constraint(constraint)

    def _dim(self, name: str) -> str:
        return f"raw.{identifier(name)}"
