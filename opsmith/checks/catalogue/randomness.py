"""Check that random results follow seed and offset, and have the distribution that is stated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from opsmith import philox
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.numerics.comparison import same_bits
from opsmith.checks.numerics.statistics import dependence, off_distribution
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial

_SIZES = (257, 1000, 64, 130)
_DRAWS = 8
#: Number of values for which frequencies are counted, and the most draws to obtain them.
_ENOUGH, _MOST_DRAWS = 1 << 15, 200
#: Each series of draws varies one of the two numbers by a step: the number's position, and the
#: step. An offset's step is larger than the number of blocks of a case, so that no two draws share
#: a block.
_SERIES = {
    "seeds": (0, 1),
    "seeds that differ above bit 32": (0, 1 << 33),
    "offsets": (1, 1 << 20),
    "offsets that differ above bit 32": (1, 1 << 33),
}


@define_check(
    "randomness",
    "random results depend on seed and offset, and have the stated distribution",
    subjects=lambda operator: subjects_of(operator) if operator.signature.drawn else [],
    order=61,
    apart=True,
)
def randomness(trial: Trial) -> None:
    """Repeat a call with series of seeds and offsets, and compare the results' frequencies.

    The frequencies are those of `register_distribution`. They are judged without the reference,
    which may be wrong itself.
    """
    drawn = trial.signature.drawn
    assert drawn is not None
    rule = trial.operator.distribution
    differed = False

    def one(case: Case) -> None:
        nonlocal differed
        trial.accept(case)
        first = case.values[drawn.name]
        changed = dict.fromkeys(_SERIES, 0)

        def results_of(rng: Tensor) -> list[Tensor]:
            other = replace(case, values={**case.values, drawn.name: rng})
            return trial.run(trial.make(other))

        results = [results_of(first)]
        for series, rng in _states(first):
            results.append(results_of(rng))
            changed[series] += not same_bits(results[0], results[-1])
        differed |= any(changed.values())
        for series, count in changed.items():
            # As likely as heads in 8 throws of a coin, and tails in 8 others, at most.
            if count == 0 and max(changed.values()) == _DRAWS:
                raise _final(
                    f"the results are the same for {_DRAWS + 1} {series}, and differ for other "
                    f"{'offsets' if series.startswith('seed') else 'seeds'}",
                    "OPS-RANDOM-IGNORED",
                )
        if rule is None:
            return
        with trial.attribution.blaming("distribution", rule.function):
            stated = [rule(case.values, result) for result in results]
        seed, offset = first.tolist()
        sizes = [values.numel() for values, _ in stated[0].values()]
        for number in range(-min(_MOST_DRAWS, _ENOUGH // max(min(sizes, default=1), 1)), 0):
            stated.append(rule(case.values, results_of(philox.state(seed + number, offset))))
        _judge(stated)

    # In a few cases, such as a dropout by probabilities near 0, nothing may depend on the seed.
    for examples in (trial.some(8), 8, 32):
        trial.each(
            one,
            dtypes=(trial.subject.favourite,),
            wanted=Wanted(sizes=_SIZES, max_elements=1 << 15),
            examples=examples,
            most=4,
        )
        if differed:
            break
    if trial.counts.ran and not differed and not trial.replay.alone:
        raise Failure("no result of any case depends on seed or offset", code="OPS-RANDOM-IGNORED")
    if rule is None:
        trial.notes.append("register_distribution was not called")


def _states(first: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield seeds and offsets with the series that they belong to."""
    for series, (place, step) in _SERIES.items():
        for number in range(1, _DRAWS + 1):
            state = first.tolist()
            state[place] += number * step
            yield series, philox.state(*state)


def _judge(stated: Sequence[Mapping[str, tuple[Tensor, float | None]]]) -> None:
    """Judge the frequencies of the values in each draw."""
    for name, (_, share) in stated[0].items():
        draws = [shown[name][0] for shown in stated]
        problem = off_distribution(draws, share)
        if problem:
            raise _final(f"{name}: of {len(draws)} draws, {problem}", "OPS-RANDOM-DISTRIBUTION")
        problem = dependence(draws, share)
        if problem:
            raise _final(f"{name}: in {len(draws)} draws, {problem}", "OPS-RANDOM-DEPENDENT")


def _final(message: str, code: str) -> Failure:
    """Return a failure of frequencies, for which smaller cases show less."""
    failure = Failure(message, code=code)
    failure.final = True
    return failure
