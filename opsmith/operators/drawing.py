"""Operators whose calls draw the seed and offset of a random generator."""

from __future__ import annotations

import torch
from torch import Tensor

from opsmith import philox
from opsmith.errors import ArgumentError
from opsmith.operators.core.arguments import tensors_in
from opsmith.operators.core.operator import P, R
from opsmith.operators.defined import DefinedOperator
from opsmith.signature import Signature
from opsmith.untyped import Args, Arguments, Value


class DrawingOperator(DefinedOperator[P, R]):
    """An operator with a `Philox` parameter, which a call need not pass."""

    def __init__(self, signature: Signature, *args: Value, **kwargs: Value) -> None:
        super().__init__(signature, *args, **kwargs)
        drawn = signature.drawn
        assert drawn is not None
        # Read once, since Dynamo, which traces the methods below, reads no dataclass.
        self._drawn_name, self._drawn_place = drawn.name, signature.parameters.index(drawn)

    def __call__(self, /, *args: object, **kwargs: object) -> Value:
        """Call the operator, with a seed and offset drawn where the call passes none.

        Raises:
            ArgumentError: an argument does not fit the declaration.
            OpsmithError: the kernel failed.
        """
        positional, keywords = self.with_drawn(args, kwargs)
        return super().__call__(*positional, **keywords)

    def with_drawn(self, args: Args, kwargs: Arguments) -> tuple[Args, Arguments]:
        """Return a call's arguments with the seed and offset, drawn unless they are there."""
        name, place = self._drawn_name, self._drawn_place
        if name in kwargs:
            given = kwargs[name]
            if given is None or isinstance(given, torch.Generator):
                kwargs = {**kwargs, name: self._draw(given, args, kwargs)}
            return args, kwargs
        if place > len(args):
            return args, {**kwargs, name: self._draw(None, args, kwargs)}
        given = args[place] if place < len(args) else None
        if isinstance(given, Tensor):
            return args, kwargs
        # Any other value than a tensor, a generator or None belongs to the next parameter.
        after = place + (place < len(args) and (given is None or _is_generator(given)))
        generator = given if _is_generator(given) else None
        return (*args[:place], self._draw(generator, args, kwargs), *args[after:]), kwargs

    def _draw(self, generator: torch.Generator | None, args: Args, kwargs: Arguments) -> Tensor:
        """Draw on the device of the call's first tensor."""
        first = next(iter(tensors_in((*args, *kwargs.values()))), None)
        device = None if first is None else first.device
        if generator is not None and device is not None and generator.device.type != device.type:
            raise ArgumentError(
                f"{self.name}: argument {self._drawn_name!r} is a generator on "
                f"{generator.device.type}, expected one on {device.type}, where the tensors are."
            )
        return philox.draw(generator, device=device)


def _is_generator(value: object) -> bool:
    return isinstance(value, torch.Generator)
