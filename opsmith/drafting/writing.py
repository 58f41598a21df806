"""Write a drafted declaration as Python text."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from opsmith.compat.torch_ops import OpOverload, overload_schema
from opsmith.drafting.limits import FLOATING, ValueLimits
from opsmith.drafting.meaning import Meaning
from opsmith.drafting.subject import DraftArgument, Origin, Spec
from opsmith.operators.core.arguments import DTYPES, dtype_name
from opsmith.signature.dtypes import annotation

#: jaxtyping's name of each dtype.
_LABELS = {dtype: annotation(name) for name, dtype in DTYPES.items()}
_SOME_FLOATS = "SomeFloat"


@dataclass(frozen=True)
class Draft:
    """The facts found about an operator.

    Attributes:
        values: the arguments of a call that it accepts.
        results: dtype and shape (or `None`) of each result; for a list, those of its tensors.
        listed: whether each result is a list.
        dtypes: the floating-point dtypes that it accepts.
        limits: the limits of numbers and of integer tensors.
        data_dependent: the sizes of results that depend on the tensors' values.
        sampled: whether `opsmith check` can sample arguments from the declaration.
        sources: arguments of the example, as the user wrote them.
        modules: the modules that define the operator, to be imported.
        variables: the dtype variable of integer tensors that have one, by argument.
        means: the meaning of results and values, as found by `opsmith.drafting.meaning`.
    """

    subject: Origin
    values: Mapping[str, Any]
    shapes: Mapping[str, str]
    results: Sequence[tuple[str, str | None]]
    listed: Sequence[bool]
    dtypes: Sequence[torch.dtype]
    limits: Mapping[str, ValueLimits]
    data_dependent: Sequence[str]
    sampled: bool
    sources: Mapping[str, str] = field(default_factory=dict)
    modules: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    means: Meaning = field(default_factory=lambda: Meaning((), {}, ()))
    where: Sequence[str] = ()

    @property
    def generic_floats(self) -> str:
        """The name of floating-point tensors of any accepted dtype; empty if there are none."""
        tensors = [one for value in self.values.values() for one in _tensors(value)]
        if len(self.dtypes) < 2 or not any(one.dtype.is_floating_point for one in tensors):
            return ""
        return label(self.dtypes[0], self.dtypes)

    def dtype_of(self, variable: str) -> str:
        """Return how a registered case reads the dtype of a variable."""
        several = {self.generic_floats, *self.variables.values()} - {""}
        return f'dtype["{variable}"]' if len(several) > 1 else "dtype"


def _tensors(value: Any) -> list[Any]:
    several = value if isinstance(value, list) else [value]
    return [one for one in several if isinstance(one, Spec | Tensor)]


def label(dtype: torch.dtype, floats: Sequence[torch.dtype]) -> str:
    """Return a declaration's name for a dtype; a floating one stands for all accepted ones."""
    if not dtype.is_floating_point or len(floats) < 2:
        return _LABELS[dtype]
    return "Float" if tuple(floats) == FLOATING else _SOME_FLOATS


def operator(draft: Draft, name: str, overload: OpOverload) -> str:
    """Return the text of a file that adopts an operator of PyTorch."""
    options = ""
    written = tuple(one.name for one in draft.subject.arguments if one.written)
    if written:
        options += f", mutates_args={names(written)}"
    if draft.data_dependent:
        options += f", data_dependent={names(draft.data_dependent)}"
    conditions = [*(one.where for one in draft.limits.values() if one.where), *draft.where]
    if conditions:
        options += f", where={names(conditions)}"
    short = overload_schema(overload).name.partition("::")[2]
    lines = [
        f'@opsmith.adopt("{name}"{options})',
        *_function(draft, short),
        "",
        "",
        *cases(draft, short),
    ]
    return file(draft, name, [f"import {one}  # noqa: F401" for one in draft.modules], lines)


def function(draft: Draft, module: str, name: str) -> str:
    """Return the text of a file that adopts the ``torch.autograd.Function`` `name` of `module`."""
    short = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    lines = [
        *_function(draft, f"_{short}"),
        "",
        "",
        f'{short} = opsmith.adopt({name}, "my_ops::{short}", annotations=_{short})',
        "",
        "",
        *cases(draft, short),
    ]
    return file(draft, f"{name} of {module}", [f"from {module} import {name}"], lines)


