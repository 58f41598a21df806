"""The pages on Python: every public name, from its docstring."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from markdown_of import described

#: What users may import from, by the name of its page.
MODULES = {
    "opsmith": "opsmith",
    "testing": "opsmith.testing",
    "checks": "opsmith.checks",
    "bench": "opsmith.bench",
    "targets": "opsmith.targets",
    "lowering": "opsmith.targets.exporting.lowering",
    "adapters": "opsmith.kernels.adapters",
}
#: The names of modules with many, by the task that a reader comes with, in the order of the work.
TASKS = {
    "opsmith": {
        "Declare an operator": ["op", "DefinedOperator", "Operator", "DtypeVar", "Cost", "Philox"],
        "Say what values an argument has": [
            *("Between", "Positive", "Index", "Extent", "Sorted", "Starts", "Total", "Unspecified"),
        ],
        "Say what a result is": ["NonDifferentiable", "Selects"],
        "Write a kernel as text, choose among variants": ["cpp", "cuda", "autotune"],
        "Bring what exists": ["adopt"],
        "Export, load and run": [
            *("export", "load", "LoadedModel", "LoadedOperators", "onnx_translations"),
        ],
        "Do without a GPU": ["emulate"],
        "Catch errors": [],  # whatever ends in Error
    },
}


def tasks(name: str) -> dict[str, list[str]]:
    """Return the public names of a module under the tasks that they serve.

    Args:
        name: The name of the module. Without an entry in ``TASKS`` all names stand under "".
    """
    names = sorted(
        importlib.import_module(name).__all__,
        key=lambda public: (public[0].islower(), public.lower()),
    )
    if name not in TASKS:
        return {"": names}
    errors = {"Catch errors": [public for public in names if public.endswith("Error")]}
    return TASKS[name] | errors


def page(name: str) -> str:
    """Return the page of one module.

    Args:
        name: The name of the module.
    """
    module = importlib.import_module(name)
    parts = [f"# {name}\n", described(module)]
    for task, names in tasks(name).items():
        if task:
            parts.append(f"## {task}\n")
        for public in names:
            depth = "###" if task else "##"
            parts.append(_entry(depth, f"{name}.{public}", getattr(module, public)))
    return "\n".join(parts)


def _entry(depth: str, name: str, thing: Any) -> str:
    parts = [f"{depth} `{name}` {{ #{name} }}\n", _call(name, thing)]
    if inspect.isclass(thing) or callable(thing):
        parts.append(described(thing))
    if inspect.isclass(thing):
        for member, value in _members(thing):
            parts.append(f"{depth}# `{thing.__name__}.{member}` {{ #{name}.{member} }}\n")
            if callable(value):
                parts.append(_call(member, value))
            parts.append(described(value))
    elif not callable(thing):
        parts.append(f"```py\n{name.rpartition('.')[2]} = {thing!r}\n```\n")
    return "\n".join(parts)


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that opsmith gives a class, inherited ones too."""
    seen: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("opsmith"):
            continue
        for name, value in vars(base).items():
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            documented = inspect.isfunction(value) or isinstance(value, property)
            if not name.startswith("_") and documented and inspect.getdoc(value):
                seen[name] = value
    yield from seen.items()


def _call(name: str, thing: Any) -> str:
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return ""
    if not callable(thing):
        return ""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    name = name.rpartition(".")[2]
    plain = [
        one.replace(annotation=inspect.Parameter.empty) if one.name in ("self", "cls") else one
        for one in signature.parameters.values()
        if not one.name.startswith("_")
    ]
    shown = _words(signature.replace(parameters=plain))
    line = f"{name}{shown}"
    if len(line) > 88 and plain:
        line = _broken(name, signature.replace(parameters=plain))
    return f"```py\n{line}\n```\n"


def _words(signature: inspect.Signature) -> str:
    return str(signature).replace("'", "") if "'" in str(signature) else str(signature)


def _broken(name: str, signature: inspect.Signature) -> str:
    """A long signature, one parameter a line."""
    lines, star = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = True
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            lines.append("    *,")
            star = True
        lines.append(f"    {parameter},".replace("'", ""))
    after = signature.return_annotation
    arrow = "" if after is signature.empty else f" -> {inspect.formatannotation(after)}"
    return "\n".join([f"{name}(", *lines, f"){arrow}".replace("'", "")])
