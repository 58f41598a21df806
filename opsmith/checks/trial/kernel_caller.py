"""Call the kernel that a check tests, in this process or in another, and keep its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import CHANGED, Failure
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.subject import Subject
from opsmith.checks.isolation.call_ways import PLAIN, call_in, caller_of
from opsmith.checks.isolation.fork_detection import forking_fails
from opsmith.checks.numerics.comparison import same_bits
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.numerics.torch_threads import threads
from opsmith.checks.trial.attribution import Attribution
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import each_tensor, every_tensor_in, flatten
from opsmith.system.stopwatch import spending

if TYPE_CHECKING:
    from opsmith.checks.isolation.kernel_client import Caller


@dataclass(slots=True)
class KernelCaller:
    """Calls the kernel of one check.

    Attributes:
        attribution: the failure code for an exception.
        caller: the process that the kernel runs in; `None` for this process.
        keep: number of results that are compared again after later calls.
        threads: number of threads that the kernel runs with.
        way: the way to call, see `opsmith.checks.isolation.call_ways`.
        repeats: number of equal calls to make before each call.
    """

    subject: Subject
    name: str
    attribution: Attribution
    caller: Caller | None = None
    keep: int = 0
    threads: int = field(default_factory=torch.get_num_threads)
    way: str = PLAIN
    repeats: int = 0
    _taken: set[tuple[torch.dtype, ...]] = field(default_factory=set)
    _earlier: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list)

    def make(self, case: Case) -> dict[str, Any]:
        """Make the arguments of `case` anew, on the device where `run` expects them."""
        return case.make(self.subject.device if self.caller is None else HOST)

    @spending("calls")
    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the operator in this process through the dispatcher, with all threads."""
        assert self.caller is None, f"the kernel of check {self.name!r} runs in another process"
        operator = self.subject.operator
        positional, keywords = operator.split(arguments)
        call = caller_of(operator, self.subject.kernel)
        with forking_fails(), threads(self.threads):
            return call_in(self.way, lambda: call(*positional, **keywords))

    def run(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """Call the operator, and return its results and then the tensors that it wrote into."""
        dtypes = tuple(tensor.dtype for _, tensor in every_tensor_in(arguments))
        try:
            found = self._run(arguments)
        except Exception as error:
            crashed = isinstance(error, Failure) and error.code != self.attribution.raises
            if dtypes in self._taken and not crashed:
                try:
                    run_reference(self.subject.operator, arguments)
                except Exception as refused:
                    raise RefusedError(f"{type(refused).__name__}: {refused}") from None
            raise
        self._taken.add(dtypes)
        return found

    @spending("calls")
    def _run(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        operator = self.subject.operator
        if self.caller is not None:
            self.caller.keep, self.caller.raises = self.keep, self.attribution.raises
            return self.caller.run(
                operator,
                arguments,
                kernel=self.subject.kernel,
                device=self.subject.device,
                threads=self.threads,
                way=self.way,
                repeats=self.repeats,
            )
        # The copies are made first: a call may write into its arguments.
        for others in [Case(operator.signature, arguments).make() for _ in range(self.repeats)]:
            self.call(others)
        found = flatten(operator.signature, self.call(arguments), arguments)
        for results, copies in self._earlier if self.keep else ():
            if not same_bits(results, copies):
                raise Failure(CHANGED, code="OPS-RESULT-REUSED")
        if self.keep:
            written = sum(len(each_tensor(arguments[p.name])) for p in operator.signature.mutated)
            fresh = found[: len(found) - written]
            self._earlier.append((fresh, [tensor.clone() for tensor in fresh]))
            del self._earlier[: -self.keep]
        return found