def file(draft: Draft, what: str, imports: Sequence[str], lines: Sequence[str]) -> str:
    """Return the text of the whole file.

    Args:
        what: the name of the operator or package, for the first line.
    """
    text = "\n".join(lines)
    notes = []
    if draft.subject.left_out:
        notes.append(f"Left at their defaults: {', '.join(draft.subject.left_out)}.")
    if not draft.sampled:
        notes.append(
            "Its own cases alone are checked, as not all that its values may be was found. Say it "
            "with Index, Between and the like, then leave out only=True."
        )
    notes += draft.means.notes
    title = f"{what}, as calls of it show it to be: see what fits, and edit the rest."
    paragraphs = [title, *(textwrap.fill(note, 96, break_on_hyphens=False) for note in notes)]
    opening = ['"""' + "\n\n".join(paragraphs) + ('\n"""' if notes else '"""')]
    return "\n".join([*opening, "", *_imports(text, draft, imports), "", "", text, ""])


def _function(draft: Draft, name: str) -> list[str]:
    """Return the annotated function that stands for the operator."""
    arguments = [f"{one.name}: {type_of(draft, one)}" for one in draft.subject.arguments]
    for k, default in defaults(draft).items():
        arguments[k] += f" = {default}"
    keyword_only = [k for k, one in enumerate(draft.subject.arguments) if one.keyword_only]
    if keyword_only:
        arguments.insert(keyword_only[0], "*")
    marks = draft.means.results or [()] * len(draft.results)
    returns = [
        result(*one, listed, mark)
        for one, listed, mark in zip(draft.results, draft.listed, marks, strict=True)
    ]
    several = f"tuple[{', '.join(returns)}]" if returns else "None"
    return [
        f"def {name}(",
        *(f"    {one}," for one in arguments),
        f") -> {returns[0] if len(returns) == 1 else several}:",
        "    ...",
    ]


def names(several: Sequence[str]) -> str:
    """Write a tuple of strings."""
    written = ", ".join(_default("str", name) for name in several)
    return f"({written},)" if len(several) == 1 else f"({written})"


def _imports(text: str, draft: Draft, more: Sequence[str]) -> list[str]:
    def used(names: Sequence[str]) -> list[str]:
        return [name for name in names if re.search(rf"\b{name}\b", text)]

    variables = sorted(set(draft.variables.values()))
    more_labels = {"Int32", "Int64"} if variables else set()
    labels = sorted({*used(["Float", *_LABELS.values(), "Shaped"]), *more_labels})
    own = used([_SOME_FLOATS])
    lines = []
    typing = used(["Annotated", "Literal"])
    if typing:
        lines += [f"from typing import {', '.join(typing)}", ""]
    lines.append("import torch")
    if own:
        labels.insert(0, "AbstractDtype")
    if labels:
        lines.append(f"from jaxtyping import {', '.join(sorted(labels))}")
    lines += ["from torch import Tensor", "", *more, *[""][: len(more)], "import opsmith"]
    constraints = used(["Between", "Index", "Selects", "Sorted", "Unspecified"])
    if constraints:
        lines.append(f"from opsmith import {', '.join(constraints)}")
    if own:
        names = ", ".join(f'"{dtype_name(one)}"' for one in draft.dtypes)
        lines += ["", "", f"class {_SOME_FLOATS}(AbstractDtype):", f"    dtypes = [{names}]"]
    if variables:
        lines += ["", *(f'{one} = opsmith.DtypeVar("{one}", Int32, Int64)' for one in variables)]
    return lines


def type_of(draft: Draft, one: DraftArgument) -> str:
    """Return the annotation of an argument."""
    limits = draft.limits.get(one.name)
    value = draft.values[one.name]
    match one.kind:
        case "tensor" | "tensors":
            spec = next(iter(value), None) if isinstance(value, list) else value
            text = "Tensor"
            if spec is not None and one.name in draft.shapes:
                name = draft.variables.get(one.name) or label(spec.dtype, draft.dtypes)
                text = f'{name}[Tensor, "{draft.shapes[one.name]}"]'
            if one.kind == "tensors":
                text = f"list[{text}]"
        case "ints" | "floats" | "bools":
            kind = one.kind.removesuffix("s")
            length = len(value) if value is not None else one.length
            text = f"tuple[{', '.join([kind] * length)}]" if length else f"list[{kind}]"
        case "str" if isinstance(value, str):
            text = f'Literal["{value}"]'
        case _:
            text = one.kind
    marks = [limits.text if limits is not None else "", draft.means.arguments.get(one.name, "")]
    if any(marks):
        text = f"Annotated[{', '.join([text, *filter(None, marks)])}]"
    if one.optional:
        text += " | None"
    return text


