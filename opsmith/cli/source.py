"""Turn the command line's SOURCE (`x.py:model`, `module:model`, `x.pt2`) into what is exported."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

from opsmith.errors import LoadError
from opsmith.operators import Operator
from opsmith.sources.importing import import_all, import_module, raised
from opsmith.untyped import Value

_KEYS = ("model", "args", "kwargs", "dynamic_shapes")


def load_source(source: str, *, operators: bool = False) -> dict[str, Value]:
    """Return arguments of `opsmith.export`: ``model``, ``args``, ``kwargs``, ``dynamic_shapes``."""
    import torch

    if source.endswith(".pt2"):
        if not Path(source).is_file():
            raise LoadError(f"no such file: {source}")
        return {"model": torch.export.load(source)}
    where, colon, name = source.rpartition(":")
    if operators and (not colon or "::" in source):
        return {"model": import_all([source])}
    if not colon or not where or where.endswith(":") or not name.isidentifier():
        raise LoadError(
            f"{source!r}: say which model, as in model.py:example or package.module:example. "
            "(For a target that takes operators, a file alone means all its operators, and "
            "FILE.py::OPERATOR one of them.)"
        )
    module = import_module(where)
    found = getattr(module, name, None)
    if found is None:
        there = ", ".join(_candidates(module))
        has = (
            f"it has {there}"
            if there
            else (
                "it has no function that returns a model and its arguments. Write one, def "
                f"{name}(): return model, (x,), or name the file alone to export its operators"
            )
        )
        raise LoadError(f"{where} has no {name!r}; {has}")
    if isinstance(found, torch.nn.Module):
        raise LoadError(
            f"{source} is a module, and exporting it needs an example of its arguments. Name a "
            f"function that returns both:\n\n"
            f"  def example():\n      return {name}, (torch.randn(1, 3),)"
        )
    if isinstance(found, tuple) and found and isinstance(found[0], torch.nn.Module):
        return _described(source, found)
    if isinstance(found, torch.export.ExportedProgram | Operator | list | tuple):
        return {"model": found}
    if not callable(found):
        raise LoadError(f"{source} is a {type(found).__name__}, not a model")
    try:
        returned = found()
    except Exception as error:
        raise raised(source, error) from error
    return _described(source, returned)


def _candidates(module: ModuleType) -> list[str]:
    """List the module's functions without arguments, and its programs."""
    from torch.export import ExportedProgram

    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, ExportedProgram)
            or (
                inspect.isfunction(value)
                and value.__module__ == module.__name__
                and not inspect.signature(value).parameters
            )
        )
    ]


def _described(source: str, returned: object) -> dict[str, Value]:
    if isinstance(returned, dict):
        unknown = sorted(set(returned) - set(_KEYS))
        if unknown or "model" not in returned:
            raise LoadError(
                f"{source}() returned a dictionary with {', '.join(map(repr, returned))}; expected "
                f"{', '.join(_KEYS)}, of which only the first is needed"
            )
        return returned
    if isinstance(returned, tuple) and 2 <= len(returned) <= 4:
        return dict(zip(_KEYS, returned, strict=False))
    raise LoadError(
        f"{source}() returned {type(returned).__name__}; expected (model, args), or a "
        f"dictionary with {', '.join(_KEYS)}"
    )
