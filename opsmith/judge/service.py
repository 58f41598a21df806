"""Judge many candidates, several at a time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from opsmith.errors import INCOMPLETE, OpsmithError
from opsmith.judge.judge import judge

#: The exit code for each outcome.
CODES = {"accepted": 0, "refused": 1, "undecided": INCOMPLETE}


def judge_all(
    spec: str | Path, candidates: Sequence[str | Path], *, jobs: int = 1, **options: Any
) -> Iterator[dict[str, Any]]:
    """Judge candidates in processes that import the specification once.

    Args:
        spec: the file that declares operators.
        candidates: the files that register kernels.
        jobs: number of candidates that are judged at a time.
        options: options of `judge`.

    Yields:
        As soon as a candidate is judged: ``candidate``, its file; ``outcome``, a key of `CODES`;
        ``seconds``; and ``verdict``, the fields of `Verdict.to_json`, or ``message``, why there is
        no verdict.
    """
    # A fork would share threads that compute.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        asked = {pool.submit(_judged, str(spec), str(one), options): one for one in candidates}
        for future in as_completed(asked):
            try:
                yield future.result()
            except BrokenProcessPool:
                message = "the judge's process was ended from outside"
                yield {
                    "candidate": str(asked[future]),
                    "outcome": "undecided",
                    "seconds": 0.0,
                    "message": message,
                }


def _judged(spec: str, candidate: str, options: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    said: dict[str, Any] = {"candidate": candidate}
    try:
        verdict = judge(spec, candidate, **options)
    except OpsmithError as error:
        said |= {"outcome": "undecided", "message": str(error)}
    else:
        said |= {"outcome": verdict.outcome, "verdict": json.loads(verdict.to_json())}
    return said | {"seconds": round(time.monotonic() - started, 3)}
