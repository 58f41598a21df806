"""opsmith and SentryWard over the planted CUDA faults and their right twins, in one run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# As the tests compile them.
os.environ.setdefault("CXXFLAGS", "-O1")

import in_sentryward
import planted
from launches import Compiled, compiled, recorded

REQUIREMENTS = (
    "sentryward==0.1.1",
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-cccl==13.0.85",
    "nvidia-nvvm==13.0.88",
)
#: nvcc refuses these faults itself.
OF_NVCC = ("calls_the_host",)


def results(environment: Path, folder: Path, wanted: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a line for each fault, and one for each file with what compiling took.

    Args:
        environment: where SentryWard and nvcc are installed.
        folder: for what is built.
        wanted: the names of sets; none for all.
    """
    nvcc = next(environment.glob("lib/python3*/site-packages/nvidia/cu13/bin/nvcc"))
    program = environment / "bin" / "sentryward"
    for one in planted.sets():
        if wanted and one.name not in wanted:
            continue
        opsmith = planted.Opsmith(one)
        kinds = [False] if one.only_right else [True, False]
        started = time.monotonic()
        space, operator = one.group.signature.namespace, one.group.signature.name
        build = compiled(one.group.source, space, operator, folder / one.name, nvcc)
        nvcc_seconds = time.monotonic() - started
        asked = [
            {"name": fault, "wrong": wrong, "n": one.elements(fault)}
            for fault in one.group.faults
            for wrong in kinds
        ]
        calls = {(c["name"], c["wrong"]): c for c in recorded(build, asked)}
        yield {
            "set": one.name,
            "compiling": {
                "opsmith": round(opsmith.build_seconds, 1) if opsmith.was_compiled else None,
                "nvcc": round(nvcc_seconds, 1),
            },
        }
        for fault in one.group.faults:
            line: dict[str, Any] = {"set": one.name, "fault": fault, "kind": one.kind_of(fault)}
            line["opsmith"] = {
                _word(wrong): _kept(opsmith.verdict_on(fault, wrong)) for wrong in kinds
            }
            line["SentryWard"] = {
                _word(wrong): _kept(
                    _of_sentryward(one, fault, wrong, calls, build, program, folder)
                )
                for wrong in kinds
            }
            yield line


def _of_sentryward(
    one: planted.Set,
    fault: str,
    wrong: bool,
    calls: dict[tuple[str, bool], dict[str, Any]],
    build: Compiled,
    program: Path,
    folder: Path,
) -> tuple[str, str, float]:
    if fault in OF_NVCC:
        return "not tried", "nvcc refuses it", 0.0
    if not one.only_right and in_sentryward.same_for_both(
        calls[fault, True], calls[fault, False], build
    ):
        return "not tried", "the fault is neither in the PTX nor in the launch", 0.0
    place = folder / one.name / fault / _word(wrong)
    return in_sentryward.verdict_on(program, calls[fault, wrong], build, place)


def _word(wrong: bool) -> str:
    return "wrong" if wrong else "right"


def _kept(verdict: tuple[str, str, float]) -> list[Any]:
    word, said, seconds = verdict
    return [word, said, round(seconds, 2)]
