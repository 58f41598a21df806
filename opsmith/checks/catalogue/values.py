"""Check that the kernel agrees with the reference for all sizes and memory layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opsmith.checks.cases import cohorts, layouts
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.cohorts import Cohort
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.layouts import EXPANDED, LAYOUTS, SLICED, TRANSPOSED
from opsmith.checks.cases.sampling import Wanted
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.protocol import define_check
from opsmith.checks.trial import Trial
from opsmith.signature.dtype_variables import parts
from opsmith.signature.fitting import Fitting


def _agrees(trial: Trial, case: Case) -> None:
    truth = trial.truth(case)
    trial.compare(trial.run(trial.make(case)), truth)


def _agrees_laid_out(trial: Trial, case: Case) -> None:
    try:
        _agrees(trial, case)
    except Failure as failure:
        plain = case.with_layouts({})
        wrong = compare(trial.run(trial.make(plain)), trial.truth(plain)).problem
        if wrong is None:
            failure.code = "OPS-LAYOUT-STRIDE"
        raise


@define_check(
    "reference", "the results agree with the reference in double precision", order=10, apart=True
)
def reference(trial: Trial) -> None:
    """Try every dtype with contiguous arguments, then each cohort."""
    trial.each(lambda case: _agrees(trial, case))
    counts = {"normal": trial.counts.ran}
    if not trial.only_registered:
        for cohort, dtype, examples in _cohorts(trial):
            if not examples:
                continue
            before = trial.counts.ran
            trial.attribution.wrong, trial.counts.cohort = cohort.code, cohort.name
            trial.each(
                lambda case: _agrees(trial, case),
                dtypes=(dtype,),
                wanted=cohort.wanted,
                examples=examples,
                registered_cases=False,
            )
            counts[cohort.name] = counts.get(cohort.name, 0) + trial.counts.ran - before
    told = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    trial.notes.append(f"cohorts: {told}")
    unspecified = ", ".join(trial.signature.unspecified())
    if unspecified:
        trial.notes.append(f"unspecified, so never sampled: {unspecified}")


def _cohorts(trial: Trial) -> Iterator[tuple[Cohort, str | None, int]]:
    """Yield every cohort with a dtype to try it in, and the number of examples."""
    signature, favourite = trial.signature, trial.subject.favourite
    others = [dtype for dtype in trial.subject.dtypes if dtype != favourite]
    found = [
        *cohorts.served(trial.operator.sizes),
        *cohorts.values(signature, favourite),
        *cohorts.arguments(signature),
        # An adopted operator is defined elsewhere, so its author does not decide about overlaps.
        *(() if trial.subject.adopted else cohorts.overlaps(signature)),
        *cohorts.sizes(signature, trial.settings.seed),
    ]
    for position, cohort in enumerate(found):
        yield cohort, favourite, cohort.examples
        if cohort.other_examples and others:
            other = others[(position + trial.settings.seed) % len(others)]
            yield cohort, other, cohort.other_examples
        for half in cohort.halves:
            own = [dtype for dtype in trial.subject.dtypes if half in parts(dtype)]
            if own or half in cohorts.fixed_dtypes(signature):
                yield cohort, next(iter(own), favourite), cohort.half_examples
                break


@define_check(
    "layouts",
    "transposed, sliced and expanded arguments give right results",
    order=20,
    apart=True,
)
def memory_layouts(trial: Trial) -> None:
    """Try every argument in the same layout, then each argument in its own."""
    examples = trial.some(4)
    for layout in (TRANSPOSED, SLICED, EXPANDED):

        def laid_out(case: Case, layout: str = layout) -> Case:
            # A tensor that is written into cannot have stride 0.
            mutated = {p.name for p in trial.signature.mutated} if layout == EXPANDED else set()
            return case.with_layouts(
                {p.name: SLICED if p.name in mutated else layout for p in trial.signature.tensors}
            )

        trial.counts.cohort = layout

        def can_be(case: Case, lay: Callable[[Case], Case] = laid_out) -> bool:
            return _is_strided(case if case.layouts else lay(case))

        trial.each(
            lambda case: _agrees_laid_out(trial, case),
            dtypes=(trial.subject.favourite,),
            wanted=Wanted(layouts=(layout,)),
            examples=examples,
            keep=can_be,
            adapt=laid_out,
        )
    trial.counts.cohort = "any layout"
    trial.each(
        lambda case: _agrees_laid_out(trial, case),
        wanted=Wanted(layouts=LAYOUTS),
        examples=examples,
        registered_cases=False,
    )
    trial.need(trial.counts.ran, "no argument can be anything but contiguous")


def _is_strided(case: Case) -> bool:
    return any(
        layouts.possible(tensor, case.layouts.get(name.partition("[")[0], layouts.CONTIGUOUS))
        for name, tensor in case.tensors()
    )


@define_check("empty-sizes", "dimensions of size 0 and 1 give right results", order=25, apart=True)
def empty_sizes(trial: Trial) -> None:
    """Set each dimension to 0 and to 1 by itself, then all of them."""
    dtypes = (trial.subject.favourite,)
    trial.attribution.wrong = "OPS-SIZE-SMALL"

    def has_small(case: Case) -> bool:
        return any(size < 2 for _, tensor in case.tensors() for size in tensor.shape)

    names = [n for n in trial.signature.dims if n not in trial.signature.variadic_dims]
    trial.each(lambda case: _agrees(trial, case), dtypes=dtypes, examples=0, keep=has_small)
    fitting = Fitting(trial.signature)
    for name in names:
        for size in (0, 1):
            if not fitting.fits(name, size, {}, {}):
                continue
            trial.counts.cohort = f"{name}={size}"
            trial.each(
                lambda case: _agrees(trial, case),
                dtypes=dtypes,
                wanted=Wanted(sizes=(2, 3, 1, 0, 4), forced={name: size}),
                examples=3,
                registered_cases=False,
            )
    trial.counts.cohort = "every size 0 or 1"
    trial.each(
        lambda case: _agrees(trial, case),
        dtypes=dtypes,
        wanted=Wanted(sizes=(0, 1)),
        examples=8,
        registered_cases=False,
    )
    trial.need(
        trial.counts.ran,
        "no registered case has a size of 0 or 1, and register_cases(only=True) allows no others"
        if trial.only_registered
        else "no argument has a dimension",
    )
