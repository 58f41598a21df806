"""Count what ranks would send in a step, on meshes that no machine here has.

One process is a rank of PyTorch's "fake" process group, and tensors have shapes and no contents, so
a mesh of thousands of ranks takes a second and no memory.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from opsmith.bench.inputs import NothingToTimeError, Supply, supplies
from opsmith.checks.cases.subject import REFERENCE, Subject
from opsmith.checks.numerics.gradients import has_gradient, is_differentiable, leaves_of
from opsmith.compat.communication import Communication
from opsmith.compat.torch_distributed import (
    REDISTRIBUTIONS_LOGGER,
    group_without_others,
    hosts_of_eight,
)
from opsmith.errors import OpsmithError
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core.arguments import each_tensor, flatten, map_named_tensors
from opsmith.operators.dispatch.ranks.sharding_rules import concrete_rules
from opsmith.signature.sharding import unsharded
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.shapes import Fixed, Variadic
from opsmith.system.quiet_loggers import silenced

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh

SCHEMA = "opsmith.mesh/1"
#: More combinations of placements than these do not fit on a page.
_MOST = 16
_NO_SIZES: Mapping[str, int] = {}
#: Arguments are drawn with dimensions of at most this size.
_SMALL = 4


class MeshError(OpsmithError):
    """Raised if nothing can be said of an operator or a mesh."""

    exit_code = 2


@dataclass(frozen=True)
class Step:
    """The bytes that each rank sends in a call and in the gradients of its arguments.

    Attributes:
        forward: bytes that each rank sends for the call.
        backward: bytes that each rank sends for the gradients, until they are placed as the
            arguments are.
        collectives: the number of collective operations.
        problem: why nothing is known; empty if something is.
    """

    forward: int = 0
    backward: int = 0
    collectives: int = 0
    problem: str = ""

    @property
    def sent(self) -> int:
        """Return the bytes that each rank sends in the step."""
        return self.forward + self.backward


@dataclass(frozen=True)
class Placed:
    """The bytes that ranks send if the arguments are placed in one way.

    Attributes:
        operator, sizes, dtype: the call.
        mesh: the size of each dimension of the mesh.
        placement: the arguments that are not replicated, with a placement for each dimension of the
            mesh.
        claim: the claims whose rules have these placements; empty if no rule has them.
        ruled: the operator, called by its rules.
        gathered: the operator, called with all arguments gathered on every rank, so that each
            computes the whole.
        reference: the reference, taken apart into operators of PyTorch, which have rules.
    """

    operator: str
    sizes: str
    dtype: str
    mesh: tuple[int, ...]
    placement: str
    claim: str
    ruled: Step
    gathered: Step
    reference: Step


@dataclass
class Communications:
    """The bytes that ranks send, for each operator, size, mesh and placement.

    Attributes:
        rows: one for each.
        unsharded: for each operator, sentences on what no rule places in parts.
    """

    rows: list[Placed] = field(default_factory=list)
    unsharded: dict[str, list[str]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return all figures as JSON text."""
        document = {
            "schema": SCHEMA,
            "torch": torch.__version__,
            "rows": [asdict(row) for row in self.rows],
            "unsharded": self.unsharded,
        }
        return json.dumps(document, indent=2)


