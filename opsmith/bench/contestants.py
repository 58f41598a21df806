"""The contestants of a benchmark: ways to call one operator, prepared for a timed loop.

They run in a process of their own, see `opsmith.bench.process`.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.bench.figures import COMPILED, GRADIENT
from opsmith.checks.cases.subject import REFERENCE, Subject, subjects_of
from opsmith.checks.exports.wrapper_modules import OneCall, PureCall
from opsmith.checks.numerics.gradients import (
    has_gradient,
    is_differentiable,
    leaves_of,
    zero_where_none,
)
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten
from opsmith.operators.core.lazy import late
from opsmith.targets import (
    LoadedModel,
    LoadedOperators,
    ModelProof,
    OperatorProof,
    Target,
    all_targets,
    export,
    load,
)

Arguments = Mapping[str, Any]
Call = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and keyword arguments."""

BASELINE = "reference"
"""The name of the contestant that all others are compared with: the reference, run eagerly."""


@dataclass(frozen=True)
class Prepared:
    """A contestant that is built and compiled, and was called once.

    Attributes:
        bind: converts arguments by name to the arguments of `function`; called before the clock
            starts.
        results: receives the return value of `function` and the arguments; returns every result,
            and then the new contents of mutated arguments.
    """

    function: Callable[..., Any]
    bind: Callable[[Arguments], Call]
    results: Callable[[Any, Arguments], list[Tensor]]


@dataclass(frozen=True)
class Contestant:
    """A way to call an operator.

    Attributes:
        device: the device type of its arguments.
        obstacle: why it cannot be timed here; empty if it can.
        prepare: prepares it for arguments like the given ones.
    """

    name: str
    device: str
    obstacle: str
    prepare: Callable[[Arguments], Prepared]


def references(operator: Operator, device: str) -> Iterator[Contestant]:
    """Yield the reference, eager and compiled, for a process that never runs a kernel."""
    yield from _both(operator, BASELINE, device, operator.reference)


def contestants(operator: Operator) -> Iterator[Contestant]:
    """Yield every kernel, called from eager and compiled code, and every usable runtime."""
    for subject in subjects_of(operator):
        own = subject.kernel != REFERENCE
        name = f"{subject.kernel} kernel" if own else "operator"
        yield from _both(operator, name, subject.device, operator, subject.missing)
        for variant, kernel in operator.variants.items():
            if kernel.device == subject.kernel:
                call = late(functools.partial(operator.variant, variant))
                yield next(_both(operator, variant, subject.device, call, subject.missing))
        if subject.device == HOST:
            yield from _runtimes(subject)


def _both(
    operator: Operator, name: str, device: str, function: Callable[..., Any], obstacle: str = ""
) -> Iterator[Contestant]:
    def eager(arguments: Arguments) -> Prepared:
        return _called(operator, function, arguments)

    def compiled(arguments: Arguments) -> Prepared:
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return _called(operator, torch.compile(call, fullgraph=True, dynamic=False), arguments)

    yield Contestant(name, device, obstacle, eager)
    yield Contestant(f"{name}{COMPILED}", device, obstacle, compiled)
    if has_gradient(operator) and not operator.signature.mutated:
        yield Contestant(
            f"{name}{GRADIENT}", device, obstacle, lambda _: _differentiated(operator, function)
        )


def _called(operator: Operator, function: Callable[..., Any], arguments: Arguments) -> Prepared:
    def results(returned: Any, given: Arguments) -> list[Tensor]:
        return flatten(operator.signature, returned, given)

    return Prepared(function, operator.split, results)


def _differentiated(operator: Operator, function: Callable[..., Any]) -> Prepared:
    """Prepare a call and its backward, with each result as its own incoming gradient."""

    def bind(given: Arguments) -> Call:
        arguments, leaves = leaves_of(given, operator.signature)
        return (*operator.split(arguments), list(leaves.values())), {}

    def there_and_back(
        positional: Sequence[Any], keywords: Mapping[str, Any], leaves: Sequence[Tensor]
    ) -> list[Tensor | None]:
        with torch.enable_grad():
            results = flatten(operator.signature, function(*positional, **keywords), {})
        outputs = [one for one in results if is_differentiable(one) and one.requires_grad]
        incoming = [output.detach() for output in outputs]
        return list(torch.autograd.grad(outputs, leaves, incoming, allow_unused=True))

    def gradients(returned: list[Tensor | None], given: Arguments) -> list[Tensor]:
        _, leaves = leaves_of(given, operator.signature)
        return zero_where_none(leaves.values(), returned)

    return Prepared(there_and_back, bind, gradients)


def _runtimes(subject: Subject) -> Iterator[Contestant]:
    for target in all_targets():
        for proof in target.proofs():
            if isinstance(proof, ModelProof | OperatorProof) and proof.timed:
                obstacle = subject.missing or target.available()
                obstacle = obstacle or proof.obstacle(subject.operator, subject.implementation)
                if isinstance(proof, ModelProof):
                    yield _runtime(subject.operator, target, proof, obstacle or "")
                else:
                    yield _function(subject.operator, target, proof, obstacle or "")


def _folder() -> Path:
    """Return a temporary folder for an artifact, which stays until the process ends."""
    return Path(tempfile.mkdtemp(prefix="opsmith-bench-"), "artifact")


def _function(
    operator: Operator, target: Target, proof: OperatorProof, obstacle: str
) -> Contestant:
    """Prepare the runtime's own function, called with the runtime's own arguments."""

    def prepare(arguments: Arguments) -> Prepared:
        del arguments
        folder, options = _folder(), proof.options(operator)
        export(operator, target=target.name, out=folder, verify=False, say=None, **options)
        loaded = load(folder)
        assert isinstance(loaded, LoadedOperators)

        own = proof.own_call(loaded, operator)
        return Prepared(own.function, lambda given: ((), own.taken(given)), own.given)

    return Contestant(proof.timed, HOST, obstacle, prepare)


def _runtime(operator: Operator, target: Target, proof: ModelProof, obstacle: str) -> Contestant:
    def prepare(arguments: Arguments) -> Prepared:
        folder = _folder()
        call = PureCall if proof.functional else OneCall
        export(
            call(operator, list(arguments)).eval(),
            tuple(arguments.values()),
            target=target.name,
            out=folder,
            verify=False,
            say=None,
            **proof.options(operator),
        )
        model = load(folder)
        assert isinstance(model, LoadedModel)
        return _loaded(operator, proof, model)

    return Contestant(proof.timed, HOST, obstacle, prepare)


def _loaded(operator: Operator, proof: ModelProof, model: LoadedModel) -> Prepared:
    def bind(arguments: Arguments) -> Call:
        inputs = model.flatten(tuple(arguments.values()))
        return ([tensor.contiguous() for tensor in inputs],), {}

    def results(returned: Any, arguments: Arguments) -> list[Tensor]:
        found = model.unflatten(returned)
        if proof.functional:
            many = found if isinstance(found, list | tuple) else [found]
            return [value for value in many if isinstance(value, Tensor)]
        return flatten(operator.signature, found, arguments)

    return Prepared(model.runner.run, bind, results)
