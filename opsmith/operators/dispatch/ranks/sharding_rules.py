"""The sharding rules of one call, with the placements of PyTorch's DTensor.

They come from the claims of the declaration, from the author's `register_sharding`, and, for the
declared backward of another operator, from the rules of that operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsmith.errors import OpsmithError
from opsmith.operators.core import registry
from opsmith.operators.core.arguments import each_tensor, every_tensor_in
from opsmith.signature import Signature, sharding
from opsmith.untyped import Arguments, Untyped, Value

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh, Placement

    from opsmith.operators.core.operator import Operator, RegisteredOperator
    from opsmith.operators.dispatch.declared_backward import DeclaredBackward

#: Returns pairs of the results' and the arguments' placements on one dimension of a mesh.
WrittenRules = Callable[..., Sequence[tuple[Sequence[Value], Sequence[Value]]]]


@dataclass(frozen=True)
class ConcreteRule:
    """A rule with placements of DTensor's, for the tensors of one call and one mesh dimension.

    Attributes:
        claim: the claim, or other origin, of the rule.
        arguments: the placement of each tensor argument; axes count from the front.
        results: the placement of each result.
    """

    claim: str
    arguments: Mapping[str, Placement]
    results: tuple[Placement, ...]

    def gradient(self, name: str) -> Placement:
        """Return the placement of an argument's gradient."""
        from torch.distributed.tensor import Partial, Replicate, Shard

        placement = self.arguments[name]
        if isinstance(placement, Shard):
            return placement
        if placement.is_partial() or all(one.is_replicate() for one in self.results):
            return Replicate()
        return Partial()

    @property
    def mixed(self) -> bool:
        """Return whether some results are replicated and others are not.

        Each rank then takes a share of the gradient of a replicated result: the gradients of the
        arguments are sums over the ranks, which would count it once for each rank.
        """
        whole = [placement.is_replicate() for placement in self.results]
        return any(whole) and not all(whole)

    def incoming(self, position: int) -> Placement:
        """Return the placement in which each rank takes the gradient of a result."""
        from torch.distributed.tensor import Partial, Replicate

        placement = self.results[position]
        if self.mixed and placement.is_replicate():
            return Partial()
        return Replicate() if placement.is_partial() else placement

    @property
    def is_sum(self) -> bool:
        """Return whether every partial value is a sum, so that gradients follow from the rule."""
        from torch.distributed.tensor import Partial

        every = (*self.arguments.values(), *self.results)
        return all(one.reduce_op == "sum" for one in every if isinstance(one, Partial))


def concrete_rules(operator: Operator, arguments: Arguments) -> list[ConcreteRule]:
    """Return the rules for the tensors of a call; the first replicates every tensor."""
    found = list(_derived(operator, arguments))
    if operator.written_sharding is not None:
        found = [found[0], *_written(operator, operator.written_sharding, arguments)]
    found += _of_backward(operator, arguments)
    differentiated = any(tensor.requires_grad for _, tensor in every_tensor_in(arguments))
    return [rule for rule in found if rule.is_sum or not differentiated]


def chosen_rules(operator: Operator, arguments: Arguments, mesh: DeviceMesh) -> list[ConcreteRule]:
    """Return the rule that a call with DTensors follows on each dimension of a mesh.

    The chosen rule moves the fewest bytes; among rules that move equally many, it changes the
    placements of the fewest tensors.
    """
    rules = concrete_rules(operator, arguments)

    def cheapest(place: int) -> ConcreteRule:
        def cost(rule: ConcreteRule) -> tuple[float, int]:
            moved, changed = 0.0, 0
            for name, wanted in rule.arguments.items():
                tensors: list[Untyped] = each_tensor(arguments[name])
                for tensor in tensors:
                    now = tensor.placements[place]
                    if now != wanted:
                        changed += 1
                        size = tensor.numel() * tensor.element_size()
                        moved += _share(now, wanted, mesh.size(place)) * size
            return moved, changed

        return min(rules, key=cost)

    return [cheapest(place) for place in range(mesh.ndim)]


