"""A call that autograd records: its tensors in one flat list, and the structure of its results.

Autograd records a call that writes into arguments as it records an in-place function: the node
returns the results and the tensors that were written, marked as dirty. Each later use of these
reaches the node. PyTorch leaves out what `require_recordable` refuses; the message then gives the
functional form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from opsmith.compat.torch_autograd import in_transform, is_view
from opsmith.errors import DifferentiationError
from opsmith.operators.core.arguments import every_tensor_in, is_float8, memory_of
from opsmith.operators.core.operator import Operator
from opsmith.signature import Signature
from opsmith.untyped import Arguments, Value


class Flat:
    """A call's tensors in one flat list, as autograd requires; lists of tensors are unpacked.

    Attributes:
        arguments: the call's arguments, by name.
        tensors: the tensors among the arguments; empty after `release`.
        count: number of tensors.
        places: position of each tensor argument in `tensors`; a range for a list of tensors, `None`
            for an absent tensor.
    """

    def __init__(self, arguments: dict[str, Value], names: Sequence[str]) -> None:
        self.arguments = arguments
        self.tensors: list[Tensor] = []
        self.places: dict[str, int | range | None] = {}
        for name in names:
            value = arguments[name]
            first = len(self.tensors)
            if value is None:
                self.places[name] = None
            elif isinstance(value, Tensor):
                self.tensors.append(value)
                self.places[name] = first
            else:
                self.tensors += value
                self.places[name] = range(first, len(self.tensors))
        self.count = len(self.tensors)

    def positions(self, names: Sequence[str]) -> list[int]:
        """Return the positions of the tensors of some arguments."""
        places = (self.places[name] for name in names)
        several = ([p] if isinstance(p, int) else p for p in places if p is not None)
        return [position for place in several for position in place]

    def release(self) -> None:
        """Drop the tensors; `fill` puts others in their places."""
        self.tensors = []
        for name in self.places:
            self.arguments[name] = None

    def fill(self, tensors: Sequence[Tensor]) -> dict[str, object]:
        """Return the arguments by name, with `tensors` in the places of the originals."""
        return {**self.arguments, **{name: at(tensors, p) for name, p in self.places.items()}}


def at(values: Sequence[object], place: int | range | None) -> object:
    """Return the value, or the list of values, at a place of `Flat.places`."""
    if place is None:
        return None
    return values[place] if isinstance(place, int) else [values[p] for p in place]


class RecordedCall:
    """The arguments of one differentiated call, and the structure of its results.

    Attributes:
        dual: calls the reference with arguments that carry tangents; `None` without tangents.
    """

    def __init__(self, flat: Flat, keyset: object, dual: Callable[[], Value] | None = None) -> None:
        self.flat = flat
        self.keyset = keyset
        self.dual = dual
        self.template: Value = None
        #: Positions of the written tensors, and of those to which gradients come.
        self.written: list[int] = []
        self.dirty: list[int] = []
        self.count = 0  # of the results' tensors, in a call that writes

    def flatten(self, output: object) -> Value:
        """Flatten results to what the autograd node returns: a tensor, or a tuple of tensors."""
        if isinstance(output, Tensor):
            self.template = None
            return output
        many = output if isinstance(output, tuple) else (output,)
        self.template = (
            isinstance(output, tuple),
            [len(item) if isinstance(item, list) else None for item in many],
        )
        flat: list[Tensor] = []
        for item in many:
            flat.extend(item if isinstance(item, list) else [item])
        return tuple(flat)

    def begin_write(self, names: Sequence[str], by_reference: bool) -> list[Tensor]:
        """Note the written tensors, and return copies of them if the backward needs these.

        A tensor that is only read and shares their memory is replaced by a copy, as otherwise the
        backward would find it overwritten.
        """
        tensors = self.flat.tensors
        self.written = self.flat.positions(names)
        self.dirty = [p for p in self.written if is_recorded(tensors[p])]
        memories = {memory_of(tensors[p]) for p in self.written}
        for position, tensor in enumerate(tensors):
            if position not in self.written and memory_of(tensor) in memories:
                tensors[position] = tensor.clone()
        self.flat.arguments = self.flat.fill(tensors)
        return [tensors[p].clone() for p in self.written] if by_reference else []

    def before(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the tensors as they were before the call; copies of written ones come last."""
        kept = dict(zip(self.written, tensors[self.flat.count :], strict=True))
        return [kept.get(p, tensor) for p, tensor in enumerate(tensors[: self.flat.count])]

    def flatten_with(self, output: object, dirty: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return what the node returns in a call that writes: results, then written tensors."""
        flat = () if output is None else self.flatten(output)
        results = (flat,) if isinstance(flat, Tensor) else flat
        self.count = len(results)
        return (*results, *dirty)

    def results_of(self, returned: Value) -> object:
        """Return the results among the values that the node returned."""
        results = ((returned,) if isinstance(returned, Tensor) else returned)[: self.count]
        return results[0] if self.template is None and results else results or None

    def written_grads(self, names: Sequence[str], grads: Sequence[Tensor]) -> list[object]:
        """Return the gradient of what each of these arguments holds after the call, or `None`."""
        by_place = dict(zip(self.dirty, grads, strict=True))
        every = [by_place.get(position) for position in range(self.flat.count)]
        return [at(every, self.flat.places[name]) for name in names]

    def structure(self, returned: object) -> object:
        """Restore the structure that `flatten` removed."""
        if self.template is None:
            return returned
        is_tuple, lengths = self.template
        rest = list(returned if isinstance(returned, tuple) else (returned,))
        many: list[object] = []
        for length in lengths:
            if length is None:
                many.append(rest.pop(0))
            else:
                many.append([rest.pop(0) for _ in range(length)])
        return tuple(many) if is_tuple else many[0]

    def structured_grads(self, grads: Sequence[Tensor]) -> tuple[object, ...]:
        """Return gradients of the results, in lists where the results are lists."""
        if self.template is None:
            return tuple(grads)
        structured = self.structure(tuple(grads))
        return structured if isinstance(structured, tuple) else (structured,)


def is_recorded(tensor: Tensor) -> bool:
    """Return whether a gradient can come to the new contents of a written tensor."""
    return (tensor.is_floating_point() or tensor.is_complex()) and not is_float8(tensor.dtype)


def written_names(operator: Operator) -> str:
    """Return the names of the arguments that an operator writes, quoted, for messages."""
    return ", ".join(repr(parameter.name) for parameter in operator.signature.mutated)


def functional_form(signature: Signature) -> str:
    """Return a sentence with the operator that returns the new contents in place of writing."""
    given = ", ".join(parameter.name for parameter in signature.parameters)
    returned = [result.name for result in signature.results]
    returned += [parameter.name for parameter in signature.mutated]
    into = "; ".join(f"{p.name}.copy_(...)" for p in signature.mutated if p.is_tensor)
    after = f", and write afterwards: {into}" if into else ""
    return (
        f"Declare {signature.name}({given}) -> ({', '.join(returned)}), which writes into "
        f"nothing{after}."
    )


def require_recordable(operator: Operator, arguments: Arguments) -> None:
    """Refuse a call whose gradient autograd cannot record.

    Raises:
        DifferentiationError: the message says what to write.
    """
    signature, rule = operator.signature, operator.rule
    begin = f"{operator.name}: writes into {written_names(operator)}, and"
    form = functional_form(signature)
    if rule.backward is None and not rule.reference:
        raise DifferentiationError(
            f"{begin} declares no gradient, but an argument requires one. Call it under "
            "torch.no_grad(), detach() its arguments, or declare its gradient "
            '(autograd="reference", register_backward, register_autograd).'
        )
    if in_transform():
        raise DifferentiationError(f"{begin} torch.func differentiates no such operator. {form}")
    written = {
        name: tensor
        for name, tensor in every_tensor_in({p.name: arguments[p.name] for p in signature.mutated})
        if is_recorded(tensor) and signature.by_name[name.partition("[")[0]].differentiable
    }
    for name, tensor in written.items():
        if tensor.requires_grad and tensor.is_leaf:
            raise DifferentiationError(
                f"{operator.name}: argument {name!r} is written into, and is a leaf that requires "
                "a gradient. Pass a tensor that is computed from it (a clone), or call the "
                "operator under torch.no_grad()."
            )
        if is_view(tensor) and (signature.results or len(written) > 1):
            raise DifferentiationError(
                f"{operator.name}: argument {name!r} is written into, and is a view of another "
                "tensor. Autograd records writes into views only for an operator that writes one "
                f"argument and returns nothing. Pass a tensor of its own (a clone). Or: {form}"
            )
