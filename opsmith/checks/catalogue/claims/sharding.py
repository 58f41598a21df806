"""Check calls with DTensors: the rules that the declaration claims, and what is redistributed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.numerics.comparison import same_bits
from opsmith.checks.numerics.gradients import (
    gradients_by,
    has_gradient,
    is_differentiable,
    leaves_of,
)
from opsmith.checks.numerics.oracle import Expected, RefusedError, require_accepted
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.ranks import calls as ranks
from opsmith.checks.ranks.compiled import compare_compiled
from opsmith.checks.ranks.found_claims import FoundClaims
from opsmith.checks.trial.trial import Trial
from opsmith.checks.trial.trial_gradients import random_cotangents, true_gradients
from opsmith.compat.communication import Communication
from opsmith.compat.torch_distributed import has_strategy
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import (
    each_tensor,
    every_tensor_in,
    flatten,
    map_named_tensors,
)
from opsmith.signature.sharding import sharding_rules

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh

    from opsmith.checks.ranks.planned_moves import Move
    from opsmith.operators.dispatch.ranks.sharding_rules import ConcreteRule

_MESHES = ((2,), (4,), (3,), (2, 2))
#: Sizes that are a multiple of the number of ranks, that are not, that are smaller, and 0.
_SIZES = (4, 8, 7, 2, 5, 0, 3, 1)
#: Half of the samples have no other sizes and no scalars: parts that differ, if only by one.
_UNEVEN = (7, 5, 3, 9)
#: Largest numbers of the author's cases and of samples: two samples for each mesh. There is no time
#: limit in place of numbers, so that the verdict does not depend on how busy the machine is.
_AUTHORS, _SAMPLES = 2, 8
#: Number of rules to compile calls for. Each takes a second or more.
_COMPILED = 3


@define_check(
    "sharding",
    "ranks with parts of the arguments compute their parts of the results and gradients",
    order=78,
    needs=(*PLAIN_CALLS, "gradient", "parallel-dims"),
    runtime="DTensor",
)
def sharding(trial: Trial) -> None:
    """Call on meshes of ranks, all in this process, with the placements that the rules name."""
    import torch.distributed as dist

    signature, operator = trial.signature, trial.operator
    trial.need(not trial.subject.adopted, "DTensor calls it by its own rules: it is not opsmith's")
    trial.need(signature.tensors, "takes no tensor")
    trial.need(trial.subject.device == HOST, "ranks in one process have CPU tensors")
    trial.need(dist.is_available(), "this PyTorch has no torch.distributed")
    trial.need(not dist.is_initialized(), "this process is a rank of a process group already")
    trial.attribution.wrong = "OPS-SHARDING-WRONG"
    trial.attribution.raises = "OPS-SHARDING-RAISED"

    from opsmith.operators.dispatch.ranks.sharding_rules import backward_of

    foreign = has_strategy(operator.overload)
    ruled = (
        foreign
        or operator.written_sharding is not None
        or len(sharding_rules(signature)) > 1
        or bool(backward_of(operator))
    )
    found, number, compiled = FoundClaims(operator), 0, False
    dtypes = ("float64",) if "float64" in trial.subject.dtypes else (trial.subject.favourite,)
    wanted = Wanted(sizes=_SIZES, max_elements=2048)

    def one(case: Case) -> None:
        nonlocal number, compiled
        trial.truth(case)
        found.learn(case)
        # A case that is tried again, by itself, had any of the meshes.
        again = bool(trial.settings.given)
        for mesh in (_MESHES if again else (_MESHES[number % len(_MESHES)],)) if ruled else ():
            calls = _OneCase(trial, case, mesh, foreign)
            calls.run()
            if not compiled:
                compiled = calls.compile()
        number += 1

    samples = min(trial.some(4), _SAMPLES) if ruled else trial.some(4)
    half = samples // 2
    trial.each(one, dtypes=dtypes, wanted=wanted, examples=samples - half, most=_AUTHORS)
    uneven = replace(wanted, sizes=_UNEVEN, ranks=(1, 2, 3))
    trial.each(one, dtypes=dtypes, wanted=uneven, examples=half, registered_cases=False)
    offered = ", ".join(found.lines())
    hint = f"valid on every case tried, and not claimed: {offered}" if offered else ""
    trial.need(ruled, f"claims nothing that ranks may share{f'; {hint}' if hint else ''}")
    if hint:
        trial.notes.append(hint)


class _OneCase:
    """The calls of one case on one mesh."""

    def __init__(self, trial: Trial, case: Case, mesh: tuple[int, ...], foreign: bool) -> None:
        self.trial, self.case, self.mesh, self.foreign = trial, case, mesh, foreign
        self.arguments = case.make(HOST)
        self.truth = trial.truth(case)
        self.cotangents: list[Tensor] = []
        self.gradients: Expected | None = None
        _, leaves = leaves_of(case.make(HOST), case.signature)
        if (
            has_gradient(trial.operator)
            and not case.signature.mutated
            and any(leaf.numel() for leaf in leaves.values())
        ):
            self.cotangents = random_cotangents(trial, case)
            self.gradients = true_gradients(trial, case, self.cotangents)

    def run(self) -> None:
        """Call with the placements of every rule, and with some that have to be redistributed."""
        from opsmith.operators.dispatch.ranks.sharding_rules import concrete_rules

        rules = [] if self.foreign else concrete_rules(self.trial.operator, self.arguments)
        floating = (t for _, t in self.case.tensors() if t.is_floating_point())
        finite = all(t.double().isfinite().all() for t in floating)  # float8 has no isfinite
        with ranks.mesh_of(self.mesh) as mesh:
            for several in self._chosen(rules[1:], rules[:1]):
                placed = (one for rule in several for one in rule.arguments.values())
                if finite or not any(one.is_partial() for one in placed):
                    self._call(mesh, several)
            others = list(self._other_placements(finite))
            turn = int(self.case.digest[:4], 16)
            for extra in range(min(len(others), 6 if self.foreign else 2)):
                self._call(mesh, None, others[(turn + extra) % len(others)])

    def compile(self) -> bool:
        """Compile calls on two ranks by the first rules, and return whether there were any."""
        from opsmith.operators.dispatch.ranks.sharding_rules import concrete_rules

        if self.foreign or not all(value.numel() for value in self.truth.values):
            return False
        several = concrete_rules(self.trial.operator, self.arguments)[1:]
        for rule in several[:_COMPILED]:
            cotangents = self.cotangents if self.gradients is not None and rule.is_sum else []
            placements = {name: [one] for name, one in rule.arguments.items()}
            what = f"{self._described(placements, [rule], (2,))}, under torch.compile"
            try:
                compare_compiled(self.trial.operator, self.case, rule, 2, cotangents)
            except Failure as failure:
                code = failure.code or self.trial.attribution.wrong
                raise Failure(f"{what}: {failure}", code=code) from failure
            except Exception as error:
                if self._refuses(self._parts_of(rule)):
                    continue
                raised = self.trial.raised(error)
                raise Failure(f"{what}: {raised}", code=self.trial.attribution.raises) from error
        return bool(several)

    def _chosen(
        self, rules: Sequence[ConcreteRule], whole: Sequence[ConcreteRule]
    ) -> Iterator[tuple[ConcreteRule, ...]]:
        """Yield a rule for each dimension of the mesh."""
        for position, rule in enumerate(rules):
            if len(self.mesh) == 1:
                yield (rule,)
            else:
                yield (rule, rule)
                yield (rule, [*rules, *whole][(position + 1) % (len(rules) + 1)])

    def _other_placements(self, finite: bool) -> Iterator[dict[str, Any]]:
        """Yield placements of single tensors, and of all that have a dimension, claimed or not."""
        from torch.distributed.tensor import Partial, Replicate, Shard

        from opsmith.signature.sizes.shapes import Fixed

        names = [p.name for p in self.case.signature.tensors if each_tensor(self.arguments[p.name])]
        whole: dict[str, Any] = dict.fromkeys(names, Replicate())
        for dim in self.case.signature.dims:
            placed = dict(whole)
            for parameter in self.case.signature.tensors:
                for axis, one in parameter.shape.axes() if parameter.shape else ():
                    if isinstance(one, Fixed) and str(one) == dim and parameter.name in names:
                        rank = each_tensor(self.arguments[parameter.name])[0].dim()
                        placed[parameter.name] = Shard(axis % rank)
            if placed != whole:
                yield placed
        for name in names:
            tensors = each_tensor(self.arguments[name])
            for axis in range(min(tensor.dim() for tensor in tensors)):
                yield {**whole, name: Shard(axis)}
            written = self.case.signature.by_name[name].mutated
            if finite and not written and all(is_differentiable(tensor) for tensor in tensors):
                yield {**whole, name: Partial()}

    def _call(
        self,
        mesh: DeviceMesh,
        rules: Sequence[ConcreteRule] | None,
        placed: Mapping[str, Any] | None = None,
    ) -> None:
        """Call with the placements of rules, or with others; compare results and gradients."""
        if rules is not None:
            placements = {
                name: [rule.arguments[name] for rule in rules] for name in rules[0].arguments
            }
        else:
            assert placed is not None
            placements = {name: [one] * mesh.ndim for name, one in placed.items()}
        what = self._described(placements, rules)
        ended: list[dict[str, Any]] = []
        try:
            with ranks.noting(self.trial.operator, ended):
                self._compared(mesh, placements, rules, what)
        except Failure:
            raise
        except Exception as error:
            if self._refuses(ended):
                return
            raise Failure(
                f"{what}: {self.trial.raised(error)}", code=self.trial.attribution.raises
            ) from error

    def _refuses(self, calls: Iterable[Mapping[str, Any]]) -> bool:
        """Return whether the reference refuses the parts of a rank: an empty one, for instance."""
        try:
            for arguments in calls:
                require_accepted(self.trial.operator, arguments)
        except RefusedError:
            return True
        return False

    def _parts_of(self, rule: ConcreteRule) -> Iterator[dict[str, Any]]:
        """Yield the arguments of each of two ranks."""
        whole = self.case.make(HOST)
        parts = {
            name: ranks.parts_of(tensor, (2,), [rule.arguments[name.partition("[")[0]]])
            for name, tensor in every_tensor_in(whole)
        }
        for rank in range(2):
            yield map_named_tensors(whole, lambda name, _, rank=rank: parts[name][rank])  # type: ignore[misc]

    def _described(
        self,
        placements: Mapping[str, Sequence[Any]],
        rules: Sequence[ConcreteRule] | None,
        mesh: Sequence[int] = (),
    ) -> str:
        shown = ", ".join(
            f"{name} {' '.join(map(_shown, several))}"
            for name, several in placements.items()
            if any(not one.is_replicate() for one in several)
        )
        size = "x".join(map(str, mesh or self.mesh))
        claims = " and ".join(dict.fromkeys(rule.claim for rule in rules or () if rule.claim))
        return f"{claims + ': ' if claims else ''}on {size} ranks with {shown or 'whole tensors'}"

    def _compared(
        self,
        mesh: DeviceMesh,
        placements: Mapping[str, Sequence[Any]],
        rules: Sequence[ConcreteRule] | None,
        what: str,
    ) -> None:
        from opsmith.checks.ranks.planned_moves import planned_moves
        from opsmith.operators.dispatch.ranks.sharding_rules import chosen_rules

        signature = self.case.signature
        whole = self.case.make(HOST)
        parts: dict[str, list[Tensor]] = {}
        for name, tensor in every_tensor_in(whole):
            parts[name] = ranks.parts_of(tensor, self.mesh, placements[name.partition("[")[0]])

        def placed(name: str, tensor: Tensor) -> Any:
            return ranks.joined(parts[name], tensor, mesh, placements[name.partition("[")[0]])

        leaves: dict[str, Tensor] = {}
        # DTensor differentiates partial sums, but no other partial value, such as a maximum.
        differentiated = self.gradients is not None and all(rule.is_sum for rule in rules or ())
        with ranks.every_rank(self.mesh), torch.set_grad_enabled(differentiated):
            arguments = map_named_tensors(whole, placed)
            if differentiated:
                arguments, leaves = leaves_of(arguments, signature)
            positional, keywords = self.trial.operator.split(arguments)
            planned: list[Move] = []
            if not self.foreign and rules is None:
                chosen = chosen_rules(self.trial.operator, arguments, mesh)
                planned = planned_moves(chosen, arguments, mesh)
            with Communication() as forward:
                returned = self.trial.operator(*positional, **keywords)
            results = flatten(signature, returned, arguments)
            every = [ranks.gathered(result) for result in results]
            with Communication() as backward:
                grads = self._differentiated(mesh, results, leaves) if leaves else []
            found = [ranks.gathered(grad) for grad in grads]
        if rules is not None:
            self._require_none(forward, f"{what}: the call")
            self._require_none(backward, f"{what}: the gradient")
        elif not self.foreign and mesh.ndim == 1 and not signature.mutated:
            self._require_planned(forward, planned, what)
        sums = any(r.is_sum and any(one.is_partial() for one in r.results) for r in rules or ())
        self._compare(every, self._allowing(self.truth, placements, sums), what)
        if self.gradients is not None and leaves:
            allowing = self._allowing(self.gradients, placements, sums)
            self._compare(found, allowing, f"{what}, gradients")

    def _require_none(self, communication: Communication, what: str) -> None:
        if communication.collectives:
            number, kinds = len(communication.collectives), ", ".join(communication.counts())
            raise Failure(
                f"{what} communicated {number} times ({kinds}; {communication.sent} bytes), and "
                "the rule says that ranks need nothing of each other",
                code="OPS-SHARDING-MOVES",
            )

    def _require_planned(
        self, communication: Communication, planned: Sequence[Move], what: str
    ) -> None:
        """Compare the collectives of a call with the redistributions that lead to its rule."""
        sent = [one.sent for one in communication.collectives if one.sent]
        expected = [move.sent for move in planned if move.sent]
        if sorted(sent) != sorted(expected):
            shown = ", ".join(
                f"{move.argument} to {_shown(move.wanted)}" for move in planned if move.sent
            )
            raise Failure(
                f"{what}: each rank sent {sum(sent)} bytes in {len(sent)} collectives, and "
                f"redistributing {shown or 'nothing'} takes {sum(expected)} in {len(expected)}",
                code="OPS-SHARDING-MOVES",
            )

    def _differentiated(
        self, mesh: DeviceMesh, results: Sequence[Any], leaves: Mapping[str, Tensor]
    ) -> list[Tensor]:
        """Return the gradient of each leaf."""
        outputs: list[Any] = [result for result in results if is_differentiable(result)]
        pairs = []
        for output, cotangent in zip(outputs, self.cotangents, strict=True):
            if output.requires_grad:
                incoming = _incoming(output.placements)
                parts = ranks.parts_of(cotangent, self.mesh, incoming)
                pairs.append((output, ranks.joined(parts, cotangent, mesh, incoming)))
        grads = gradients_by(pairs, leaves.values())
        return [
            torch.zeros(leaf.shape, dtype=leaf.dtype) if grad is None else grad
            for leaf, grad in zip(leaves.values(), grads, strict=True)
        ]

    def _allowing(
        self, truth: Expected, placements: Mapping[str, Sequence[Any]], sums: bool
    ) -> Expected:
        """Return the truth with the tolerance that summands of larger values have.

        An infinite value is no sum that ranks share: its summands may add up to NaN.
        """
        larger = 1.0
        for several in placements.values():
            larger = max(larger, ranks.MAGNITUDE ** sum(one.is_partial() for one in several))
        if larger == 1 and not sums:
            return truth
        spread = [None if one is None else one * larger for one in truth.spread]
        undefined = [value.isinf() for value in truth.values]
        if truth.undefined is not None:
            undefined = [a | b for a, b in zip(undefined, truth.undefined, strict=True)]
        return replace(truth, spread=spread, undefined=undefined, shared_sums=larger)

    def _compare(self, found: Sequence[list[Tensor]], truth: Expected, what: str) -> None:
        """Compare each rank's part with the truth; equal parts are compared once."""
        same = [all(same_bits(list(one[:1]), [other]) for other in one[1:]) for one in found]
        several = [one[:1] if alike else one for one, alike in zip(found, same, strict=True)]
        for rank in range(max((len(one) for one in several), default=0)):
            own = [one[min(rank, len(one) - 1)] for one in several]
            self.trial.compare(own, truth, what if not rank else f"{what}, on rank {rank}")


def _incoming(placements: Sequence[Any]) -> list[Any]:
    from torch.distributed.tensor import Replicate

    return [Replicate() if one.is_partial() else one for one in placements]


def _shown(placement: Any) -> str:
    """Return a placement as a program writes it."""
    if placement.is_partial():
        return "Partial()"
    return "Replicate()" if placement.is_replicate() else f"Shard({placement.dim})"
