"""Render the files generated from a signature, with the templates in ``templates``.

Jinja2 is imported in this file only, and only if something has to be built.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from opsmith.errors import MissingDependencyError
from opsmith.kernels.codegen import cpp_names
from opsmith.kernels.codegen.argument_struct import (
    choices_of,
    members_of,
    outputs_of,
    require_supported,
)
from opsmith.kernels.codegen.device_guards import guards_of
from opsmith.kernels.codegen.symbols import raw_type
from opsmith.kernels.codegen.validation import ValidationCode
from opsmith.signature.model import Signature
from opsmith.system.version import version

TEMPLATES = Path(__file__).parent / "templates"


@cache
def _environment(folder: Path) -> Any:
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


def render(template: Path, signature: Signature, **more: Any) -> str:
    """Render a template.

    Args:
        template: a ``.j2`` file; it may extend one of ``templates``.
        signature: the operator's signature.
        more: further names for the template.

    Returns:
        The text. The template has the names ``qualname``, ``namespace``, ``name``, ``schema``,
        ``version``, ``raw`` (the plain C struct), ``call`` (the class in ``<op>_check.h``) and
        ``signature``, and the filter ``quote`` (a C++ string literal).
    """
    values: dict[str, Any] = {
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
