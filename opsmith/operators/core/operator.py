"""What every operator is and can do, whoever defined it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from opsmith import kernels
from opsmith.compat.torch_library import CustomOpDef
from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import DeclarationError, OpsmithError
from opsmith.operators.core.integers import int_places, is_cut
from opsmith.operators.core.rule import Rule
from opsmith.operators.core.source_location import where_written
from opsmith.signature import Signature

if TYPE_CHECKING:
    from opsmith.operators.core.cost import Cost, CostRule
    from opsmith.operators.core.onnx_translation import OnnxTranslation

Cases = Callable[[torch.dtype, int], Iterable[Mapping[str, Any]]]


class Kernel(Protocol):
    """What an operator, its checks and its targets ask of a kernel."""

    @property
    def device(self) -> str:
        """The device type; ``"reference"`` for the decorated function itself."""

    @property
    def where(self) -> str:
        """Where its source is, for messages."""

    @property
    def calls(self) -> int:
        """How often it ran in this process."""

    @property
    def source(self) -> kernels.KernelSource | None:
        """What it is compiled from; `None` where it needs Python to run."""

    @property
    def entry(self) -> kernels.KernelSource | None:
        """Its source, if any runtime can call what it is compiled to; `None` where none can."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The generic dtypes that it has, once it is loaded; none where nobody says."""

    @property
    def dissolves(self) -> bool:
        """Whether compiled code holds what it does in place of calls, which nobody counts then."""

    def implementation(self, operator: RegisteredOperator) -> Callable[..., Any]:
        """What the dispatcher calls until the kernel is built, if it has to be."""

    def emulated(self, operator: RegisteredOperator, seed: int = 0) -> Callable[..., Any] | None:
        """The same for tensors of the CPU, without the kernel's device.

        Args:
            operator: whose kernel it is.
            seed: decides what its device leaves open, as far as the emulation draws it.

        Returns:
            A function of the operator's arguments; `None` where nothing emulates the kernel.
        """

    def build(self, operator: RegisteredOperator) -> Path | None:
        """Build it, load it and make it the operator's.

        Returns:
            The library's path; `None` where there is nothing to build.

        Raises:
            BuildError: it does not compile or load.
            MissingError: something that building needs is not there.
            DeclarationError: the source defines the operator with another schema.
        """


