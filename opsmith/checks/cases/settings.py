"""How thoroughly to look."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What decides, beside the operator, what a check does.

    Attributes:
        seed: decides every sample.
        examples: how many cases a check samples, shared among the dtypes.
        seconds: after this long a check samples no further case.
        time_limit: the seconds that one case may take before it counts as hung.
        shared: a folder for what several checks of a run need, which ends with it; empty where
            there is none.
        truths: whether what is right for the author's cases is kept in `shared`: never where
            untrusted code runs, which could read it.
        stores: whether failing cases are kept for later runs.
        recalls: whether those that are kept are tried first.
        given: a file with the cases to run in place of all others, see `user_cases`;
            empty where there is none.
        devices: the device types that were asked for; none where all that are here are checked.
    """

    seed: int = 0
    examples: int = 60
    seconds: float = 20.0
    time_limit: float = 60.0
    shared: str = ""
    truths: bool = False
    stores: bool = False
    recalls: bool = False
    given: str = ""
    devices: tuple[str, ...] = ()
