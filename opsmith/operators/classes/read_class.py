"""Parse a decorated class into a `ClassModel` and the references of its methods."""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar, get_args, get_origin

from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from opsmith.errors import DeclarationError
from opsmith.operators.classes.reference import Reference, state_type
from opsmith.signature import (
    Parameter,
    Result,
    Signature,
    TensorListType,
    TensorType,
    hints,
    signature_of,
    split_qualname,
    validity,
)
from opsmith.signature.class_model import ClassModel, MethodModel, Returned, is_number
from opsmith.signature.hints import AnnotationProblem
from opsmith.signature.sizes import expressions
from opsmith.untyped import Arguments, Hint

_NUMBERS: dict[Hint, tuple[Returned, Hint]] = {
    int: ("int", Int64[Tensor, ""]),
    float: ("float", Float64[Tensor, ""]),
    bool: ("bool", Bool[Tensor, ""]),
}
_UPDATED: dict[str, Hint] = dict(_NUMBERS.values())
# The attributes that Python adds to a class.
_PYTHONS_OWN = frozenset(
    """__module__ __qualname__ __doc__ __dict__ __weakref__ __annotations__ __firstlineno__
    __static_attributes__ __annotate__ __annotate_func__ __annotations_cache__ __parameters__
    __orig_bases__ __classcell__ __conditional_annotations__""".split()
)
Function = TypeVar("Function", bound=Callable[..., object])


@dataclass(frozen=True)
class MethodOptions:
    """The options of a method that were given to `opsmith.method`."""

    mutates: tuple[str, ...] = ()
    autograd: str | None = None
    parallel_dims: tuple[str, ...] = ()
    data_dependent: tuple[str, ...] = ()


@dataclass
class Declared:
    """The result of parsing a class.

    Attributes:
        model: the parsed declaration.
        references: the reference of each method; getters have none.
        options: the options of each method.
        helpers: the class's other members: functions that begin with an underscore, static and
            class methods.
        state: the class of the objects on which references run.
    """

    model: ClassModel
    references: dict[str, Reference]
    options: dict[str, MethodOptions]
    helpers: dict[str, Hint]
    state: type


