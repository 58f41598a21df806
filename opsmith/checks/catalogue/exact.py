"""Check that a kernel is the reference's formula, with numbers that are never rounded."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure, Inapplicable
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.subject import Subject, is_float
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.catalogue.memory_safety import as_taken, compiled, need_source
from opsmith.checks.harness import Elements, Fault, Phase, flat_memory
from opsmith.checks.numerics.double_run import double_by_default
from opsmith.checks.numerics.exact import arrays, language
from opsmith.checks.numerics.exact.arrays import Array
from opsmith.checks.numerics.exact.language import CODES, exact
from opsmith.checks.numerics.exact.memory import Memory
from opsmith.checks.numerics.exact.reference import ExactReference, LeavesFieldError
from opsmith.checks.numerics.exact.verdict import ExactVerdict, first_wrong
from opsmith.checks.numerics.gradients import (
    has_leaves,
    is_differentiable,
    leaves_of,
    stopped,
    with_copies_to_write,
)
from opsmith.checks.numerics.loop_sizes import largest_sizes
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import BuildError
from opsmith.kernels import KernelSource, Library
from opsmith.operators import Operator
from opsmith.operators.core.arguments import (
    dtype_name,
    map_named_tensors,
    map_tensors,
    output_names,
    with_own_lists,
)
from opsmith.operators.defined import DefinedOperator
from opsmith.operators.dispatch.declared_backward import DeclaredBackward
from opsmith.signature.dtype_variables import parts
from opsmith.signature.parameters import Parameter, Result
from opsmith.signature.solving.fitting import Fitting

#: Draws of residues for each case, each in another field.
_DRAWS = 3
#: Further draws, with other values, before an element is called wrong.
_MORE = 5
#: The least number of samples. A single sample proves little: the first has at most one element.
_LEAST = 8
#: Largest number of elements of a case's arguments.
_MOST = 1 << 12
#: A size behind the first block of any kernel that works in blocks of up to 256, and a size for a
#: dimension that the reference loops over, behind blocks of up to 32.
_BEHIND_BLOCKS, _BEHIND_SMALL_BLOCKS = 259, 35
#: Relative change of values that a draw behind the first ones makes, against near ties.
_NUDGE = 1e-2


def kernels_in_cpp(operator: Operator) -> list[Subject]:
    """Return the kernels in C++ that the host can call."""
    return [one for one in compiled(operator) if one.implementation.entry is not None]


@dataclass
class ExactComparison:
    """A kernel and its reference, with numbers that are never rounded."""

    trial: Trial
    source: KernelSource
    build: harness.Build
    dtype: str | None
    phase: Phase = field(default_factory=Phase)
    memory: Memory = field(default_factory=Memory)
    cases: int = 0
    elements: int = 0
    undecided: int = 0

    def check(self, case: Case) -> None:
        """Compare the kernel with the reference for one case."""
        self.trial.accept(case)
        arguments = as_taken(self.source, case.make())
        verdicts: list[ExactVerdict] = []
        for draw in range(_DRAWS + _MORE):
            if draw >= _DRAWS and not any(verdict.suspect for verdict in verdicts):
                break
            given = arguments if draw < _DRAWS else _nudged(arguments, draw)
            arrays.select(draw % arrays.FIELDS)
            self.memory.begin()
            try:
                found, right = self.draw(case, given, draw)
            except Inapplicable:
                raise
            except Exception as error:
                # The kernel has not failed: `trial.accept` ran the reference as it is.
                what = f"{type(error).__name__}: {error}"
                raise Inapplicable(
                    f"the reference cannot be followed in the field: {what}"
                ) from None
            if not self._compare(verdicts, found, right):
                return  # results of other sizes are the business of `reference`
        related = not case.sampled
        wrong = first_wrong(verdicts, by_value=related)
        if wrong is not None:
            message, refuted = wrong
            table = "" if refuted else language.table_in(self.source.path)
            if table:
                raise Inapplicable(
                    f"the kernel has a table of numbers, which are rounded where they are made, at "
                    f"{table}: {message}"
                )
            raise Failure(
                f"{message}. Unequal in {_DRAWS + _MORE} draws of residues",
                code="OPS-EXACT-FORMULA" if refuted else "OPS-EXACT-VALUE",
            )
        self.cases += 1
        self.elements += sum(verdict.agreed.numel() for verdict in verdicts)
        self.undecided += sum(verdict.undecided for verdict in verdicts)

    def draw(
        self, case: Case, arguments: Mapping[str, Any], draw: int
    ) -> tuple[list[Any], list[tuple[str, Any]]]:
        """Return the kernel's results, and the reference's with their names."""
        del case
        mode = ExactReference()
        given = map_named_tensors(arguments, lambda _, one: _drawn(mode, one, draw))
        with _in_field(mode, draw), torch.no_grad():
            returned, results = run_reference(self.trial.operator, given)
        found = [mode.array(one) if one.is_floating_point() else one for one in results]
        names = output_names(self.trial.signature, returned, arguments)
        taken = map_named_tensors(arguments, lambda _, one: self.taken(one, draw))
        return self.call(taken, draw), list(zip(names, found, strict=True))

    def call(self, arguments: Mapping[str, Any], draw: int) -> list[Any]:
        """Call the kernel, and return its results and what it wrote."""
        signature = self.source.signature
        environment = {"OPSMITH_EXACT": str(draw % arrays.FIELDS), **self.memory.variables}
        try:
            calls = harness.run(
                self.build, signature, [arguments], [self.phase], environment=environment
            )
        except Fault as fault:
            raise Inapplicable(
                f"the kernel ends its process with numbers that are never rounded: {fault}"
            ) from None
        ((call,),) = calls
        if call.refused:
            raise Inapplicable(f"the kernel refuses what the reference takes: {call.refused}")
        return call.tensors()

    def taken(self, tensor: Tensor, draw: int) -> Any:
        """Return a real tensor as a kernel with exact numbers takes it."""
        if not tensor.is_floating_point():
            return tensor
        array = arrays.drawn(flat_memory(tensor), draw)
        return self._elements(array, dtype_name(tensor.dtype), tensor.shape, tensor.stride())

    def _elements(
        self, array: Array, dtype: str, shape: Sequence[int], strides: Sequence[int]
    ) -> Elements:
        bits = self.memory.bits(dtype)
        memory = self.memory.pack(array, bits)
        return Elements(CODES[dtype], bits, tuple(shape), tuple(strides), memory)

    def _numbers(self, elements: Elements) -> Array:
        """Return the numbers of a kernel's result, or of an argument in any layout."""
        if not elements.memory:
            return arrays.empty(elements.shape)
        flat = self.memory.unpack(elements.memory, elements.bits)
        return flat.map(lambda plane: torch.as_strided(plane, elements.shape, elements.strides))

    def _compare(
        self, verdicts: list[ExactVerdict], found: list[Any], right: list[tuple[str, Any]]
    ) -> bool:
        """Add a draw to the verdicts; return False where the results cannot be compared."""
        if len(found) != len(right):
            return False
        pairs = [
            (name, self._numbers(one), other)
            for one, (name, other) in zip(found, right, strict=True)
            if isinstance(one, Elements) and isinstance(other, Array)
        ]
        if any(one.shape != other.shape for _, one, other in pairs):
            return False
        if not verdicts:
            verdicts.extend(ExactVerdict(name) for name, _, _ in pairs)
        for verdict, (_, one, other) in zip(verdicts, pairs, strict=True):
            verdict.take(one, other)
        return True


