"""Check that the kernel writes only into the memory that it may write into."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import CONTIGUOUS, SLICED, TRANSPOSED
from opsmith.checks.cases.reruns.registered_cases import laid_out
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.compat.torch_autograd import version_of
from opsmith.operators.core.arguments import every_tensor_in


@dataclass
class _Snapshot:
    """The whole memory of a tensor before a call, including elements that a view leaves out."""

    name: str
    tensor: Tensor
    memory: Tensor
    version: int

    @classmethod
    def take(cls, name: str, tensor: Tensor) -> _Snapshot:
        return cls(name, tensor, _memory(tensor).clone(), version_of(tensor))

    def changed(self) -> bool:
        return not torch.equal(_memory(self.tensor), self.memory)

    def changed_outside(self) -> bool:
        """Return whether memory outside the tensor's elements was written."""
        tensor, size = self.tensor, self.tensor.element_size()
        outside = torch.ones(self.memory.numel() // size, dtype=torch.bool, device=tensor.device)
        outside.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(False)
        different = (_memory(tensor) != self.memory).view(-1, size).any(1)
        return bool((different & outside).any())


def _memory(tensor: Tensor) -> Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


@define_check("mutation", "the kernel writes only into arguments that mutates_args names", order=15)
def mutation(trial: Trial) -> None:
    """Compare bytes and version counters of every argument before and after a call."""
    mutated = {parameter.name for parameter in trial.signature.mutated}
    undeclared = "mutates_args does not name it"
    if trial.subject.adopted:
        undeclared = "a schema says so by (a!), and its own does not"

    def one(case: Case) -> None:
        trial.accept(case)
        arguments = case.make(trial.subject.device)
        before = [_Snapshot.take(name, tensor) for name, tensor in every_tensor_in(arguments)]
        trial.call(arguments)
        for snapshot in before:
            name, tensor = snapshot.name, snapshot.tensor
            if name.partition("[")[0] not in mutated:
                if snapshot.changed() or version_of(tensor) != snapshot.version:
                    raise Failure(
                        f"argument {name!r} was changed; {undeclared}",
                        code="OPS-MUTATION-UNDECLARED",
                    )
                continue
            if snapshot.changed_outside():
                raise Failure(
                    f"memory around argument {name!r}, a view, was changed",
                    code="OPS-MUTATION-OUTSIDE",
                )
            if version_of(tensor) == snapshot.version:
                raise Failure(
                    f"argument {name!r} was written into, but its version counter stayed at "
                    f"{snapshot.version}: autograd cannot notice an overwritten tensor",
                    code="OPS-MUTATION-VERSION",
                )

    trial.each(
        one,
        wanted=Wanted(layouts=(CONTIGUOUS, SLICED)),
        examples=trial.some(2),
        adapt=lambda case: laid_out(case, (SLICED,)),
    )


@define_check("aliasing", "results share no memory with arguments or with each other", order=16)
def aliasing(trial: Trial) -> None:
    """Compare the addresses of the results' memory with those of the arguments."""
    trial.need(trial.signature.results, "returns nothing")

    def one(case: Case) -> None:
        trial.accept(case)
        arguments = case.make(trial.subject.device)
        returned = trial.call(arguments)
        many = returned if isinstance(returned, list | tuple) else [returned]
        named = {f"result {n}" if n else "the result": v for n, v in enumerate(many)}
        owners = {
            tensor.untyped_storage().data_ptr(): f"argument {name!r}"
            for name, tensor in every_tensor_in(arguments)
            if tensor.untyped_storage().nbytes()
        }
        for name, tensor in every_tensor_in(named):
            # Pass over results without elements: they share none of a view's memory.
            if not tensor.numel() or not tensor.untyped_storage().nbytes():
                continue
            address = tensor.untyped_storage().data_ptr()
            if address in owners:
                raise Failure(
                    f"{name} shares memory with {owners[address]}; return a copy",
                    code="OPS-RESULT-ALIAS",
                )
            owners[address] = name

    # Draw views too: `x.contiguous()` is the argument itself in some layouts alone.
    trial.each(
        one,
        wanted=Wanted(layouts=(CONTIGUOUS, TRANSPOSED, SLICED)),
        examples=trial.some(2),
        adapt=lambda case: laid_out(case, (TRANSPOSED,)),
    )
