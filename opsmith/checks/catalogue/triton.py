"""Check Triton kernels without a GPU, in Triton's own interpreter on the CPU.

``docs/reference/triton.md`` lists what the interpreter cannot show.
"""

from __future__ import annotations

from torch import Tensor

from opsmith.checks.cases import cohorts
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import LAYOUTS
from opsmith.checks.cases.subject import Subject
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.numerics.comparison import same_bits
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import FaultError
from opsmith.kernels import HOST
from opsmith.kernels.languages.emulated_triton import thread
from opsmith.kernels.languages.triton import triton_missing
from opsmith.operators import Operator
from opsmith.operators.defined import DefinedOperator
from opsmith.operators.dispatch.triton_kernel import TritonLauncher
from opsmith.operators.emulation import emulated_kernel
from opsmith.signature.dtype_variables import parts
from opsmith.signature.dtypes import COMPLEX, FLOAT8

#: The dtypes that NumPy, which the interpreter computes with, does not support.
_NOT_INTERPRETED = {"bfloat16", *FLOAT8, *COMPLEX}


def kernels_in_triton(operator: Operator) -> list[Subject]:
    """Return the kernels in Triton, to be called with tensors on the CPU."""
    return [
        Subject(operator, name, HOST)
        for name, kernel in operator.kernels.items()
        if isinstance(kernel, TritonLauncher)
    ]


@define_check(
    "triton-interpreter",
    "a kernel in Triton, run by Triton's interpreter on the CPU, gives right results in any order "
    "of its programs, without races between them or accesses beside its memory",
    subjects=kernels_in_triton,
    order=9,
    time_limit=3.0,
    runtime="Triton's interpreter",
)
def triton_interpreter(trial: Trial) -> None:
    """Run each case in two orders; uninitialized memory holds NaN or large values.

    The first case runs in every configuration of an autotuner, the others in two of them.
    """
    missing = triton_missing()
    trial.need(not missing, missing)
    thread.configurations, turn = 1, 0
    operator = trial.operator
    assert isinstance(operator, DefinedOperator)
    dtypes = tuple(name for name in trial.subject.dtypes if not set(parts(name)) & _NOT_INTERPRETED)
    left_out = ", ".join(str(n) for n in trial.subject.dtypes if n not in dtypes)
    words = f"Triton's interpreter does not compute with {left_out}"
    trial.need(dtypes, words)
    if left_out:
        trial.notes.append(words)
    reproducible = True

    def one(case: Case) -> None:
        nonlocal reproducible, turn
        expected = trial.truth(case)
        first, turn = None, turn + 1
        seeds = [0, turn]  # 0 is the natural order
        for seed in seeds:
            thread.chosen = ""
            with emulated_kernel(operator, trial.subject.kernel, seed):
                results = _run(trial, case)
            order = "with programs in their natural order" if not seed else "with programs shuffled"
            trial.compare(results, expected, order + thread.chosen)
            first = first or results
            reproducible &= thread.configurations > 1 or same_bits(first, results)
            if turn == 1 and not seed:
                seeds += range(2, thread.configurations)

    favourite = (dtypes[0],)
    trial.each(one, dtypes=favourite, examples=trial.some(5))
    # The interpreter is slow, and another dtype runs the same programs, so try fewer cases.
    trial.each(one, dtypes=dtypes[1:], examples=trial.some(10), most=3)
    if not trial.cases.only_registered:
        # A function that launches kernels receives tensors in their own memory layout, so try every
        # layout.
        families = [(Wanted(sizes=(0, 1)), 6), (Wanted(layouts=LAYOUTS), 6)]
        sizes = cohorts.sizes(trial.signature, trial.settings.seed)
        every = (*cohorts.served(operator.sizes), *sizes)
        families += [(cohort.wanted, cohort.examples) for cohort in every]
        for wanted, examples in families:
            trial.sample(one, wanted, examples, dtypes[0])
    if not reproducible:
        trial.notes.append("not reproducible: the last bits depend on the order of the programs")


def _run(trial: Trial, case: Case) -> list[Tensor]:
    """Call the kernel."""
    try:
        return trial.run(trial.make(case))
    except FaultError as fault:
        raise Failure(f"{fault}{thread.chosen}", code=fault.code) from None