class GradientComparison(ExactComparison):
    """The kernel of a declared backward, and the derivative of the forward's reference."""

    def draw(
        self, case: Case, arguments: Mapping[str, Any], draw: int
    ) -> tuple[list[Any], list[tuple[str, Any]]]:
        """Return the kernel's gradients, and those of the reference with their names."""
        operator, signature = self.trial.operator, self.trial.signature
        declared = _declared(self.trial)
        assert declared is not None
        mode = ExactReference()
        given = map_named_tensors(arguments, lambda _, one: _drawn(mode, one, draw))
        own, leaves = leaves_of(given, signature)
        with _in_field(mode, draw), torch.enable_grad():
            own = with_copies_to_write(signature, with_own_lists(own))
            positional, keywords = operator.split(own)
            returned = stopped(signature, operator.reference(*positional, **keywords), own)
            results = list(returned) if len(signature.results) > 1 else [returned]
            written = {parameter.name: own[parameter.name] for parameter in signature.mutated}
            results += written.values()
        generator = torch.Generator().manual_seed(draw)
        cotangents = {
            place: _drawn(
                mode, torch.randn(one.shape, generator=generator, dtype=torch.float64), draw
            )
            for place, one in enumerate(results)
            if isinstance(one, Tensor) and is_differentiable(one)
        }
        reached = [place for place in cotangents if results[place].requires_grad]
        with _in_field(mode, draw):
            gradients = torch.autograd.grad(
                [results[place] for place in reached],
                list(leaves.values()),
                [cotangents[place] for place in reached],
                materialize_grads=True,
            )
        names = [parameter.name for parameter in signature.parameters]
        owners: list[Result | Parameter] = [*signature.results, *signature.mutated]
        taken: dict[str, Any] = {p.name: p.default for p in declared.backward.signature.parameters}
        for one in declared.given:
            name = names[one.position] if one.kind == "argument" else ""
            if name and name not in written:
                value = arguments[name]
                taken[one.name] = map_tensors(value, lambda tensor: self.taken(tensor, draw))
                continue
            # A backward sees what the forward wrote into an argument.
            type_ = (signature.by_name[name] if name else owners[one.position]).tensor_type
            dtype = None if type_ is None else signature.dtype_in(type_, case.dtype)
            known = cotangents if one.kind == "gradient" else dict(enumerate(results))
            value = written[name] if name else known[one.position]
            convert = functools.partial(self._as_elements, mode, dtype=dtype)
            taken[one.name] = map_tensors(value, convert)
        found = self.call(taken, draw)
        right: list[tuple[str, Any]] = []
        kept: list[Any] = []
        for (name, _), gradient in zip(leaves.items(), gradients, strict=True):
            place = declared.gradients[names.index(name)] if name in names else None
            if place is not None:
                right.append((f"the gradient of {name!r}", mode.array(gradient)))
                kept.append(found[place])
        return kept, right

    def _as_elements(self, mode: ExactReference, tensor: Tensor, dtype: str | None) -> Any:
        """Return a tensor of the reference as a kernel with exact numbers takes it."""
        if not tensor.is_floating_point():
            return tensor
        array = arrays.contiguous(mode.array(tensor))
        return self._elements(array, dtype or "float64", tensor.shape, array.values.stride())