def _share(now: Placement, wanted: Placement, size: int) -> float:
    """Return the part of a tensor's bytes that each rank sends to change a placement."""
    share = (size - 1) / size
    if wanted.is_partial():
        return float("inf")  # DTensor makes no summands of a value
    if now.is_replicate():
        return 0.0
    if now.is_partial():
        return 2 * share if wanted.is_replicate() else share
    return share if wanted.is_replicate() else share / size


def _derived(operator: Operator, arguments: Arguments) -> Iterator[ConcreteRule]:
    signature = operator.signature
    for rule in sharding.sharding_rules(signature):
        width = _width(operator, rule.variadic, arguments) if rule.variadic else 1
        for further in range(width):
            yield ConcreteRule(
                rule.claim,
                {
                    name: _placement(placement, further, _dims(arguments[name]))
                    for name, placement in rule.arguments.items()
                    if each_tensor(arguments[name])
                },
                tuple(
                    _placement(placement, further, _rank(operator, position, arguments))
                    for position, placement in enumerate(rule.results)
                ),
            )


def _dims(value: object) -> int:
    return int(each_tensor(value)[0].dim())


def _width(operator: Operator, name: str, arguments: Arguments) -> int:
    """Return the number of dimensions that a variadic dimension has in a call."""
    source = operator.signature.dim_sources[name]
    shape = operator.signature.by_name[source].shape
    assert shape is not None
    return _dims(arguments[source]) - shape.rank


def _rank(operator: Operator, position: int, arguments: Arguments) -> int:
    """Return the number of dimensions of a result; 0 if its shape is not declared."""
    from opsmith.signature.sizes.shapes import Variadic

    shape = operator.signature.results[position].shape
    if shape is None:
        return 0
    names = [dim.name for dim in shape.dims if isinstance(dim, Variadic) and dim.name]
    return shape.rank + sum(_width(operator, name, arguments) for name in names)


def _placement(placement: object, further: int, rank: int) -> Placement:
    """Convert a placement of a derived rule to DTensor's."""
    from torch.distributed.tensor import Partial, Replicate, Shard

    match placement:
        case sharding.Shard(axis):
            return Shard((axis if axis >= 0 else axis + rank) + further)
        case sharding.Partial():
            return Partial()
    return Replicate()


def backward_of(operator: Operator) -> list[RegisteredOperator]:
    """Return the operators whose gradients an operator computes, as `register_backward` says."""
    return [
        forward
        for forward in registry.all_operators()
        if forward.declared_backward is not None and forward.declared_backward.backward is operator
    ]


def _of_backward(operator: Operator, arguments: Arguments) -> Iterator[ConcreteRule]:
    """Yield the rules that an operator has as the declared backward of another one."""
    from torch.distributed.tensor import Partial, Replicate

    for forward in backward_of(operator):
        declared = forward.declared_backward
        gradients = {one.name for one in declared.given if one.kind == "gradient"}
        tensors = {p.name for p in operator.signature.tensors if each_tensor(arguments[p.name])}
        if forward.written_sharding is None and not forward.signature.mutated:
            for rule in _forward_rules(forward.signature, declared, arguments):
                if not rule.mixed:
                    yield _turned_round(rule, declared, tensors)
        results = tuple(Partial() for _ in operator.signature.results)
        yield ConcreteRule(
            f"the backward of {forward.name} is linear in the gradient",
            {name: Partial() if name in gradients else Replicate() for name in tensors},
            results,
        )


def _forward_rules(
    signature: Signature, declared: DeclaredBackward, arguments: Arguments
) -> Iterator[ConcreteRule]:
    """Yield the rules of a forward operator for the tensors that its backward is called with.

    A rule is left out if an axis of it cannot be known from these tensors.
    """
    ranks: dict[tuple[str, int], int] = {}
    tensors = {parameter.name for parameter in declared.backward.signature.tensors}
    for one in declared.given:
        value = arguments[one.name]
        if one.name in tensors and each_tensor(value):
            ranks["argument" if one.kind == "argument" else "result", one.position] = _dims(value)
    places = {p.name: position for position, p in enumerate(signature.parameters)}
    for rule in sharding.sharding_rules(signature)[1:]:
        width = 1
        if rule.variadic:
            source = signature.dim_sources[rule.variadic]
            rank = ranks.get(("argument", places[source]))
            shape = signature.by_name[source].shape
            if rank is None or shape is None:
                continue  # the backward takes nothing that shows how many dimensions there are
            width = rank - shape.rank
        for further in range(width):
            placed = _placed(rule, further, ranks, places)
            if placed is not None:
                yield placed


