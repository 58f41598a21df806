"""The class of all operators, declared with opsmith or adopted."""

from __future__ import annotations

import functools
import sys
import typing
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from typing_extensions import ParamSpec, TypeVar

from opsmith import kernels
from opsmith.compat.torch_library import CustomOpDef
from opsmith.compat.torch_ops import OpOverload, entry_of, out_of
from opsmith.errors import DeclarationError, OpsmithError, no_such
from opsmith.operators.core.arguments import IN_GRAPHS, MANY, can_be_functionalised
from opsmith.operators.core.lazy import refusal
from opsmith.operators.core.rule import Rule
from opsmith.operators.core.source_location import where_written
from opsmith.operators.core.unusable import is_cut, number_places
from opsmith.signature import Signature
from opsmith.untyped import Args, Arguments, Value

if TYPE_CHECKING:
    from opsmith.operators.core.author_rules import CostRule, DistributionRule
    from opsmith.operators.core.onnx_translation import OnnxTranslation

Cases = Callable[[torch.dtype, int], Iterable[Arguments]]

# An operator that is named without them takes and returns anything.
P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)  # what an operator returns whose function is not known
F = TypeVar("F", bound=Callable[..., Value])


class Kernel(Protocol):
    """The interface of kernels, on which operators, checks and targets rely."""

    @property
    def device(self) -> str:
        """Return the device type, or ``"reference"`` for the decorated function itself."""

    @property
    def where(self) -> str:
        """Return the location of the kernel's source, for messages."""

    @property
    def calls(self) -> int:
        """Return how often the kernel ran in this process."""

    @property
    def source(self) -> kernels.KernelSource | None:
        """Return the source that is compiled, or `None` if the kernel needs Python to run."""

    @property
    def entry(self) -> kernels.KernelSource | None:
        """Return the source if any runtime can call the compiled kernel, else `None`."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the generic dtypes that the loaded kernel supports; empty if they are unknown."""

    @property
    def dissolves(self) -> bool:
        """Return whether compiled code inlines the kernel, so that its calls are not counted."""

    def implementation(self, operator: RegisteredOperator) -> Callable[..., Value]:
        """Return the function that the dispatcher calls, at least until the kernel is built."""

    def emulated(self, operator: RegisteredOperator, seed: int = 0) -> Callable[..., Value] | None:
        """Return a function that emulates the kernel on CPU tensors, without the kernel's device.

        Args:
            seed: seeds the choices that the device leaves open, if the emulation varies them.

        Returns:
            A function of the operator's arguments; `None` if the kernel cannot be emulated.
        """

    def build(self, operator: RegisteredOperator) -> Path | None:
        """Build the kernel, load it and install it in the operator.

        Returns:
            The library's path; `None` if the kernel needs no building.

        Raises:
            BuildError: the kernel does not compile or load.
            MissingDependencyError: a tool that building needs is missing.
            DeclarationError: the source defines the operator with another schema.
        """


