"""Whether a test fails when a line of opsmith is wrong: ``make mutants PART=signature``.

mutmut writes the mutants: copies of every function with one small mistake each. Its own runner
collects the tests anew for each of them; this one collects once, notes which test reaches which
function, and forks for every mutant, so that two thousand take minutes.

`mutants.txt` holds the mistakes that no test can see, as ``function: the changed line: why``.

Mutants come in random order, and each that survives is printed at once: what ran until
``--minutes`` were over is a sample of all, and the figures say how far such a sample can be off.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import difflib
import functools
import gc
import itertools
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from _pytest.runner import runtestprotocol

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build" / "mutants"  # one folder for each part

# A test that takes longer, with all that it compiles in the cache, is not asked.
SLOW = 3.0
# Nor is one when so much was spent on a mutant already: what survives is what these did not see.
PATIENCE = 40.0

# The files of a part, and the tests that hold it.
PARTS = {
    "signature": (
        ["opsmith/signature/**/*.py"],
        ["tests/signature"],
    ),
    "operators": (
        [
            "opsmith/operators/*.py",
            "opsmith/operators/core/*.py",
            "opsmith/operators/dispatch/**/*.py",
        ],
        [
            "tests/operators/core/test_words.py",
            "tests/operators/core/test_results.py",
            "tests/operators/test_python_operators.py",
            "tests/operators/core/test_operator.py",
            "tests/operators/dispatch/test_derivatives.py",
            "tests/operators/dispatch/test_vmap.py",
            "tests/sources/test_importing.py",
            "tests/operators/adoption/test_adopting.py",
            "tests/operators/test_registering.py",
            "tests/operators/dispatch/test_adopted_fake.py",
            "tests/operators/core/test_wrong_arguments.py",
            "tests/operators/dispatch/test_torch_library.py",
            "tests/operators/dispatch/test_gates.py",
            "tests/sources/test_spec_file.py",
            "tests/operators/core/test_cost.py",
            "tests/operators/core/test_overlap.py",
            "tests/operators/dispatch/test_declared_backward.py",
            "tests/operators/dispatch/test_recorded_backward.py",
            "tests/operators/test_self_registering.py",
            "tests/operators/dispatch/test_triton_kernel.py",
            "tests/operators/dispatch/test_native_kernels.py",
            "tests/operators/core/test_shared_memory.py",
            "tests/operators/core/test_told_apart.py",
            "tests/kernels/languages/test_triton.py",
            "tests/emulators/cuda/test_rewriting.py",
        ],
    ),
    "targets": (
        ["opsmith/targets/exporting/*.py", "opsmith/targets/exporting/lowering/*.py"],
        [
            "tests/targets/exporting/test_artifact.py",
            "tests/targets/exporting/test_staging.py",
            "tests/targets/exporting/test_own_targets.py",
            "tests/targets/exporting/lowering/test_lowering.py",
            "tests/targets/exporting/lowering/test_functional.py",
            "tests/targets/exporting/lowering/test_inlining.py",
            "tests/targets/exporting/test_shared.py",
            "tests/targets/exporting/test_export.py",
            "tests/targets/exporting/test_operator_export.py",
            "tests/targets/exporting/lowering/test_choice.py",
            "tests/targets/exporting/packages/test_packages.py",
            "tests/targets/exporting/test_exact_words.py",
            "tests/targets/exporting/test_models.py",
            "tests/targets/exporting/test_outside.py::"
            "test_a_broken_target_is_named_with_its_package_and_stops_no_other",
            "tests/targets/exporting/test_outside.py::"
            "test_a_target_of_another_package_is_listed_in_its_place",
            "tests/targets/onnx/test_onnx.py::"
            "test_torch_onnx_export_takes_the_standard_forms_by_itself",
        ],
    ),
}


def write_mutants(build: Path, patterns: list[str]) -> list[str]:
    """Copy the project to `build` with every function's mutants in it; their names."""
    from mutmut.mutation.file_mutation import mutate_file_contents

    shutil.rmtree(build, ignore_errors=True)
    for folder in ("opsmith", "tests", "gallery"):
        ignore = shutil.ignore_patterns("__pycache__", "build")
        shutil.copytree(ROOT / folder, build / folder, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", build)
    names: list[str] = []
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            relative = path.relative_to(ROOT)
            mutated = mutate_file_contents(str(relative), path.read_text())
            (build / relative).write_text(mutated.code)
            module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            names += [f"{module}.{name}" for name in mutated.mutant_names]
    return names


class Runner:
    """A pytest plugin that runs every mutant in place of every test."""

    def __init__(self, build: Path, names: list[str], children: int, minutes: float | None) -> None:
        self.build = build
        self.names = names
        self.children = children
        self.minutes = minutes
        self.reached: dict[str, list[tuple[float, pytest.Item]]] = collections.defaultdict(list)
        self.outcome: dict[str, str] = {}
        # What found the last mutants of a function finds the next one soonest.
        self.killers: dict[str, list[int]] = collections.defaultdict(list)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.note_what_is_reached(session.items)
        running: dict[int, tuple[str, int]] = {}
        gc.freeze()  # what is not collected is not copied
        end = float("inf") if self.minutes is None else time.monotonic() + 60 * self.minutes
        for count, name in enumerate(self.names):
            if time.monotonic() > end:
                break
            if count % 100 == 0:
                print(f"{count} of {len(self.names)}", file=sys.stderr, flush=True)
            if not self.reached[function_of(name)]:
                self.note(name, "not reached")
                continue
            if len(running) == self.children:
                self.finish(running)
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                self.child(name, writer)
            os.close(writer)
            running[pid] = name, reader
        while running:
            self.finish(running)
        return True

    def note_what_is_reached(self, items: list[pytest.Item]) -> None:
        from mutmut.mutation import trampoline

        hits: set[str] = set()
        trampoline.record_trampoline_hit = lambda name, caller: hits.add(name)
        for item, following in zip(items, [*items[1:], None], strict=True):
            hits.clear()
            took, passed = self.run(item, following)
            if passed and took > SLOW:
                # What it compiled is in the cache now.
                took, passed = self.run(item, following)
            if not passed or took > SLOW:
                # It wants to see something go, maybe, that the wrappers of mutmut hold on to.
                why = f"takes {took:.0f} s" if passed else "fails here"
                print(f"left out: {item.nodeid}: {why}", file=sys.stderr, flush=True)
                continue
            for name in hits:
                self.reached[name].append((took, item))
        for name, found in self.reached.items():
            found.sort(key=lambda pair: pair[0])
            spent = itertools.accumulate(took for took, _ in found)
            self.reached[name] = [
                pair for pair, so_far in zip(found, spent, strict=True) if so_far < PATIENCE
            ]

    def run(self, item: pytest.Item, following: pytest.Item | None) -> tuple[float, bool]:
        """How much of a processor a test takes, and whether it passes."""
        start = processor_time()
        with mutant("stats"):
            reports = runtestprotocol(item, log=False, nextitem=following)
        return processor_time() - start, not any(report.failed for report in reports)

    def child(self, name: str, writer: int) -> None:
        try:
            reached = self.reached[function_of(name)]
            took = sum(took for took, _ in reached)
            signal.setitimer(signal.ITIMER_PROF, 10 + 10 * took)  # it computes for ever
            signal.alarm(300 + 60 * int(took))  # or it waits, on a machine that others use too
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            first = self.killers[function_of(name)]
            rest = [position for position in range(len(reached)) if position not in first]
            with mutant(name):
                for position in [*first, *rest]:
                    reports = runtestprotocol(reached[position][1], log=False, nextitem=None)
                    if any(report.failed for report in reports):
                        os.write(writer, str(position).encode())
                        os._exit(1)
            os._exit(0)
        finally:
            os._exit(2)

    def finish(self, running: dict[int, tuple[str, int]]) -> None:
        pid, status = os.wait()
        name, reader = running.pop(pid)
        self.note(name, "survived" if status == 0 else "killed")
        with open(reader) as pipe:
            killer = pipe.read()
        if killer:
            earlier = self.killers[function_of(name)]
            position = int(killer)
            self.killers[function_of(name)] = [position, *(p for p in earlier if p != position)]

    def note(self, name: str, outcome: str) -> None:
        if outcome != "killed":
            change = change_of(self.build, name)
            if explained(name, change):
                outcome = "explained"
            else:
                print(f"{outcome}: {name}\n    {change}", flush=True)
        self.outcome[name] = outcome


def processor_time() -> float:
    """Seconds of this process and of those that it waited for: others use the machine too."""
    return sum(os.times()[:4])


@contextlib.contextmanager
def mutant(name: str) -> Iterator[None]:
    os.environ["MUTANT_UNDER_TEST"] = name
    try:
        yield
    finally:
        del os.environ["MUTANT_UNDER_TEST"]


def function_of(name: str) -> str:
    """``opsmith.signature.calls.x_named`` of ``opsmith.signature.calls.x_named__mutmut_3``."""
    return name.rpartition("__mutmut_")[0]


def change_of(build: Path, name: str) -> str:
    """What a mutant changed: the new line, or ``-`` and the line that it lost."""
    module, _, short = name.rpartition(".")
    functions = functions_of(build, module)
    old, new = (
        [line.strip() for line in ast.unparse(functions[one]).splitlines()[1:]]
        for one in (f"{function_of(short)}__mutmut_orig", short)
    )
    lines = [line for line in difflib.ndiff(old, new) if line[0] in "+-"]
    plus = [line[2:] for line in lines if line[0] == "+"]
    return " ".join(plus or [line[:1] + line[2:] for line in lines]).strip()


@functools.cache
def functions_of(build: Path, module: str) -> dict[str, ast.FunctionDef]:
    path = build.joinpath(*module.split("."))
    path = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def explained(name: str, change: str) -> bool:
    """Whether `mutants.txt` says why no test can see it."""
    function = re.sub(r"\.x[_ǁ]", ".", function_of(name)).replace("ǁ", ".")
    for line in (HERE / "mutants.txt").read_text().splitlines():
        if line.strip() and not line.startswith(("#", " ")):
            where, _, what = line.partition(": ")
            if re.fullmatch(where, function.removeprefix("opsmith.")) and re.search(what, change):
                return True
    return False


def summary(part: str, every: int, outcomes: collections.Counter[str]) -> str:
    """How many were killed, and where the share of all of them lies with a confidence of 95 %."""
    ran, killed = outcomes.total(), outcomes["killed"]
    seen = ran - outcomes["explained"]
    shares = []
    for count in (ran, seen):
        share = f"{100 * killed / max(1, count):.1f} %"
        if ran < every:
            low, high = wilson(killed, count)
            share += f" ({100 * low:.1f} to {100 * high:.1f} % of all {every})"
        shares.append(share)
    return (
        f"{part}: {ran} of {every} mutants, {killed} killed, {outcomes['explained']} explained, "
        f"{seen - killed} neither; {shares[0]} killed, {shares[1]} of those that a test can see"
    )


def wilson(found: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of a share of which a sample is known (Wilson's score)."""
    if count == 0:
        return 0.0, 1.0
    share, spread = found / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z * (share * (1 - share) / count + spread / count / 4) ** 0.5 / (1 + spread)
    return middle - half, middle + half


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--only", default="", help="a regular expression of mutants' names")
    parser.add_argument("--tests", nargs="+", help="ask these alone, and not all of the part's")
    parser.add_argument("--sample", type=int, help="so many mutants, drawn by chance")
    parser.add_argument("--seed", type=int, default=0, help="of the order; another, other samples")
    parser.add_argument("--minutes", type=float, help="start no mutant after so long")
    parser.add_argument("--children", type=int, default=2, help="how many at a time")
    options = parser.parse_args()

    patterns, tests = PARTS[options.part]
    build = BUILD / options.part
    names = [name for name in write_mutants(build, patterns) if re.search(options.only, name)]
    every = len(names)
    random.Random(options.seed).shuffle(names)
    names = names[: options.sample]
    os.chdir(build)
    sys.path.insert(0, str(build))
    torch.set_num_threads(1)  # a forked process has no threads but one
    hypothesis.settings.register_profile(
        "mutants",
        deadline=None,
        database=None,
        derandomize=True,
        max_examples=25,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutants")
    runner = Runner(build, names, options.children, options.minutes)
    options_of_pytest = ["-q", "--tb=native", "--assert=plain", "-p", "no:cacheprovider"]
    pytest.main([*options_of_pytest, *(options.tests or tests)], plugins=[runner])
    if not runner.outcome:
        return 1

    print(summary(options.part, every, collections.Counter(runner.outcome.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
