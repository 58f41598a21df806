"""The declaration of a class as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsmith.operators.drafting import writing
from opsmith.operators.drafting.torchbind.methods import Method
from opsmith.operators.drafting.torchbind.state import Class, torch_name
from opsmith.operators.drafting.writing import Draft


@dataclass(frozen=True)
class MethodDraft:
    """A method, and what was found of it as an operator."""

    method: Method
    draft: Draft

    @property
    def returns(self) -> list[str]:
        """What it returns, as annotations."""
        found = zip(self.draft.results, self.draft.listed, strict=True)
        tensors = (writing.result(*one, listed) for one, listed in found)
        return [next(tensors) if "Tensor" in one else one for one in self.method.returns]


def class_file(
    owner: Class, methods: Sequence[MethodDraft], left_out: Sequence[str], modules: Sequence[str]
) -> str:
    """A file that declares a class whose methods call the original's.

    Args:
        owner: the original.
        methods: those that are declared.
        left_out: what is said of those that are not.
        modules: what defines the original, to be imported.
    """
    namespace, name = owner.name.split("::")
    short = name.lstrip("_")
    lines = [
        f'@opsmith.custom_class("{namespace.strip("_")}_declared::{short}")',
        f"class {short}:",
    ]
    first = methods[0].draft
    lines += [f"    {one.name}: {writing.type_of(first, one)}" for one in owner.fields]
    lines += [*([""] if owner.fields else []), *_conversion(owner), *_original(owner)]
    for one in methods:
        lines += ["", *_method(owner, one)]
    for one in methods:
        at = f"{short}.{one.method.name}"
        lines += ["", "", *writing.cases(one.draft, at, f"{one.method.name}_cases")]
    notes = [
        f"PyTorch has the original under its name: {short}.of(original) makes an object of this "
        "class, which models can hold where they are compiled and exported."
        if owner.reads
        else "Nothing tells the state of an original object (def_readonly, def_pickle): make an "
        "object of this class from its fields."
    ]
    notes += [f"Left out: {one}." for one in left_out]
    unknown = [one.method.name for one in methods if "Tensor" in one.returns]
    if unknown:
        notes.append(
            f"To be traced, {', '.join(unknown)} wants the shapes of its results: write them, or "
            "register_fake."
        )
    imports = [f"import {one}  # noqa: F401" for one in modules]
    drafts = [one.draft for one in methods]
    return writing.file(drafts, owner.name, imports, lines, notes)


def _conversion(owner: Class) -> list[str]:
    if not owner.reads:
        return []
    return [
        "    @classmethod",
        "    def of(cls, original: torch.ScriptObject):",
        *_state(owner),
        f"        return cls({', '.join(owner.reads)})",
        "",
    ]


def _state(owner: Class) -> list[str]:
    return [f"        state = {owner.source}"] if owner.source else []


def _original(owner: Class) -> list[str]:
    fields = [f"self.{one.name}" for one in owner.fields]
    lines = ["    def _original(self) -> torch.ScriptObject:"]
    if not owner.pickled:
        path = owner.name.replace("::", ".")
        return [*lines, f"        return torch.classes.{path}({', '.join(fields)})"]
    return [
        *lines,
        "        made = torch.ScriptObject.__new__(torch.ScriptObject)",
        f"        state = {owner.pickled.format(*fields)}",
        f'        made.__setstate__((state, "{torch_name(owner.name)}"))',
        "        return made",
    ]


def _method(owner: Class, one: MethodDraft) -> list[str]:
    method, draft = one.method, one.draft
    own = [f"{argument.name}: {writing.type_of(draft, argument)}" for argument in method.own]
    for k, default in writing.defaults(draft).items():
        if k >= len(owner.fields):
            own[k - len(owner.fields)] += f" = {default}"
    options = [f"mutates={writing.names(method.changes)}"] if method.changes else []
    if draft.data_dependent:
        options.append(f"data_dependent={writing.names(draft.data_dependent)}")
    lines = [f"    @opsmith.method({', '.join(options)})"] if options else []
    lines += _opening(method.name, ["self", *own], _joined(one.returns))
    arguments = ", ".join(argument.name for argument in method.own)
    call = f"{method.name}({arguments})"
    if method.shares:
        call += ".clone()"  # as operators return memory of their own
    if not method.changes:
        returned = "return " if one.returns else ""
        return [*lines, f"        {returned}self._original().{call}"]
    read = {one.name: read for one, read in zip(owner.fields, owner.reads, strict=True)}
    lines += [
        "        original = self._original()",
        f"        {'returned = ' if one.returns else ''}original.{call}",
        *_state(owner),
        *(f"        self.{name} = {read[name]}" for name in method.changes),
    ]
    return [*lines, "        return returned"] if one.returns else lines


def _opening(name: str, parameters: Sequence[str], returns: str) -> list[str]:
    line = f"    def {name}({', '.join(parameters)}) -> {returns}:"
    if len(line) <= 100:
        return [line]
    return [f"    def {name}(", *(f"        {one}," for one in parameters), f"    ) -> {returns}:"]


def _joined(returns: Sequence[str]) -> str:
    if not returns:
        return "None"
    return returns[0] if len(returns) == 1 else f"tuple[{', '.join(returns)}]"