def method(
    *,
    mutates: Sequence[str] = (),
    autograd: str | None = None,
    parallel_dims: Sequence[str] = (),
    data_dependent: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Declare more about a method of a custom class than its annotations can.

    Args:
        mutates: the fields that the method changes: ints, floats and bools that it assigns, and
            tensors into which it writes.
        autograd: ``"reference"`` takes every derivative from the method's body.
        parallel_dims: see `opsmith.op`.
        data_dependent: see `opsmith.op`.

    Raises:
        DeclarationError: an argument is a string instead of a tuple of strings.
    """
    for option, value in (
        ("mutates", mutates),
        ("parallel_dims", parallel_dims),
        ("data_dependent", data_dependent),
    ):
        if isinstance(value, str):
            raise DeclarationError(
                f'opsmith.method({option}={value!r}) is a string; write {option}=("{value}",)'
            )
    options = MethodOptions(tuple(mutates), autograd, tuple(parallel_dims), tuple(data_dependent))

    def mark(function: Function) -> Function:
        function.__dict__["__opsmith_method__"] = options
        return function

    return mark


def read_class(python_class: type, qualname: str) -> Declared:
    """Parse the annotations of a class and of its methods.

    Raises:
        DeclarationError: an annotation is not supported; the message quotes it and suggests a fix.
    """
    return _ClassReader(python_class, qualname).read()


@dataclass
class _ClassReader:
    python_class: type
    qualname: str
    options: dict[str, MethodOptions] = field(default_factory=dict)
    references: dict[str, Reference] = field(default_factory=dict)

    def read(self) -> Declared:
        namespace, name = split_qualname(self.qualname)
        self._refuse_what_is_no_plain_class()
        functions, helpers = self._members()
        self.annotations = self._field_annotations(functions)
        self.constructor = self._constructor()
        self.fields = self.constructor.parameters
        self.state = state_type(self.python_class)
        methods = [self._method(key, function) for key, function in functions.items()]
        if not methods:
            self.refuse("has no method; a class without one is a dictionary")
        doc = inspect.getdoc(self.python_class) or ""
        model = ClassModel(namespace, name, self.constructor, tuple(methods), doc)
        self._refuse_shapes_that_change(model)
        return Declared(model, self.references, self.options, helpers, self.state)

    def refuse(self, message: str) -> NoReturn:
        raise DeclarationError(f"{self.qualname}: {message}")

    def _refuse_what_is_no_plain_class(self) -> None:
        found = self.python_class
        if not isinstance(found, type):
            self.refuse(f"opsmith.custom_class decorates a class, not {type(found).__name__}")
        if dataclasses.is_dataclass(found):
            self.refuse("take @dataclass off: the constructor follows from the fields already")
        if found.__bases__ != (object,):
            bases = ", ".join(base.__name__ for base in found.__bases__)
            self.refuse(
                f"inherits from {bases}; a custom class is all there is of it, so that a runtime "
                "without Python can have it. Write its fields and methods into it"
            )

    def _members(self) -> tuple[dict[str, types.FunctionType], dict[str, object]]:
        functions: dict[str, types.FunctionType] = {}
        helpers: dict[str, Hint] = {}
        for name, value in vars(self.python_class).items():
            if name in _PYTHONS_OWN:
                continue
            if name == "__init__":
                self.refuse(
                    "defines __init__; the constructor takes the fields, in their order. Compute "
                    "them in a classmethod that calls cls(...)"
                )
            if name.startswith("__") and name.endswith("__"):
                self.refuse(f"defines {name}, which a TorchBind class cannot have; name a method")
            if isinstance(value, property):
                self.refuse(
                    f"{name!r} is a property; make it a method (fields can be read as attributes)"
                )
            if isinstance(value, types.FunctionType) and not name.startswith("_"):
                functions[name] = value
            elif callable(value) or isinstance(value, staticmethod | classmethod):
                helpers[name] = value
            elif name not in inspect.get_annotations(self.python_class):
                self.refuse(
                    f"'{name} = {value!r}' has no annotation; a field has one ({name}: "
                    f"{type(value).__name__} = {value!r}), a constant stands outside the class"
                )
        return functions, helpers

    def _field_annotations(self, functions: Mapping[str, types.FunctionType]) -> dict[str, object]:
        scope = dict(vars(sys.modules.get(self.python_class.__module__, types.ModuleType(""))))
        for function in functions.values():
            # The methods' closures contain the names that a class declared in a function can use.
            scope.update(function.__globals__)
            scope.update(inspect.getclosurevars(function).nonlocals)
        resolved: dict[str, object] = {}
        for name, annotation in inspect.get_annotations(self.python_class).items():
            if isinstance(annotation, str):
                try:
                    annotation = eval(annotation, scope)
                except Exception as error:
                    self.refuse(f"field '{name}: {annotation}' does not evaluate: {error}")
            if typing.ClassVar in (annotation, get_origin(annotation)):
                self.refuse(f"field {name!r} is a ClassVar; put it outside the class")
            if name in functions:
                self.refuse(f"{name!r} is both a field and a method; rename one of them")
            resolved[name] = annotation
        return resolved

    def _constructor(self) -> Signature:
        parameters, annotations = [], dict(self.annotations)
        for name in annotations:
            default = vars(self.python_class).get(name, inspect.Parameter.empty)
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            parameters.append(inspect.Parameter(name, kind, default=default))
        seen = ""
        for parameter in parameters:
            if parameter.default is not parameter.empty:
                seen = parameter.name
            elif seen:
                self.refuse(
                    f"field {parameter.name!r} has no default and stands after {seen!r}, which has"
                )
        # signature_of requires a return type; this operator is never created.
        described = _Described(self.python_class, parameters, {**annotations, "return": Tensor})
        try:
            signature = signature_of(described, self.qualname)
        except DeclarationError as error:
            raise DeclarationError(str(error).replace("parameter ", "field ")) from None
        return dataclasses.replace(signature, results=())

    def _method(self, name: str, function: types.FunctionType) -> MethodModel:
        options = function.__dict__.get("__opsmith_method__", MethodOptions())
        self.options[name] = options
        label = f"{self.qualname}.{name}"

        def refuse(message: str) -> NoReturn:
            raise DeclarationError(f"{label}: {message}")

        own = list(inspect.signature(function).parameters.values())
        if not own or own[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            refuse("takes no self; a method does")
        annotations = hints.resolve(function, refuse)
        field_names = [parameter.name for parameter in self.fields]
        for parameter in own[1:]:
            if parameter.name in field_names:
                refuse(f"parameter {parameter.name!r} has the name of a field; rename it")
        read = _field_that_is_returned(function)
        if read in field_names and len(own) == 1:
            return self._getter(name, read, annotations.get("return"), refuse)
        mutates = self._mutated(options.mutates, refuse)
        returns, arrays = self._returns(annotations.get("return", inspect.Parameter.empty), refuse)
        changed = [self._field(key) for key in mutates]
        updates = [parameter for parameter in changed if is_number(parameter)]
        arrays += [_UPDATED[getattr(parameter.type, "kind", "")] for parameter in updates]
        parameters = [
            *(
                inspect.Parameter(key, inspect.Parameter.POSITIONAL_OR_KEYWORD)
                for key in self.annotations
            ),
            *(_after_fields(parameter) for parameter in own[1:]),
        ]
        combined = {
            **self.annotations,
            **{
                parameter.name: annotations[parameter.name]
                for parameter in own[1:]
                if parameter.name in annotations
            },
        }
        combined["return"] = _joined(arrays)
        if options.autograd not in (None, "reference"):
            refuse(
                f'autograd={options.autograd!r}; there is "reference", or register_autograd for a '
                "backward written by hand"
            )
        tensors = [p.name for p in changed if isinstance(p.type, TensorType)]
        if options.autograd and tensors:
            refuse(
                f'autograd="reference", but it writes into {tensors[0]!r}; a mutating operator '
                "has no gradient"
            )
        reference = Reference(
            function, label, self.state, self.fields, mutates, returns, parameters, combined
        )
        operator = f"{self.qualname}_{name}"
        try:
            signature = signature_of(
                reference,
                operator,
                mutates_args=tensors,
                data_dependent=options.data_dependent,
                parallel_dims=options.parallel_dims,
            )
        except DeclarationError as error:
            text = str(error).replace(operator, label, 1).replace("mutates_args", "mutates")
            raise DeclarationError(text) from None
        signature = _with_names(signature, len(returns), [p.name for p in updates])
        validity.check(signature, refuse)
        for position, result in enumerate(signature.results[: len(returns)]):
            if isinstance(result.type, TensorListType):
                returns[position] = "tensors"
        self.references[name] = reference
        own_names = {parameter.name for parameter in own[1:]}
        return MethodModel(
            name,
            tuple(p for p in signature.parameters if p.name in own_names),
            tuple(returns),
            mutates,
            None,
            signature,
        )

    def _getter(
        self, name: str, read: str, annotation: object, refuse: Callable[[str], NoReturn]
    ) -> MethodModel:
        known = self._field(read)
        if annotation is None:
            refuse(f"returns the field '{read}: {known.annotation}'; annotate it -> the same")
        try:
            part = hints.strip_result(annotation)
            type_ = hints.type_of(part.base, ())
        except AnnotationProblem as problem:
            refuse(f"the return annotation {hints.show(annotation)}: {problem}")
        plain = isinstance(type_, TensorType) and isinstance(known.type, TensorType)
        if (type_, part.optional) != (known.type, known.optional) and not plain:
            refuse(
                f"returns the field '{read}: {known.annotation}', but is annotated "
                f"-> {hints.show(annotation)}"
            )
        return MethodModel(name, getter=read)

    def _field(self, name: str) -> Parameter:
        return self.constructor.parameter(name)

    def _mutated(
        self, names: Collection[str], refuse: Callable[[str], NoReturn]
    ) -> tuple[str, ...]:
        fields = [parameter.name for parameter in self.fields]
        for name in names:
            if name not in fields:
                known = ", ".join(map(repr, fields)) or "none"
                refuse(f"mutates names {name!r}, which is not a field; there are {known}")
            known_field = self._field(name)
            if not isinstance(known_field.type, TensorType) and not is_number(known_field):
                refuse(
                    f"mutates names '{name}: {known_field.annotation}'; what a method can change "
                    "is an int, float, bool or tensor. Keep changing lists in a tensor"
                )
        return tuple(name for name in fields if name in names)

    def _returns(
        self, annotation: object, refuse: Callable[[str], NoReturn]
    ) -> tuple[list[Returned], list[object]]:
        if annotation is inspect.Parameter.empty:
            refuse("the return annotation is missing; write the result's shape, int, or None")
        if annotation is None or annotation is type(None):
            return [], []
        members: tuple[object, ...] = (annotation,)
        if get_origin(annotation) is tuple and get_args(annotation)[-1] is not ...:
            members = get_args(annotation)
        returns: list[Returned] = []
        arrays = []
        for member in members:
            if member is str:
                refuse(
                    "the return annotation str: only a method that does nothing but return a "
                    "field may return a str; others return tensors, int, float or bool"
                )
            number = _NUMBERS.get(member) if isinstance(member, type) else None
            kind, array = number or ("tensor", member)
            returns.append(kind)
            arrays.append(array)
        return returns, arrays

    def _refuse_shapes_that_change(self, model: ClassModel) -> None:
        """Refuse sizes that depend on a mutated field, since a traced program keeps its sizes."""
        for described in model.methods:
            signature = described.operator
            if signature is None:
                continue
            for owner in signature.owners:
                called = "the result" if isinstance(owner, Result) else f"parameter {owner.name!r}"
                for expression in owner.computed:
                    for scalar in expressions.scalars_of(expression):
                        if scalar.parameter in model.mutable:
                            self.refuse(
                                f"method {described.name!r}: {called} {owner.tensor_type}: a size "
                                f"cannot depend on {scalar.parameter!r}, which a method changes: a "
                                "traced program would keep the size of today"
                            )


class _Described:
    """A stand-in for a function, so that `signature_of` can parse fields as parameters."""

    def __init__(
        self, python_class: type, parameters: Sequence[inspect.Parameter], annotations: Arguments
    ) -> None:
        self.__name__ = python_class.__name__
        self.__doc__ = python_class.__doc__
        self.__annotations__ = dict(annotations)
        self.__signature__ = inspect.Signature(list(parameters))

    def __call__(self) -> None:
        """Do nothing; inspect.signature requires a callable."""


def _after_fields(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return `parameter` without positional-only kind, since fields before it can be keywords."""
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        return parameter.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return parameter


def _joined(arrays: Sequence[object]) -> object:
    if not arrays:
        return None
    return arrays[0] if len(arrays) == 1 else tuple.__class_getitem__(tuple(arrays))


def _with_names(signature: Signature, returned: int, updates: Sequence[str]) -> Signature:
    """Name the operator's results: the method's own as usual, then ``new_<field>``."""
    names = hints.result_names(returned, signature.by_name) if returned else []
    names += [f"new_{field}" for field in updates]
    results = tuple(
        dataclasses.replace(result, name=name)
        for result, name in zip(signature.results, names, strict=True)
    )
    return dataclasses.replace(signature, results=results)


def _field_that_is_returned(function: types.FunctionType) -> str | None:
    """Return the attribute that a method returns if its body is ``return self.<attribute>``."""
    code, pattern = function.__code__, _returns_attribute.__code__
    same = code.co_code == pattern.co_code and code.co_varnames == code.co_varnames[:1]
    return code.co_names[0] if same and len(code.co_names) == 1 else None


def _returns_attribute(self):  # type: ignore[no-untyped-def]
    return self.attribute