def _placed(
    rule: sharding.ShardingRule,
    further: int,
    ranks: Mapping[tuple[str, int], int],
    places: Mapping[str, int],
) -> ConcreteRule | None:
    """Return a rule for tensors of known numbers of dimensions; `None` if one is not known."""

    def place(placement: object, kind: str, position: int) -> Placement:
        # An axis that counts from the end needs the number of dimensions.
        counts = isinstance(placement, sharding.Shard) and placement.axis < 0
        return _placement(placement, further, ranks[kind, position] if counts else 0)

    try:
        return ConcreteRule(
            rule.claim,
            {name: place(one, "argument", places[name]) for name, one in rule.arguments.items()},
            tuple(place(one, "result", position) for position, one in enumerate(rule.results)),
        )
    except KeyError:
        return None


def _turned_round(rule: ConcreteRule, declared: DeclaredBackward, names: set[str]) -> ConcreteRule:
    """Return the rule of a declared backward that follows from a rule of its forward."""
    from torch.distributed.tensor import Replicate

    parameters = declared.forward.signature.parameters
    arguments: dict[str, Placement] = {}
    for one in declared.given:
        if one.name not in names:
            continue
        if one.kind == "argument":
            arguments[one.name] = rule.arguments[parameters[one.position].name]
        elif one.kind == "result":
            arguments[one.name] = rule.results[one.position]
        else:
            arguments[one.name] = rule.incoming(one.position)
    for name in names - arguments.keys():
        arguments[name] = Replicate()
    of_result = {
        place: rule.gradient(parameter.name)
        for parameter, place in zip(parameters, declared.gradients, strict=True)
        if place is not None
    }
    count = len(declared.backward.signature.results)
    results = tuple(of_result.get(position, Replicate()) for position in range(count))
    return ConcreteRule(f"{rule.claim} of {declared.forward.name}", arguments, results)


def _written(
    operator: Operator, function: WrittenRules, arguments: Arguments
) -> Iterator[ConcreteRule]:
    """Yield the rules that the author's function gives for a call."""
    from torch.distributed.tensor import Placement, Shard

    signature = operator.signature
    positional, keywords = operator.split(arguments)
    names = [p.name for p in signature.parameters]
    tensor_names = {parameter.name for parameter in signature.tensors}
    expected = (
        f"pairs of {len(signature.results)} placements of results and {len(names)} of arguments, "
        "None for arguments that are no tensors"
    )
    for pair in function(*positional, **keywords):
        what = f"{operator.name}: register_sharding: the function returned {pair!r} among its rules"
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise OpsmithError(f"{what}, expected {expected}.")
        results, given = pair
        if len(results) != len(signature.results) or len(given) != len(names):
            raise OpsmithError(f"{what}, expected {expected}.")
        placed = {}
        for name, placement in zip(names, given, strict=True):
            tensors = each_tensor(arguments[name]) if name in tensor_names else []
            if tensors and not isinstance(placement, Placement):
                raise OpsmithError(f"{what}, expected a placement for the tensor {name!r}.")
            if tensors:
                rank = tensors[0].dim()
                if isinstance(placement, Shard) and not -rank <= placement.dim < rank:
                    raise OpsmithError(
                        f"{what}, and {name!r} has {rank} dimensions, so no {placement}."
                    )
                if isinstance(placement, Shard):
                    placement = Shard(placement.dim % rank)
                placed[name] = placement
        yield ConcreteRule("register_sharding", placed, tuple(results))