def defaults(draft: Draft) -> dict[int, str]:
    """Return the defaults as text, by position; none before an argument without default."""
    found: dict[int, str] = {}
    for k, one in reversed(list(enumerate(draft.subject.arguments))):
        default, value = one.default, draft.values[one.name]
        fits = not isinstance(default, list) or value is None or len(default) == len(value)
        if default is not inspect.Parameter.empty and fits:
            found[k] = _default(one.kind, default)
        elif not one.keyword_only:
            break
    return found


def _default(kind: str, default: Any) -> str:
    if isinstance(default, list):
        return repr(tuple(default))
    if isinstance(default, str):
        return f'"{default}"'
    return repr(float(default)) if kind == "float" and default is not None else repr(default)


def result(dtype: str, shape: str | None, listed: bool, marks: Sequence[str] = ()) -> str:
    """Return the annotation of a result, or of a list of tensors."""
    text = f'{dtype}[Tensor, "{shape}"]' if shape is not None else "Tensor"
    if shape is not None and marks:
        text = f"Annotated[{', '.join([text, *marks])}]"
    return f"list[{text}]" if listed else text


def cases(draft: Draft, name: str, function: str = "cases") -> list[str]:
    """Return the example as a registered case; the only one if arguments cannot be sampled."""
    dtype = "torch.dtype" if draft.dtype_of("") == "dtype" else "dict[str, torch.dtype]"
    lines = [
        f"@{name}.register_cases{'' if draft.sampled else '(only=True)'}",
        f"def {function}(dtype: {dtype}, seed: int):",
    ]
    drawn = [key for key in draft.values if _is_written(draft, key)]
    if any("rand" in draft.sources[key] for key in drawn):
        lines.append("    torch.manual_seed(seed)")
    made = [value for key, value in draft.values.items() if key not in drawn]
    if any(isinstance(one, Tensor | Spec | list) for one in made):
        lines.append("    generator = torch.Generator().manual_seed(seed)")
    lines.append("    yield {")
    for key, value in draft.values.items():
        text = _written(draft, key) if key in drawn else _value(draft, value, key)
        lines.append(f'        "{key}": {text},')
    return [*lines, "    }"]


def _is_written(draft: Draft, name: str) -> bool:
    """Return whether an argument contains tensors that the user's example creates."""
    value = draft.values[name]
    first = value[0] if isinstance(value, list) and value else value
    return name in draft.sources and isinstance(first, Tensor)


def _written(draft: Draft, name: str) -> str:
    """Return an argument as the user wrote it, converted to the dtype of the case."""
    value, source = draft.values[name], draft.sources[name]
    first = value[0] if isinstance(value, list) else value
    floats = draft.generic_floats if first.dtype.is_floating_point else ""
    variable = draft.variables.get(name, floats)
    if not variable:
        return source
    dtype = draft.dtype_of(variable)
    if isinstance(value, list):
        return f"[one.to({dtype}) for one in {source}]"
    return f"{source}.to({dtype})" if source.endswith(")") else f"({source}).to({dtype})"


def _value(draft: Draft, value: Any, name: str) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Spec | Tensor):
        return f"[{', '.join(_value(draft, one, name) for one in value)}]"
    variable = draft.variables.get(name)
    if isinstance(value, Spec | Tensor):
        dtype = draft.dtype_of(variable) if variable else str(value.dtype)
    if isinstance(value, Tensor) and not value.dtype.is_floating_point:
        return f"torch.tensor({value.tolist()}, dtype={dtype})"
    if not isinstance(value, Spec | Tensor):
        return f'"{value}"' if isinstance(value, str) else repr(value)
    shape = ", ".join(map(str, value.shape)) or "()"
    if value.dtype == torch.bool:
        return f"torch.rand({shape}, generator=generator) > 0.5"
    if not value.dtype.is_floating_point:
        return f"torch.zeros({shape}, dtype={dtype})"
    made = f"torch.rand({shape}, generator=generator)"
    generic = draft.generic_floats
    return f"{made}.to({draft.dtype_of(generic) if generic else value.dtype})"