class Operator(CustomOpDef, Generic[P, R]):
    """An operator, callable like the function it was declared from.

    `opsmith.op` declares an operator; `opsmith.adopt` wraps an operator that another library
    defined, to which neither kernels nor derivatives can be added. A call goes straight to
    PyTorch's dispatcher, like a call of ``torch.ops.namespace.name``. The class derives from
    ``torch.library.CustomOpDef``, so that ``torch.library.opcheck`` and similar functions accept
    its instances. For type checkers, the class is generic over the function's parameters and its
    result.

    Attributes:
        signature: the parsed declaration.
        reference: the decorated function, the operator in plain PyTorch. It defines the correct
            results, and runs wherever no kernel is registered.
        kernels: the registered kernels by device type, and the reference under ``"reference"``.
        variants: the further variants of compiled kernels, by names such as ``cpu[TILE=8]``.
        rule: the rule by which the operator is differentiated.
        cases: the functions given to `register_cases`.
        only_registered_cases: whether checks use registered cases only, and no random arguments.
        sizes: the sizes given to `register_sizes`.
        written_fake: the hand-written fake kernel; `None` to derive it from the declaration.
        onnx_translations: the translations given to `register_onnx`.
        written_sharding: the function given to `register_sharding`; `None` to derive sharding rules
            from the claims of the declaration.
        cost: the rule given to `register_cost`, which computes a call's `Cost`; `None` without.
        distribution: the rule given to `register_distribution`; `None` without.
        explained: whether the reference shows how results are computed; the reference of an
            adopted operator may just call the operator.
    """

    explained = True

    def __init__(
        self, signature: Signature, reference: Callable[P, R], overload: OpOverload, kernel: Kernel
    ) -> None:
        # CustomOpDef.__init__ would define the operator a second time.
        functools.update_wrapper(self, reference)
        self.signature = signature
        self.reference = reference
        self.rule = Rule()
        self.cases: list[Cases] = []
        self.only_registered_cases = False
        self.sizes: list[Mapping[str, int]] = []
        self.cost: CostRule | None = None
        self.distribution: DistributionRule | None = None
        self.onnx_translations: list[OnnxTranslation] = []
        self.written_fake: Callable[..., object] | None = None
        self.written_sharding: Callable[..., Value] | None = None
        self.kernels: dict[str, Kernel] = {"reference": kernel}
        self.variants: dict[str, Any] = {}  # each a `NativeKernel`, of a floor above this one
        self._opoverload = overload
        self._entry = entry_of(overload)
        self._earlier: weakref.WeakSet[Operator[..., Value]] = weakref.WeakSet()
        self._number_places = number_places(signature)
        self._writes = bool(signature.mutated)

    def forward_to(self, later: RegisteredOperator) -> None:
        """Have this object call the operator that took its name: its own overload is gone.

        PyTorch frees an operator without registrations, and the overload would call that memory.
        """
        later._earlier = weakref.WeakSet([self, *self._earlier])
        for one in later._earlier:
            one._opoverload, one._entry = later._opoverload, later

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the operator; pass the arguments as declared.

        Raises:
            ArgumentError: an argument does not fit the declaration.
            OpsmithError: the kernel failed.
        """
        if is_dynamo_compiling():
            for value in (*args, *kwargs.values()):
                for item in value if isinstance(value, MANY) else (value,):
                    if isinstance(item, Tensor):
                        # Dynamo compares with each object that is named here before each call.
                        fails = item.is_nested or item.is_mkldnn
                        if fails or (self._writes and not can_be_functionalised(item)):
                            self._refuse_untraced(args, kwargs)
                    elif not isinstance(item, IN_GRAPHS):
                        self._refuse_untraced(args, kwargs)
            return self._opoverload(*args, **kwargs)  # type: ignore[no-any-return]
        for place, name, kind in self._number_places:
            value = args[place] if place < len(args) else kwargs.get(name)
            if type(value) is not kind and is_cut(value, kind):
                refused = refusal()(self.signature, args, kwargs, TypeError("truncated"))
                if refused is not None:
                    raise refused
        try:
            return self._entry(*args, **kwargs)  # type: ignore[no-any-return]
        except OpsmithError:
            raise
        except Exception as error:
            refused = refusal()(self.signature, args, kwargs, error)
            if refused is None:
                raise
            raise refused from None

    def _refuse_untraced(self, args: Args, kwargs: Arguments) -> NoReturn:
        """Raise an `ArgumentError` that names the value which no graph of Dynamo's can contain.

        Dynamo, or the graph when it runs, would name neither operator nor argument. Unless the
        whole function must be one graph, Dynamo leaves the refused call to Python, which refuses
        it as any other, or accepts it.
        """
        from opsmith.operators.core.argument_errors import not_in_graphs

        raise not_in_graphs(self.signature, args, kwargs)

    @functools.cached_property
    def arguments(self) -> Callable[[Args, Arguments], dict[str, Value]]:
        """Return a function from a call's ``(args, kwargs)`` to all its arguments by name."""
        from opsmith.signature.calls import named

        return named(self.signature)

    def with_drawn(self, args: Args, kwargs: Arguments) -> tuple[Args, Arguments]:
        """Return a call's arguments, completed by what the call draws from a generator."""
        return args, kwargs

    # Copying or pickling a model that holds an operator must not copy the operator.
    def __copy__(self) -> Operator[P, R]:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Operator[P, R]:
        return self

    @property
    def name(self) -> str:
        """Return ``namespace::name``."""
        return self.signature.qualname

    _qualname = name  # the name that torch.library uses

    @property
    def overload(self) -> OpOverload:
        """Return the overload that calls use: ``torch.ops.namespace.name.default``."""
        return self._opoverload

    @property
    def out(self) -> OpOverload:
        """Return the out variant, which writes into given tensors: ``op.out(x, out=memory)``.

        It is the overload ``torch.ops.namespace.name.out``. Each result is a keyword argument:
        ``out``, or ``out0``, ``out1``, … if there are several.

        Raises:
            DeclarationError: the operator has none; the message says why.
        """
        found, why = out_of(self._opoverload), self.signature.no_out
        if found is None or why:
            why = why or "the library that defines it gives it none"
            raise DeclarationError(f"{self.name}: has no out variant, because {why}")
        return found

    def variant(self, name: str) -> OpOverload:
        """Return what calls a variant of a kernel: ``op.variant("cpu[TILE=8]")(x)``.

        Raises:
            DeclarationError: there is no such variant.
        """
        if name not in self.variants:
            raise DeclarationError(f"{self.name}: {no_such('variant', name, self.variants)}")
        return self.variants[name].overload(self)  # type: ignore[no-any-return]

    def split(self, arguments: Arguments) -> tuple[Args, dict[str, Value]]:
        """Split arguments by name into a call's positional and keyword-only arguments."""
        positional, keywords = [], {}
        for parameter in self.signature.parameters:
            if parameter.keyword_only:
                keywords[parameter.name] = arguments[parameter.name]
            else:
                positional.append(arguments[parameter.name])
        return tuple(positional), keywords

    def register_effect(self, effect: object) -> None:
        """Refuse effects: opsmith's operators only compute, or write into what mutates_args names.

        Raises:
            DeclarationError: always.
        """
        raise DeclarationError(
            f"{self.name}: register_effect: an operator of opsmith has no effects, except on the "
            "arguments that mutates_args names"
        )

    def build(self, device: str | None = None) -> list[Path]:
        """Build and load the compiled kernels; an operator defined elsewhere has no kernels."""
        return []

    def _require_function(self, method: str, function: object) -> None:
        """Refuse an object that cannot be called."""
        if not callable(function):
            raise DeclarationError(f"{self.name}: {method}: expected a function, got {function!r}")

    def register_onnx(
        self,
        how: str | Callable[..., object] | None = None,
        /,
        *,
        opset: int = 1,
        inputs: Sequence[str] | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> Any:  # the function, or without one a decorator
        """Declare how standard ONNX operators compute this operator; both exporters then use it.

        Call it again for a later opset: an export uses the latest one that its opset allows.

        Args:
            how: the name of the ONNX operator that does the same in one node (``"domain::Name"``
                for another domain); or a function ``how(op, *arguments)`` that makes nodes by
                calling ``op.Name(inputs…, attribute=value…)`` (with ``domain="…"`` for another
                domain) and returns the results; or a ``symbolic(g, *arguments)`` written for
                torch.onnx, which is recognized by its parameter ``g``. Without `how`, the method is
                a decorator.
            opset: the first ONNX opset in which the translation is valid.
            inputs: if `how` is a name, the parameters that become the node's inputs, in the node's
                order; every tensor by default.
            attributes: if `how` is a name, the node's attributes: a parameter's name, a function of
                the arguments by name, or the value itself.

        Raises:
            DeclarationError: `inputs` or `attributes` name no parameter.

        Example:
            >>> import opsmith
            >>> from jaxtyping import Float
            >>> from torch import Tensor
            >>> @opsmith.op("docs::leaky")
            ... def leaky(x: Float[Tensor, "*n"], slope: float = 0.1) -> Float[Tensor, "*n"]:
            ...     return torch.where(x < 0, x * slope, x)
            >>> leaky.register_onnx("LeakyRelu", opset=6, attributes={"alpha": "slope"})
        """
        if how is None:
            return functools.partial(
                self.register_onnx, opset=opset, inputs=inputs, attributes=attributes
            )
        if not isinstance(how, str):
            self._require_function("register_onnx", how)
        values = (attributes or {}).values()
        for name in [*(inputs or ()), *(v for v in values if isinstance(v, str))]:
            if name not in self.signature.by_name:
                raise DeclarationError(
                    f"{self.name}: register_onnx names {name!r}, which is not a parameter; "
                    f"there are {', '.join(self.signature.by_name)}"
                )
        from opsmith.operators.core.onnx_translation import OnnxTranslation, is_symbolic

        caller = sys._getframe(1)
        where = where_written(how) or f"{caller.f_code.co_filename}:{caller.f_lineno}"
        symbolic = callable(how) and is_symbolic(how)
        self.onnx_translations.append(
            OnnxTranslation(how, opset, inputs, attributes or {}, symbolic, where)
        )
        return None if isinstance(how, str) else how

    @typing.overload
    def register_cases(self, function: F, /, *, only: bool = ...) -> F:
        """Register a function."""

    @typing.overload
    def register_cases(self, /, *, only: bool = ...) -> Callable[[F], F]:
        """Register the decorated function."""

    def register_cases(self, function: Cases | None = None, /, *, only: bool = False) -> object:
        """Register cases that random sampling cannot produce; usable as a decorator.

        Args:
            function: ``function(dtype, seed)`` yields arguments by name, with tensors on the CPU;
                tensors of generic dtype have the dtype `dtype`. Where there are several dtype
                variables, `dtype` is a dictionary of their dtypes by name.
            only: whether checks use registered cases only, because random arguments make no sense.
        """
        if function is None:
            return functools.partial(self.register_cases, only=only)
        self._require_function("register_cases", function)
        from opsmith.operators.core.registered_cases import require_case_arguments

        require_case_arguments(self.name, function)
        self.cases.append(function)
        self.only_registered_cases = self.only_registered_cases or only
        return function

    def register_sizes(self, *sizes: Mapping[str, int]) -> None:
        """Register sizes that occur in production, so that checks always try them.

        Args:
            sizes: mappings from some dimensions to sizes (``{"N": 4096, "C": 768}``); others are
                sampled. For ``*names`` give the last dimension's size; benchmarks add no other.

        Raises:
            DeclarationError: no argument has a dimension of that name, or a size is not a
                non-negative int.
        """
        from opsmith.operators.core.registered_cases import checked_sizes

        self.sizes.extend(checked_sizes(self.signature, sizes))

    def register_cost(self, function: F | None = None, /) -> F:
        """Declare the least work that a call has to do; usable as a decorator.

        Benchmarks derive from it the share of the machine's bandwidth that a kernel reaches, and
        reject times that are too short for moving so many bytes.

        Args:
            function: takes, by name, any of the dimensions (an int; a tuple for ``*names``), the
                arguments, and ``itemsize``, the bytes of one element of the (first) generic dtype.
                Returns an `opsmith.Cost`. State the work of any implementation, which reads each
                argument once and writes each result once, not the work of your kernel.

        Raises:
            DeclarationError: a parameter of the function is neither a dimension nor an argument.

        Example:
            >>> import opsmith
            >>> from jaxtyping import Float
            >>> from torch import Tensor
            >>> @opsmith.op("docs::tint")
            ... def tint(x: Float[Tensor, "N C"], y: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
            ...     return x * y
            >>> @tint.register_cost
            ... def cost(N, C, itemsize):
            ...     return opsmith.Cost(bytes=(2 * N * C + C) * itemsize, operations=N * C)
            >>> tint.cost({"x": torch.ones(2, 3), "y": torch.ones(3)})
            Cost(bytes=60, operations=6)
        """
        if function is None:
            return self.register_cost  # type: ignore[return-value]
        self._require_function("register_cost", function)
        from opsmith.operators.core.author_rules import CostRule

        self.cost = CostRule.read(self.signature, function)
        return function

    def register_distribution(self, function: F | None = None, /) -> F:
        """State the distribution of random results, which checks compare; usable as a decorator.

        Args:
            function: takes, by name, any of the arguments and ``result`` (``result_NAME`` if there
            are several results). Returns a dictionary with an entry for each kind of random
            number behind the results: a tensor of independent numbers, uniform in [0, 1] (for
            another distribution, the values of its distribution function), or a pair of a tensor
            of independent bools and the probability of True.

        Raises:
            DeclarationError: the operator takes no `Philox`, or the function something unknown.
        """
        if function is None:
            return self.register_distribution  # type: ignore[return-value]
        self._require_function("register_distribution", function)
        from opsmith.operators.core.author_rules import DistributionRule

        self.distribution = DistributionRule.read(self.signature, function)
        return function


class RegisteredOperator(Operator[P, R]):
    """An operator whose PyTorch registrations were made by this process and can be changed.

    Attributes:
        declared_backward: the operator that computes the gradients, and the mapping of its
            arguments and results; `None` without one.
    """

    declared_backward: Any = None  # a `DeclaredBackward`, of a floor above this one
    _registration: Any  # a `Registration`, of a floor above this one

    def is_enabled(self, device: str) -> bool:
        """Return whether calls on a device type reach the kernel registered for it."""
        raise NotImplementedError

    def install_kernel(self, device: str) -> None:
        """Make the dispatcher call the registered kernel of a device type."""
        raise NotImplementedError

    def register_sharding(
        self, function: Callable[..., object] | None = None, /
    ) -> Any:  # the function, or without one a decorator
        """Register sharding rules in place of those that follow from the claims.

        Usable as a decorator. Checks prove these rules like derived rules, and gradients follow
        from them.

        Args:
            function: takes the operator's arguments, tensors as DTensors, and returns rules for one
                dimension of a mesh: pairs of the results' and the arguments' placements, with
                `None` for arguments that are no tensors; as
                ``torch.distributed.tensor.experimental.register_sharding`` has them. The rule that
                replicates all tensors is always there.
        """
        if function is None:
            return self.register_sharding
        self._require_function("register_sharding", function)
        self.written_sharding = function
        return function