def run(
    operators: Operator | Iterable[Operator],
    meshes: Sequence[Sequence[int]],
    *,
    sizes: Sequence[Mapping[str, int]] = (),
    dtype: str | None = None,
    cases: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
    on_group: Callable[[list[Placed], list[str]], None] | None = None,
) -> Communications:
    """Count what ranks would send in a step of some operators.

    Args:
        operators: the operators.
        meshes: the sizes of the dimensions of each mesh, as ``(64, 8)``.
        sizes: the sizes of a call instead of those of `register_sizes`.
        dtype: the generic dtype; float32 by default if the kernel has it.
        cases: number of registered cases, if no sizes are registered, the largest ones.
        progress: called before each placement.
        on_group: called with what is known of one operator, size and mesh, as soon as it is, and
            with sentences on what no rule places in parts.

    Returns:
        Bytes and collectives for each placement.

    Raises:
        MeshError: an operator takes no tensor, or this process is a rank already.
        NothingToTimeError: there are no sizes.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise MeshError("this PyTorch was built without torch.distributed; install one with it")
    if dist.is_initialized():
        raise MeshError(
            "this process is a rank of a process group; call it in a process without one"
        )
    many = [operators] if isinstance(operators, Operator) else list(operators)
    found = Communications()
    for operator in many:
        if not operator.signature.tensors:
            raise MeshError(f"{operator.name}: takes no tensor that ranks could hold parts of")
        subject = Subject(operator, REFERENCE, HOST)
        chosen = dtype or subject.favourite
        sentences = [
            f"no rule for {', '.join(names)}: {reason}"
            for names, reason in unsharded(operator.signature)
        ]
        found.unsharded[operator.name] = sentences
        for label, arguments in _calls(subject, chosen, sizes, cases):
            for mesh in meshes:
                call = _MeshCall(operator, label, chosen or "", arguments, tuple(mesh))
                rows = list(call.rows(progress or (lambda *_: None)))
                found.rows += rows
                if on_group is not None:
                    on_group(rows, sentences)
    return found


def _calls(
    subject: Subject, dtype: str | None, sizes: Sequence[Mapping[str, int]], most: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arguments of each size without contents, and words for the size.

    To draw contents of the sizes of large models takes minutes, so they are drawn at small sizes,
    and the shapes follow from the declaration.
    """
    named = set(subject.operator.signature.dims)
    wanted = [*sizes] or [*subject.operator.sizes]
    if not wanted or subject.operator.only_registered_cases:
        for supply in supplies(subject, dtype, (), most):
            yield supply.label, _empty(supply)
        return
    for size in wanted:
        small = {name: min(number, _SMALL) for name, number in size.items()}
        try:
            (supply,) = supplies(subject, dtype, [small], 1)
            arguments = _empty(supply, size) if named <= size.keys() else None
        except NothingToTimeError:
            arguments = None  # no argument is so small
        label = " ".join(f"{name}={number}" for name, number in size.items())
        if arguments is None:
            (supply,) = supplies(subject, dtype, [size], 1)
            label, arguments = supply.label, _empty(supply)
        yield label, arguments


def _empty(supply: Supply, size: Mapping[str, int] = _NO_SIZES) -> dict[str, Any]:
    """Return a supply's arguments without contents; `size` replaces sizes by dimension."""
    signature = supply.operator.signature

    def empty(name: str, tensor: Tensor) -> Tensor:
        type_ = signature.by_name[name.partition("[")[0]].tensor_type
        shape = list(tensor.shape)
        for axis, dim in type_.shape.axes() if size and type_ and type_.shape else ():
            if isinstance(dim, Fixed):
                shape[axis] = expressions.evaluate(dim.expression, size, supply.first)
            elif isinstance(dim, Variadic) and dim.name in size:
                shape[axis] = size[str(dim.name)]
        return torch.empty(shape, dtype=tensor.dtype, device="meta")

    return map_named_tensors(supply.first, empty)