@contextlib.contextmanager
def _in_field(mode: ExactReference, draw: int) -> Iterator[None]:
    """Run a reference in the field of a draw, in double precision."""
    try:
        with double_by_default(), mode:
            yield
    except LeavesFieldError as error:
        raise Inapplicable(f"the reference leaves the field: {error}") from None


def _declared(trial: Trial) -> DeclaredBackward | None:
    operator = trial.operator
    return operator.declared_backward if isinstance(operator, DefinedOperator) else None


def _drawn(mode: ExactReference, tensor: Tensor, draw: int) -> Tensor:
    if not tensor.is_floating_point():
        return tensor.contiguous()
    return mode.tensor(arrays.drawn(tensor, draw))


def _nudged(arguments: Mapping[str, Any], draw: int) -> dict[str, Any]:
    """Return arguments with other values near the given ones, in the same layouts."""
    generator = torch.Generator().manual_seed(draw)

    def nudged(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        flat = flat_memory(tensor).double()
        short = flat * 16 == (flat * 16).round()
        noise = torch.rand(flat.shape, generator=generator, dtype=torch.float64)
        flat = torch.where(short, flat, flat * (1 + _NUDGE * (noise - 0.5))).to(tensor.dtype)
        return torch.as_strided(flat, tensor.shape, tensor.stride())

    return {name: map_tensors(value, nudged) for name, value in arguments.items()}


def _fits(case: Case) -> bool:
    """Return whether a case is small, and all its real numbers are finite numbers."""
    reals = [tensor for _, tensor in case.tensors() if tensor.is_floating_point()]
    return case.numel <= _MOST and all(
        dtype_name(tensor.dtype) in CODES and bool(tensor.isfinite().all()) for tensor in reals
    )


def _is_real(dtypes: str) -> bool:
    """Return whether a choice of dtypes has real numbers, and no others but integers."""
    inexact = [one for one in parts(dtypes) if is_float(one)]
    return bool(inexact) and all(one in CODES for one in inexact)


def _widest(dtypes: Sequence[str | None]) -> str | None:
    return max(dtypes, key=lambda one: [parts(one).count(t) for t in ("float64", "float32")])


def _first_error(error: BuildError) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if "error:" in line), lines[0])


