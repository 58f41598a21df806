"""`opsmith.custom_class`: turn a decorated class into a TorchBind class."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.compat.torch_library import class_maker, class_name
from opsmith.errors import ArgumentError, DeclarationError, OpsmithError
from opsmith.operators.classes import fake, runtime
from opsmith.operators.classes.read_class import Declared, read_class
from opsmith.operators.core.arguments import map_named_tensors, map_tensors
from opsmith.operators.core.operator import Kernel
from opsmith.operators.core.registry import Registry
from opsmith.operators.core.rule import Rule
from opsmith.operators.core.source_location import warn_of_a_clash
from opsmith.operators.core.validation import Validator
from opsmith.operators.defined import DefinedOperator
from opsmith.operators.dispatch.kernel import source_path
from opsmith.signature.calls import named
from opsmith.signature.class_model import ClassModel, MethodModel
from opsmith.untyped import Hint, Value

_CLASSES: Registry[CustomClass] = Registry("custom class")
_PYTHON_TYPES: dict[str, Hint] = {"int": int, "float": (int, float), "bool": bool, "str": str}


class CustomClass:
    """A custom class; calling it creates an object.

    `opsmith.custom_class` returns it. An object is a ``torch.ScriptObject``, as if created by
    ``torch.classes.ns.Name(...)``; calling this class creates the same, and validates the fields.
    The methods are attributes (`Method`), and so are the class's own static and class methods.

    Attributes:
        declared: the parsed class.
        methods: the methods by name.
    """

    def __init__(self, declared: Declared, python_class: type) -> None:
        model = declared.model
        self.declared = declared
        self.methods: dict[str, Method] = {}
        self.__name__ = python_class.__name__
        self.__qualname__ = python_class.__qualname__
        self.__module__ = python_class.__module__
        self.__doc__ = python_class.__doc__
        self.__wrapped__ = python_class
        self._arguments = named(model.constructor)
        self._validate = Validator(model.constructor)
        # Define the class first, because PyTorch may refuse it.
        runtime.define(model)
        for method in model.methods:
            self.methods[method.name] = Method(self, method, _operator(declared, method))
        fake.register(self)
        _CLASSES.add(self.name, self)

    @property
    def model(self) -> ClassModel:
        """Return the parsed declaration."""
        return self.declared.model

    @property
    def name(self) -> str:
        """Return ``namespace::Name``."""
        return self.model.qualname

    def __call__(self, *args: object, **kwargs: object) -> torch.ScriptObject:
        """Create an object; the arguments are the fields, in their order or by name.

        The object holds the given tensors, not copies.

        Raises:
            ArgumentError: a field does not fit its annotation.
            RuntimeError: PyTorch cannot convert an item of a list.
        """
        values = self._arguments(args, kwargs)
        for field in self.model.fields:
            expected = _PYTHON_TYPES.get(getattr(field.type, "kind", "") if field.is_scalar else "")
            value = values[field.name]
            if expected and not isinstance(value, expected) and value is not None:
                raise ArgumentError(
                    f"{self.name}: argument {field.name!r} is {type(value).__name__}, expected "
                    f"{field.type}."
                )
        make = class_maker(self.model.namespace, self.model.name)
        made: torch.ScriptObject = make(*values.values())
        self._validate(values)
        return made

    def __instancecheck__(self, instance: object) -> bool:
        """Return whether `instance` is an object of this class."""
        return (
            isinstance(instance, torch.ScriptObject)
            and class_name(instance) == self.model.torch_name
        )

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__") or "declared" not in vars(self):
            raise AttributeError(name)
        if name in self.methods:
            return self.methods[name]
        helper = self.declared.helpers.get(name)
        if isinstance(helper, classmethod):
            return types.MethodType(helper.__func__, self)
        if helper is not None:
            return helper.__func__ if isinstance(helper, staticmethod) else helper
        known = ", ".join(self.methods)
        raise AttributeError(f"{self.name} has no method {name!r}; there are {known}")

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}: {field.annotation}" for field in self.model.fields)
        return f"<opsmith custom class {self.name}({fields})>"

    # Copying or pickling a model that holds the class must not copy the class.
    def __deepcopy__(self, memo: dict[int, object]) -> CustomClass:
        return self

    def __copy__(self) -> CustomClass:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return get, (self.name,)

    def state(self, instance: torch.ScriptObject) -> dict[str, Value]:
        """Return the fields of an object by name, with copies of its tensors.

        Raises:
            OpsmithError: `instance` is not an object of this class.
        """
        if not self.__instancecheck__(instance):
            raise OpsmithError(f"{instance!r} is not an object of {self.name}")
        flattened: Value = instance
        return {name: map_tensors(value, _copy) for name, value in flattened.__obj_flatten__()}

    def moved(
        self,
        instance: torch.ScriptObject,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> torch.ScriptObject:
        """Create a copy with its tensors on `device`, and the floating ones in `dtype`.

        Use it because ``module.to(...)`` does not move an object that the module holds.

        Args:
            instance: an object of this class; it is not changed.
            device: the device for the tensors.
            dtype: the dtype for floating-point tensors.
        """

        def move(_: str, value: Tensor) -> Tensor:
            return value.to(device, dtype if value.is_floating_point() else None)

        return self(**map_named_tensors(self.state(instance), move))

    def libraries(self) -> tuple[Path, Path]:
        """Return the libraries that define the class in a program without Python, in loading order.

        The first is the same for every class. The second defines the class; its methods call
        operators, whose own libraries are loaded as for any operator.

        Returns:
            The paths, in the cache.

        Raises:
            BuildError: a library does not compile.
            MissingDependencyError: no compiler is installed.
        """
        return runtime.runtime_library(), runtime.class_library(self.model)


class Method:
    """A method of a custom class.

    It has the members of `opsmith.DefinedOperator` (``register_autograd``, ``register_cases``,
    ``kernels``, …), since it stands for the operator ``ns::Class_method``, whose first arguments
    are the fields.

    Attributes:
        model: the parsed declaration of the method.
        operator: the operator; a method that only returns a field has none.
    """

    def __init__(
        self, owner: CustomClass, model: MethodModel, operator: DefinedOperator | None
    ) -> None:
        self.model = model
        self._owner = owner
        self._operator = operator
        self.__name__ = model.name
        self.__doc__ = operator.__doc__ if operator is not None else None

    @property
    def name(self) -> str:
        """Return ``namespace::Class.method``."""
        return f"{self._owner.name}.{self.model.name}"

    @property
    def operator(self) -> DefinedOperator:
        """Return the operator that computes the method's results.

        Raises:
            OpsmithError: the method only returns a field.
        """
        if self._operator is None:
            raise OpsmithError(
                f"{self.name} only returns the field {self.model.getter!r}: it runs everywhere "
                "and needs no kernel"
            )
        return self._operator

    def __call__(self, instance: torch.ScriptObject, /, *args: object, **kwargs: object) -> Value:
        """Call the method of `instance`."""
        return getattr(instance, self.model.name)(*args, **kwargs)

    def register_kernel(
        self,
        device_types: str | Sequence[str],
        function: Callable[..., object] | None = None,
        *,
        source: str | Path | None = None,
        **options: object,
    ) -> Any:  # the function, or without one a decorator
        """Register an implementation, as `opsmith.DefinedOperator.register_kernel` does.

        Args:
            device_types: ``"cpu"``, ``"cuda"``, …
            function: a Python function of the operator's arguments: the fields, then the method's.
            source: a C++ or CUDA file instead, relative to the file that declares the class.
            options: see `opsmith.DefinedOperator.register_kernel`.
        """
        operator = self.operator
        register: Callable[..., Value] = operator.register_kernel
        if source is None:
            return register(device_types, function, **options)
        reference = self._owner.declared.references[self.model.name]
        options["source"] = source_path(source, reference.method, self.name)
        register(device_types, function, **options)
        if not any(p.is_tensor or p.is_tensor_list for p in operator.signature.parameters):
            # For a call without tensors, the dispatcher fails before it reaches the function that
            # builds.
            operator.build()
        return None

    def __getattr__(self, name: str) -> Value:
        if name.startswith("__") or "_operator" not in vars(self):
            raise AttributeError(name)
        return getattr(self.operator, name)

    def __repr__(self) -> str:
        return f"<opsmith method {self.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (self._owner, self.model.name)

    def __deepcopy__(self, memo: dict[int, object]) -> Method:
        return self

    @property
    def native(self) -> Mapping[str, Kernel]:
        """Return the compiled kernels by device type; empty if the method runs in Python only."""
        if self._operator is None:
            return {}
        return {
            device: kernel
            for device, kernel in self._operator.kernels.items()
            if kernel.source is not None
        }


def _copy(value: Tensor) -> Tensor:
    return value.detach().clone().requires_grad_(value.requires_grad)


def _operator(declared: Declared, method: MethodModel) -> DefinedOperator | None:
    if method.operator is None:
        return None
    operator: DefinedOperator = DefinedOperator(
        method.operator,
        declared.references[method.name],
        rule=Rule(reference=declared.options[method.name].autograd == "reference"),
        device_types=None,
        tags=(),
    )
    operator.fields = frozenset(field.name for field in declared.model.fields)
    return operator


def custom_class(
    qualname: str, python_class: type | None = None, /
) -> Callable[[type], CustomClass] | CustomClass:
    """Declare a class with state and methods, which models can hold in every runtime.

    The annotated attributes of the class are its fields, which the constructor takes. Its methods
    are annotated like operators (`opsmith.op`); their bodies are the references, and kernels are
    registered by ``Class.method.register_kernel``. `opsmith.method` declares what annotations
    cannot express.

    Args:
        qualname: ``namespace::Name``.
        python_class: the class; without it `custom_class` is a decorator.

    Returns:
        A `CustomClass`.

    Raises:
        DeclarationError: an annotation is not supported; the message quotes it.
        BuildError: the library that defines classes, built once per PyTorch, does not compile.
        MissingDependencyError: the library needs building, and no compiler is installed.

    Example:
        >>> import torch
        >>> import opsmith
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> @opsmith.custom_class("docs::Scale")
        ... class Scale:
        ...     factor: float
        ...
        ...     def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        ...         return x * self.factor
        >>> torch.classes.docs.Scale(2.0).forward(torch.ones(2))
        tensor([2., 2.])
    """
    if callable(qualname):
        name = getattr(qualname, "__name__", "MyClass")
        raise DeclarationError(
            f"{name}: opsmith.custom_class needs the class's name, with a namespace of yours: "
            f'write @opsmith.custom_class("my_ops::{name}")'
        )
    if python_class is None:
        return functools.partial(custom_class, qualname)  # type: ignore[return-value]
    declared = read_class(python_class, qualname)
    warn_of_a_clash(qualname, find(qualname), python_class, stacklevel=3)
    return CustomClass(declared, python_class)


all_classes = _CLASSES.all
find = _CLASSES.find


def get(name: str) -> CustomClass:
    """Return the class called ``namespace::Name``.

    Raises:
        OpsmithError: no class of that name was declared.
    """
    return _CLASSES.get(name)


def class_of(instance: object) -> CustomClass | None:
    """Return the custom class of an object or a fake object; `None` if opsmith lacks it."""
    name = getattr(instance, "script_class_name", None)
    if isinstance(instance, torch.ScriptObject):
        name = class_name(instance)
    for found in _CLASSES.all():
        if found.model.torch_name == name:
            return found
    return None