class Operator(CustomOpDef):
    """An operator, callable like the function it was declared from.

    Made by `opsmith.op`, or by `opsmith.adopt` of one that somebody else defined, which takes
    neither kernels nor derivatives. A call goes straight to PyTorch's dispatcher, as one through
    ``torch.ops.namespace.name`` does. It is a ``torch.library.CustomOpDef``, so that
    ``torch.library.opcheck`` and its kin take it.

    Attributes:
        signature: what the declaration says.
        reference: the decorated function, the operator in plain PyTorch. It defines what is right,
            and runs wherever no kernel is registered.
        kernels: the registered kernels by device type, and the reference under ``"reference"``.
        rule: how the operator is differentiated.
        onnx_translations: what `register_onnx` was given.
        cost: what `register_cost` was given; gives a call's `Cost`.
        explained: whether the reference says how it computes; of an adopted operator it may be a
            call of itself.
    """

    explained = True

    def __init__(
        self,
        signature: Signature,
        reference: Callable[..., Any],
        overload: OpOverload,
        kernel: Kernel,
    ) -> None:
        # CustomOpDef's own would define the operator anew.
        functools.update_wrapper(self, reference)
        self.signature = signature
        self.reference = reference
        self.rule = Rule()
        self.cases: list[Cases] = []
        self.only_registered_cases = False
        self.sizes: list[Mapping[str, int]] = []
        self.cost: CostRule | None = None
        self.onnx_translations: list[OnnxTranslation] = []
        self.written_fake: Callable[..., Any] | None = None
        self.kernels: dict[str, Kernel] = {"reference": kernel}
        self._opoverload = overload
        self._int_places = int_places(signature)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the operator; arguments as the declaration says.

        Raises:
            ArgumentError: an argument does not fit the declaration.
            OpsmithError: the kernel failed.
        """
        for place, name in self._int_places:
            value = args[place] if place < len(args) else kwargs.get(name)
            if type(value) is not int and not torch.compiler.is_compiling() and is_cut(value):
                self._refuse_cut(args, kwargs)
        try:
            return self._opoverload(*args, **kwargs)
        except OpsmithError:
            raise
        except Exception as error:
            from opsmith.operators.core.argument_errors import refusal

            refuse = refusal
            if not torch.compiler.is_compiling() and "torch._dynamo" in sys.modules:
                # After a call that it could not trace, Dynamo compiles what is called here, and its
                # guards end the process at a nested tensor in a list.
                refuse = torch.compiler.disable(refusal)
            refused = refuse(self.signature, args, kwargs, error)
            if refused is None:
                raise
            raise refused from None

    def _refuse_cut(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Refuse a call with a number for an int that PyTorch would cut to one.

        Raises:
            ArgumentError: naming the argument.
        """
        from opsmith.operators.core.argument_errors import refusal

        refused = refusal(self.signature, args, kwargs, TypeError("not an int"))
        if refused is not None:
            raise refused

    @functools.cached_property
    def arguments(self) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
        """From a call's ``(args, kwargs)`` to its arguments by name, defaults filled in."""
        from opsmith.signature.calls import named

        return named(self.signature)

    # Models hold operators; copying or pickling one must not copy the operator.
    def __copy__(self) -> Operator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator:
        return self

    @property
    def name(self) -> str:
        """``namespace::name``."""
        return self.signature.qualname

    _qualname = name  # as torch.library knows it

    @property
    def overload(self) -> OpOverload:
        """What calls go through, and graphs hold: ``torch.ops.namespace.name.default``."""
        return self._opoverload

    def split(self, arguments: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by name as the positional and the keyword-only ones of a call."""
        positional, keywords = [], {}
        for parameter in self.signature.parameters:
            if parameter.keyword_only:
                keywords[parameter.name] = arguments[parameter.name]
            else:
                positional.append(arguments[parameter.name])
        return tuple(positional), keywords

    def register_effect(self, effect: Any) -> None:
        """Refused: an operator of opsmith computes, or writes into what mutates_args names.

        Raises:
            DeclarationError: always.
        """
        raise DeclarationError(
            f"{self.name}: register_effect: operators here have no effects but on the arguments "
            "that mutates_args names"
        )

    def build(self, device: str | None = None) -> list[Path]:
        """Build and load the compiled kernels, of which an operator defined elsewhere has none."""
        return []

    def _require_function(self, method: str, function: Any) -> None:
        """Refuse what cannot be called.

        Raises:
            DeclarationError: naming the method.
        """
        if not callable(function):
            raise DeclarationError(f"{self.name}: {method}: expected a function, got {function!r}")

    def register_onnx(
        self,
        how: str | Callable[..., Any] | None = None,
        /,
        *,
        opset: int = 1,
        inputs: Sequence[str] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Any:
        """Say how standard ONNX operators compute this one; both exporters then use it.

        May be called again for a later opset: the latest that an export allows is taken.

        Args:
            how: the name of the ONNX operator that does the same in one node, of another domain
                as ``"domain::Name"``; or a function ``how(op, *arguments)`` that makes nodes by
                calling ``op.Name(inputs…, attribute=value…)``, of another domain with
                ``domain="…"``, and returns the results; or a ``symbolic(g, *arguments)`` as
                torch.onnx takes it, which is known by its ``g``. Without it this is a decorator.
            opset: the first opset of ONNX in which it holds.
            inputs: with a name, the parameters that are the node's inputs, in its order; every
                tensor by default.
            attributes: with a name, the node's attributes: a parameter's name, a function of the
                arguments by name, or the value itself.

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

    def register_cases(self, function: Cases | None = None, /, *, only: bool = False) -> Any:
        """Register cases that random sampling cannot invent; usable as a decorator.

        Args:
            function: ``function(dtype, seed)`` yields arguments by name; tensors on the CPU, those
                of generic dtype in `dtype`.
            only: whether random arguments make no sense for this operator.
        """
        if function is None:
            return functools.partial(self.register_cases, only=only)
        self._require_function("register_cases", function)
        self.cases.append(function)
        self.only_registered_cases = self.only_registered_cases or only
        return function

    def register_sizes(self, *sizes: Mapping[str, int]) -> None:
        """Register sizes that are served, so that checks always try them.

        Args:
            sizes: each gives some dimensions their sizes by name (``{"N": 4096, "C": 768}``); what
                is not named is sampled.

        Raises:
            DeclarationError: no argument has a dimension of that name, or a size is not one.
        """
        known = [name for name in self.signature.dims if name not in self.signature.variadic_dims]
        for one in sizes:
            if not isinstance(one, Mapping):
                raise DeclarationError(
                    f"{self.name}: register_sizes: expected sizes by dimension, as in "
                    f'{{"N": 4096}}, got {one!r}'
                )
            for name, size in one.items():
                if name not in known:
                    raise DeclarationError(
                        f"{self.name}: register_sizes names the dimension {name!r}; the arguments "
                        f"have {', '.join(known) or 'no named dimension'}"
                    )
                if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                    raise DeclarationError(
                        f"{self.name}: register_sizes gives {name} the size {size!r}, expected an "
                        "int that is not negative"
                    )
        self.sizes.extend(dict(one) for one in sizes)

    def register_cost(self, function: Callable[..., Cost] | None = None, /) -> Any:
        """Say what a call has to move and compute at least; usable as a decorator.

        Benchmarks show from it which part of the machine's bandwidth a kernel reaches, and refuse
        times in which so many bytes cannot have been moved.

        Args:
            function: takes, by name, any of the dimensions (an int; a tuple for ``*names``), the
                arguments, and ``itemsize``, the bytes of one element of the generic dtype. Returns
                an `opsmith.Cost`. State what any implementation has to do, each argument read once
                and each result written once, and not what yours does.

        Raises:
            DeclarationError: the function takes something that a call does not have.

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
            return self.register_cost
        self._require_function("register_cost", function)
        from opsmith.operators.core.cost import CostRule

        self.cost = CostRule.read(self.signature, function)
        return function


class RegisteredOperator(Operator):
    """An operator whose registrations with PyTorch this process holds.

    Attributes:
        declared_backward: the operator that computes its gradients, and how; `None` without one.
    """

    declared_backward: Any = None
    _registration: Any

    def is_enabled(self, device: str) -> bool:
        """Return whether calls on a device type reach its kernel."""
        raise NotImplementedError

    def install_kernel(self, device: str) -> None:
        """Make a registered kernel the one that calls on its device type reach."""
        raise NotImplementedError
