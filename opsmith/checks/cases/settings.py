"""Settings of a run of the checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Settings that, with the operator, decide the behaviour of a check.

    Attributes:
        examples: number of cases that a check samples, shared among the dtypes.
        seconds: time limit in seconds after which a check samples no further case.
        time_limit: time in seconds after which a single case counts as hung.
        shared: a folder for data that several checks of a run share, deleted after the run; empty
            for no folder.
        truths: whether the oracle's results for registered cases are cached in `shared`. Never set
            it where untrusted code runs, which could read them.
        stores: whether failing cases are saved for later runs.
        recalls: whether saved failing cases are tried first.
        given: a file with the only cases to run (see `stored_cases`); empty to run the usual cases.
        repeats: how often each of these cases runs, as long as there is time.
        threads: number of threads of the kernel; 0 for those of the process.
        devices: the requested device types; empty to check all that this machine has.
        warp: number of threads in a warp of CUDA kernels that are emulated.
    """

    seed: int = 0
    examples: int = 60
    seconds: float = 60.0
    time_limit: float = 60.0
    shared: str = ""
    truths: bool = False
    stores: bool = False
    recalls: bool = False
    given: str = ""
    repeats: int = 1
    threads: int = 0
    devices: tuple[str, ...] = ()
    warp: int = 32