def prepare(
    trial: Trial,
    source: KernelSource | None = None,
    *,
    emulate: Callable[[KernelSource], KernelSource] | None = None,
    memory: Memory | None = None,
) -> ExactComparison:
    """Build a trial's kernel with numbers that are never rounded.

    Args:
        source: the kernel of the operator's declared backward, to compare gradients.
        emulate: returns a source for another device as one to compile for the CPU, with such
            numbers; by default the kernel is in C++.
        memory: how numbers lie in the kernel's memory.
    """
    kind = ExactComparison if source is None else GradientComparison
    emulated = emulate is not None
    if source is None:
        implementation = trial.subject.implementation
        source = implementation.source if emulated else implementation.entry
    assert source is not None
    need_source(trial, source)
    trial.need(emulated or source.language.name == "C++", "the kernel is not in C++")
    dtypes = [one for one in trial.subject.dtypes if one is None or _is_real(one)]
    trial.need(dtypes, "the kernel takes no real dtype")
    found = language.obstacle(source.path)
    trial.need(not found, found)
    dtype = _widest(dtypes)
    try:
        translated = exact(source, dtype) if emulate is None else emulate(source)
        build = harness.build(translated, emulated=emulated)
    except BuildError as error:
        raise Inapplicable(
            "the source, with every operator in it, does not compile with numbers that are never "
            f"rounded (vector types and intrinsics, bits of numbers): {_first_error(error)}"
        ) from None
    if emulated and dtypes != [None]:
        compiled_for = Library(
            translated.signature, translated.device, translated.what, build.library
        ).dtypes()
        dtypes = [one for one in dtypes if one in compiled_for]
        trial.need(dtypes, "the kernel takes no real dtype")
        dtype = _widest(dtypes)
    phase = Phase(emulated=emulated)
    return kind(trial, source, build, dtype, phase, memory or Memory())


@define_check(
    "exact",
    "the kernel is the reference's formula, compared in finite fields without a tolerance",
    subjects=kernels_in_cpp,
    order=11,
    needs=PLAIN_CALLS,
    time_limit=3.0,
    runtime="kernel alone",
)
def exact_formula(trial: Trial) -> None:
    """Compare residues for small cases, contiguous and strided."""
    compare_cases(trial, prepare(trial))


@define_check(
    "exact-gradient",
    "the kernel of the backward is the derivative of the reference's formula",
    subjects=kernels_in_cpp,
    order=51,
    needs=("gradient",),
    time_limit=3.0,
    runtime="kernel alone",
)
def exact_gradient(trial: Trial) -> None:
    """Compare the kernel of a declared backward with the derivative of the reference."""
    declared = _declared(trial)
    trial.need(declared is not None, "no operator is registered as the backward")
    assert declared is not None
    kernel = declared.backward.kernels.get(trial.subject.kernel)
    source = None if kernel is None else kernel.entry
    trial.need(source is not None, f"{declared.backward.name} has no kernel that the host can call")
    compare_cases(trial, prepare(trial, source), has_leaves)


def _wanted(trial: Trial, most: Mapping[str, int]) -> Iterator[tuple[Wanted, int]]:
    """Yield small sizes, and then each dimension behind a block beside others that are small."""
    yield Wanted(max_elements=_MOST // 4, most=most), max(trial.some(4), _LEAST)
    fitting = Fitting(trial.signature)
    for name in trial.signature.dims:
        slow = most.get(name, _BEHIND_BLOCKS) < _BEHIND_SMALL_BLOCKS
        size = fitting.near(name, _BEHIND_SMALL_BLOCKS if slow else _BEHIND_BLOCKS)
        if size is not None:
            yield Wanted(sizes=(2, 1, 3), forced={name: size}, max_elements=_MOST), 1


def compare_cases(
    trial: Trial, ready: ExactComparison, keep: Callable[[Case], bool] = lambda case: True
) -> None:
    """Compare a kernel with its reference for small cases, and note how many elements are equal.

    Args:
        ready: the comparison, whose kernel is built.
        keep: returns whether to compare for a case.
    """
    # Each step of a loop of the reference's takes a hundred times as long with such numbers.
    most = largest_sizes(trial.operator, trial.subject.favourite, by_steps=True)
    for wanted, examples in _wanted(trial, most):
        trial.each(
            ready.check,
            dtypes=(ready.dtype,),
            wanted=wanted,
            examples=examples,
            registered_cases=not wanted.forced,
            most=4,
            keep=lambda case: _fits(case) and keep(case),
        )
    equal = ready.elements - ready.undecided
    trial.need(ready.elements, "no case has results of real numbers that can be compared")
    trial.need(
        equal,
        f"none of {ready.elements} elements can be compared as a formula (roots, functions without "
        "laws, rounded constants)",
    )
    trial.notes.append(
        f"{equal} elements of {ready.cases} cases equal as formulas, rounding and overflow apart"
    )
    if ready.undecided:
        trial.notes.append(
            f"{ready.undecided} elements undecided (roots, functions without laws, rounded "
            "constants), their values equal up to rounding in double precision"
        )
    slow = [name for name, size in most.items() if size < _BEHIND_SMALL_BLOCKS]
    if slow:
        names = ", ".join(slow)
        trial.notes.append(f"sizes up to {_BEHIND_SMALL_BLOCKS} of {names}, as the reference loops")
    trial.notes.append(
        "an unequal formula of degree up to 4096 escapes with a probability below 2^-50"
    )