@dataclass(frozen=True)
class _MeshCall:
    """One operator with arguments of one size, on one mesh."""

    operator: Operator
    sizes: str
    dtype: str
    arguments: Mapping[str, Any]
    mesh: tuple[int, ...]

    def rows(self, progress: Callable[[int, int, str], None]) -> Iterator[Placed]:
        """Yield a row for each placement."""
        shown = "x".join(map(str, self.mesh))
        with _ranks(self.mesh) as mesh:
            several = self._placements()
            for number, (placements, claim) in enumerate(several):
                text = _text(placements)
                progress(number, len(several), f"{self.operator.name} on {shown}: {text}")
                yield Placed(
                    self.operator.name,
                    self.sizes,
                    self.dtype,
                    self.mesh,
                    text,
                    claim,
                    self._step(mesh, placements, self.operator),
                    self._step(mesh, placements, self.operator, gather=True),
                    self._step(mesh, placements, self.operator.reference),
                )
            progress(len(several), len(several), "")

    def _placements(self) -> list[tuple[dict[str, list[Any]], str]]:
        """Return placements to try: those of rules, and parts along every other dimension."""
        rules = concrete_rules(self.operator, self.arguments)[1:]
        same = [(rule,) * len(self.mesh) for rule in rules]
        mixed = [] if len(self.mesh) == 1 else itertools.permutations(rules, len(self.mesh))
        found = [
            (
                {name: [rule.arguments[name] for rule in chosen] for name in chosen[0].arguments},
                " and ".join(dict.fromkeys(rule.claim for rule in chosen)),
            )
            for chosen in (*same, *mixed)
        ]
        known = [placements for placements, _ in found]
        for placements in self._along_each_dimension():
            if placements not in known:
                found.append((placements, ""))
        return found[:_MOST]

    def _along_each_dimension(self) -> Iterator[dict[str, list[Any]]]:
        from torch.distributed.tensor import Replicate, Shard

        signature = self.operator.signature
        for dim in signature.dims:
            placed: dict[str, list[Any]] = {}
            for parameter in signature.tensors:
                tensors = each_tensor(self.arguments[parameter.name])
                if not tensors:
                    continue
                type_ = parameter.tensor_type
                axes = type_.shape.axes() if type_ is not None and type_.shape else ()
                own: Any = Replicate()
                for axis, one in axes:
                    if isinstance(one, Fixed) and str(one) == dim:
                        own = Shard(axis % tensors[0].dim())
                placed[parameter.name] = [own] * len(self.mesh)
            if any(not one.is_replicate() for several in placed.values() for one in several):
                yield placed

    def _step(
        self,
        mesh: DeviceMesh,
        placements: Mapping[str, Sequence[Any]],
        call: Callable[..., Any],
        *,
        gather: bool = False,
    ) -> Step:
        """Make a call and compute the gradients of its arguments; count what is sent."""
        from torch.distributed.tensor import Replicate

        signature = self.operator.signature
        arguments = map_named_tensors(
            self.arguments,
            lambda name, tensor: _placed(tensor, mesh, placements[name.partition("[")[0]]),
        )
        leaves: dict[str, Any] = {}
        if has_gradient(self.operator) and not signature.mutated:
            arguments, leaves = leaves_of(arguments, signature)
        whole = [Replicate()] * mesh.ndim
        try:
            with Communication() as forward, torch.set_grad_enabled(bool(leaves)):
                given = arguments
                if gather:
                    given = map_named_tensors(
                        arguments, lambda _, one: cast(Any, one).redistribute(mesh, whole)
                    )
                positional, keywords = self.operator.split(given)
                results = flatten(signature, call(*positional, **keywords), given)
            outputs = [one for one in results if is_differentiable(one) and one.requires_grad]
            incoming = [_incoming(output, mesh) for output in outputs]
            with Communication() as backward:
                if outputs:
                    grads = torch.autograd.grad(
                        outputs, list(leaves.values()), incoming, allow_unused=True
                    )
                    for leaf, grad in zip(leaves.values(), grads, strict=True):
                        _placed_as(leaf, grad, mesh)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            return Step(problem=f"{type(error).__name__}: {first}")
        number = len(forward.collectives) + len(backward.collectives)
        return Step(forward.sent, backward.sent, number)


@contextmanager
def _ranks(shape: Sequence[int]) -> Iterator[DeviceMesh]:
    """Be the first rank of a mesh, whose tensors have no contents, for a block."""
    from torch.distributed.tensor import init_device_mesh

    # DTensor logs advice for a better mesh, but here the user has chosen the mesh.
    quiet = silenced(REDISTRIBUTIONS_LOGGER)
    with group_without_others(math.prod(shape)), hosts_of_eight(), quiet:
        yield init_device_mesh("meta", tuple(shape))


def _placed(tensor: Tensor, mesh: DeviceMesh, placements: Sequence[Any]) -> Any:
    """Return a DTensor of a tensor's shape and dtype, of which this rank has the first part."""
    from torch.distributed.tensor import DTensor

    shape = list(tensor.shape)
    for size, placement in zip(mesh.shape, placements, strict=True):
        if placement.is_shard():
            shape[placement.dim] = -(-shape[placement.dim] // size)
    return DTensor.from_local(
        torch.empty(shape, dtype=tensor.dtype, device="meta"),
        mesh,
        list(placements),
        run_check=False,
        shape=tensor.shape,
        stride=tensor.contiguous().stride(),
    )


def _incoming(output: Any, mesh: DeviceMesh) -> Any:
    from torch.distributed.tensor import Replicate

    placements = [Replicate() if one.is_partial() else one for one in output.placements]
    return _placed(torch.empty(output.shape, dtype=output.dtype, device="meta"), mesh, placements)


def _placed_as(leaf: Any, grad: Any, mesh: DeviceMesh) -> None:
    """Redistribute the gradient of an argument as an optimiser needs it."""
    from torch.distributed.tensor import Replicate

    if grad is not None:
        placements = [Replicate() if one.is_partial() else one for one in leaf.placements]
        grad.redistribute(mesh, placements)


def _text(placements: Mapping[str, Sequence[Any]]) -> str:
    """Return the arguments that are not replicated, with their placements."""
    return ", ".join(
        f"{name} {' '.join(map(_shown, several))}"
        for name, several in placements.items()
        if any(not one.is_replicate() for one in several)
    )


def _shown(placement: Any) -> str:
    if placement.is_partial():
        return "Partial()"
    return "Replicate()" if placement.is_replicate() else f"Shard({placement.dim})"
