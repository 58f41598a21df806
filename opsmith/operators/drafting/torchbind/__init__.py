"""A declaration to start from, of a class that C++ registered with TorchBind."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opsmith.errors import DeclarationError
from opsmith.operators.drafting import describing, dimensions, limits
from opsmith.operators.drafting.subject import Argument, Subject
from opsmith.operators.drafting.torchbind import writing
from opsmith.operators.drafting.torchbind.methods import Method, of_method
from opsmith.operators.drafting.torchbind.state import Class, constructor, of_class, schemas_of


def is_class(name: str) -> bool:
    """Whether C++ registered a class ``namespace::Name``."""
    try:
        constructor(name)
    except (RuntimeError, TypeError):
        return False
    return True


def draft_class(name: str, example: str | None = None, modules: Sequence[str] = ()) -> str:
    """The declaration of a TorchBind class, as a Python file.

    Its fields are the constructor's arguments, or else what is pickled; its methods make the
    original of the fields, and call it.

    Args:
        name: ``my_ops::Scale``.
        example: the constructor's arguments as Python, then calls of methods, separated by
            semicolons: ``2, torch.ones(2); forward(torch.rand(2, 3))``. What it leaves out is
            looked for.
        modules: what the file has to import so that the class is there.

    Raises:
        DeclarationError: no object of it can be made; its state is nothing that fields can hold;
            or no method can be declared.
    """
    constructed, calls = _split(name, example)
    owner = of_class(name, constructed)
    methods: list[Method] = []
    left_out: list[str] = []
    wanted = _public(owner)
    for unknown in calls.keys() - wanted.keys():
        raise DeclarationError(
            f"{name}: the example calls {unknown!r}; its methods are {', '.join(wanted)}"
        )
    for key, schema in wanted.items():
        try:
            methods.append(of_method(owner, schema, calls.get(key)))
        except DeclarationError as error:
            if key in calls:
                raise
            left_out.append(str(error).removeprefix(f"{name}.").rstrip("."))
    if not methods:
        why = "".join(f"\n  {one}" for one in left_out) or " it has none but what reads its state"
        raise DeclarationError(f"{name}: none of its methods can be declared:{why}")
    return writing.class_file(owner, _drafts(owner, methods), left_out, modules)


def _public(owner: Class) -> dict[str, Any]:
    """The methods to declare: no constructor, nor what reads and sets an attribute."""
    attributes = owner.make(owner.real)._properties()
    accessors = {one.getter for one in attributes} | {one.setter for one in attributes}
    names = {one.name for one in accessors if one}
    found = schemas_of(owner.name).items()
    return {key: one for key, one in found if not key.startswith("_") and key not in names}


def _split(name: str, example: str | None) -> tuple[str | None, dict[str, str]]:
    """The constructor's arguments, and the arguments of each method that an example calls."""
    if example is None:
        return None, {}
    constructed, *rest = _statements(name, example)
    calls = {}
    for one in rest:
        call = ast.parse(one, mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise DeclarationError(
                f"{name}: the example has {one!r}, expected a call of a method: forward(...)"
            )
        arguments = [ast.unparse(value) for value in call.args]
        arguments += [f"{value.arg}={ast.unparse(value.value)}" for value in call.keywords]
        calls[call.func.id] = ", ".join(arguments)
    return constructed, calls


def _statements(name: str, example: str) -> list[str]:
    first, semicolon, rest = example.partition(";")
    while True:
        try:
            ast.parse(f"_({first})")
            parsed = ast.parse(rest.strip())
        except SyntaxError as error:
            if not semicolon:
                raise DeclarationError(
                    f"{name}: the example {example!r} cannot be read ({error.msg}). Write the "
                    "constructor's arguments, then calls: 2, torch.ones(2); forward(torch.rand(3))"
                ) from error
            more, semicolon, rest = rest.partition(";")
            first += f";{more}"
        else:
            return [first.strip(), *(ast.unparse(one) for one in parsed.body)]


def _drafts(owner: Class, methods: Sequence[Method]) -> list[writing.MethodDraft]:
    """What the declaration says of each method, with sizes that are named once for all of them."""
    changing = {field for one in methods for field in one.changes}
    subjects = [one.subject(owner, sorted(changing)) for one in methods]
    every = _every(owner, methods, subjects)
    given = dict(owner.values)
    for one in methods:
        given |= {_joined(one, key): value for key, value in one.values.items()}
    values = limits.with_optional(every, dimensions.specs(given))
    sizes, device = describing.sizes_of(every, values)
    fields = [one.name for one in owner.fields]
    shared = describing.Shared(
        describing.limits_of(every, every.arguments[: len(fields)], sizes),
        limits.dtypes(every, values),
        not any(one.is_tensors for one in owner.fields),
    )
    drafts = []
    for one, subject in zip(methods, subjects, strict=True):
        example = {**owner.values, **one.values}
        draft = describing.described(subject, _own(sizes, fields, one), device, example, shared)
        sources = {**owner.sources, **one.sources}
        drafts.append(writing.MethodDraft(one, replace(draft, sources=sources)))
    return drafts


def _joined(method: Method, argument: str) -> str:
    return f"{method.name}.{argument}"


def _every(owner: Class, methods: Sequence[Method], subjects: Sequence[Subject]) -> Subject:
    """A call of every method, each of an object of its own."""
    count = len(owner.fields)

    def function(*values: Any) -> tuple[Any, ...]:
        results: list[Any] = []
        at = count
        for one, subject in zip(methods, subjects, strict=True):
            results += subject.function(*values[:count], *values[at : at + len(one.own)])
            at += len(one.own)
        return tuple(results)

    own: list[Argument] = []
    for one in methods:
        own += [replace(argument, name=_joined(one, argument.name)) for argument in one.own]
    fields = subjects[0].arguments[:count]
    return Subject(owner.name, (*fields, *own), function, has_fake=False)


def _own(sizes: dimensions.Sizes, fields: Sequence[str], method: Method) -> dimensions.Sizes:
    """The sizes of one method's call."""
    names = {one: one for one in fields}
    names |= {_joined(method, one.name): one.name for one in method.own}
    return dimensions.Sizes(
        {(names[key], axis): size for (key, axis), size in sizes.names.items() if key in names},
        {names[key]: value for key, value in sizes.values.items() if key in names},
    )
