"""The harness sees what a kernel does wrong, and nothing in what a right one does."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Fault, Phase
from opsmith.errors import MissingDependencyError
from opsmith.kernels import kernel_source
from opsmith.signature import signature_of

SOURCE = Path(__file__).with_name("faults.cpp")


def doubled(x: Float32[Tensor, "N"], fault: str = "") -> Float32[Tensor, "N"]:
    return x * 2


SIGNATURE = signature_of(doubled, "harness_faults::doubled")
KERNEL = kernel_source(SIGNATURE, "cpu", SOURCE)
X = torch.arange(10, dtype=torch.float32)


@pytest.fixture(scope="module")
def build():
    return harness.build(KERNEL)


def call(build, fault, *phases, seconds=60.0):
    arguments = [{"x": X, "fault": fault}]
    return [one for (one,) in harness.run(build, SIGNATURE, arguments, phases, seconds)]


def line_of(fault):
    lines = SOURCE.read_text().splitlines()
    return next(n for n, text in enumerate(lines, 1) if f'fault == "{fault}"' in text)


EVERY_WAY = (
    Phase(),
    Phase(at_end=False, fill=0x7F),
    *(Phase(seed=seed, threads=threads) for seed in range(1, 8) for threads in (1, 3)),
    Phase(calls=12),
)


@pytest.mark.slow
def test_a_right_kernel_is_right_in_every_way_of_calling(build):
    for one in call(build, "", *EVERY_WAY):
        assert torch.equal(one.results[0], 2 * X)
        assert not one.refused
        assert not one.seen


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("fault", "phase", "words"),
    [
        ("read past the end", Phase(), "read 1 element past the end of argument 'x' (10 elements)"),
        (
            "read before the start",
            Phase(at_end=False),
            "read 1 element before the start of argument 'x' (10 elements)",
        ),
        (
            "write far past the end",
            Phase(),
            "wrote 100001 elements past the end of the result (10 elements)",
        ),
        (
            "write an argument",
            Phase(),
            "wrote into argument 'x' at element 0 (10 elements)",
        ),
        ("scratch of an earlier call", Phase(), "wrote scratch memory of an earlier call"),
        ("division by zero", Phase(), "divided an integer by zero"),
    ],
)
def test_an_access_outside_ends_the_call_and_names_memory_and_line(build, fault, phase, words):
    with pytest.raises(Fault) as raised:
        call(build, fault, phase, phase)
    assert str(raised.value) == f"{words}\n  at {SOURCE}:{line_of(fault)}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "phase", "words"),
    [
        ("write past the end", Phase(), "wrote 1 element past the end of the result (10 elements)"),
        (
            "scratch past the end",
            Phase(at_end=False),
            "wrote 1 element past the end of scratch memory (64 elements)",
        ),
        ("leak", Phase(calls=12), "allocates 104 bytes in every call that it never gives back"),
        ("rounding mode", Phase(), "left another rounding mode of floating-point numbers behind"),
        (
            "rounding mode",
            Phase(calls=12),
            "left another rounding mode of floating-point numbers behind",
        ),
        ("flush to zero", Phase(), "left denormal numbers switched off (flush to zero)"),
        ("thread left", Phase(), "left 1 thread running after the call"),
        ("late write", Phase(), "works on: it wrote results after it had returned"),
    ],
)
def test_what_a_call_leaves_behind_is_seen(build, fault, phase, words):
    (one,) = call(build, fault, phase)
    assert words in one.seen


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", ["sum over pieces", "order of pieces", "one buffer for all threads"]
)
def test_a_wrong_split_shows_with_ten_elements(build, fault):
    (whole,) = call(build, fault, Phase())
    assert torch.equal(whole.results[0], 2 * X)
    cut = call(build, fault, *(Phase(seed=seed, threads=3) for seed in range(1, 4)))
    assert all(one.split for one in cut)
    assert any(not torch.equal(one.results[0], 2 * X) for one in cut)


@pytest.mark.slow
def test_calls_at_the_same_time_do_not_meet_unless_the_kernel_makes_them(build):
    def all_right(fault, phases):
        cases = [{"x": X, "fault": fault}, {"x": X + 100, "fault": fault}]
        calls = harness.run(build, SIGNATURE, cases, phases)
        return all(
            torch.equal(first.results[0], 2 * X) and torch.equal(second.results[0], 2 * X + 200)
            for first, second in calls
        )

    at_once, at_result = Phase(together=True), Phase(together=True, pause=1)
    assert all_right("", [at_once, at_result, Phase(together=True, pause=99)])
    # Whether two threads really run at once is up to a busy machine, so more than one try.
    assert not all_right("one buffer for all calls", [at_once] * 20)
    # Where one stands still, it is not up to the machine.
    assert not all_right("one table for all calls", [at_result])
    assert all_right("one table behind a lock", [at_result])


@pytest.mark.slow
def test_what_is_not_written_holds_the_pattern_that_memory_began_with(build):
    first, second = call(build, "unwritten last", Phase(fill=0xFF), Phase(fill=0x7F))
    assert first.results[0][-1].isnan()
    assert second.results[0][-1] > 3e38
    assert torch.equal(first.results[0][:-1], 2 * X[:-1])


@pytest.mark.slow
def test_scratch_memory_begins_as_nan(build):
    (one,) = call(build, "scratch not written", Phase())
    assert one.results[0].isnan().all()


@pytest.mark.slow
def test_a_kernel_that_ends_the_process_or_does_not_return_is_said_to(build):
    with pytest.raises(Fault, match="called alone: ended the process with exit code 86"):
        call(build, "exit", Phase())
    with pytest.raises(Fault, match="did not return within 1 s"):
        call(build, "hang", Phase(), seconds=1.0)


@pytest.mark.slow
def test_a_kernel_that_forks_is_named_and_its_copy_writes_no_results(build):
    several = call(build, "fork", Phase(), Phase(seed=1, threads=3), Phase(together=True))
    for one, again in zip(several[:2], call(build, "", Phase(), Phase()), strict=True):
        assert torch.equal(one.results[0], again.results[0])
    (words,) = several[0].seen
    assert words.startswith("forked the process that called it")
    assert harness.code_of(words) == "OPS-CALL-FORK"


@pytest.mark.slow
def test_the_message_of_a_kernel_that_fails_arrives(build):
    (one,) = call(build, "fail", Phase())
    assert one.refused == "harness_faults::doubled: no 10 today"


@pytest.mark.slow
def test_arguments_are_validated_as_everywhere(build):
    with pytest.raises(TypeError, match="x is float, expected a tensor"):
        harness.run(build, SIGNATURE, [{"x": 1.0, "fault": ""}], [Phase()])
    wrong = [{"x": X.double(), "fault": ""}]
    ((one,),) = harness.run(build, SIGNATURE, wrong, [Phase()])
    assert "argument 'x' has dtype float64, expected float32." in one.refused


@pytest.mark.long
@pytest.mark.parametrize(
    ("sanitizer", "fault", "words"),
    [
        ("address", "read past the end", "accessed memory beside a tensor"),
        ("undefined", "shift", "undefined behaviour: shift exponent 40 is too large"),
        ("thread", "one buffer for all threads", "two threads accessed the same memory"),
    ],
)
def test_a_sanitizer_names_the_fault_and_the_line(sanitizer, fault, words):
    built = harness.build(KERNEL, sanitizer)
    phase = Phase(seed=1, threads=3)
    assert torch.equal(call(built, "", phase)[0].results[0], 2 * X)
    with pytest.raises(Fault) as raised:
        call(built, fault, phase)
    assert str(raised.value).startswith(words)
    assert f"{SOURCE}:" in str(raised.value)
    assert raised.value.code == f"OPS-SANITIZE-{sanitizer.upper()}"


def _lacks_memory_sanitizer() -> str:
    """Why clang cannot build a program with it; empty where it can."""
    clang = shutil.which("clang++")
    if clang is None:
        return "there is no clang++ on this machine"
    command = [clang, "-fsanitize=memory", "-x", "c++", "-", "-o", os.devnull]
    done = subprocess.run(command, input="int main() {}", capture_output=True, text=True)
    return f"clang++ builds nothing with it: {done.stderr[-300:]}" if done.returncode else ""


def test_the_memory_sanitizer_names_what_uses_memory_that_nothing_has_written(monkeypatch):
    if lacks := _lacks_memory_sanitizer():
        pytest.skip(lacks)
    monkeypatch.setenv("CXX", shutil.which("clang++"))
    built = harness.build(KERNEL, "memory")
    assert torch.equal(call(built, "", Phase())[0].results[0], 2 * X)
    with pytest.raises(Fault) as raised:
        call(built, "scratch not written", Phase())
    assert str(raised.value).startswith("used memory that nothing has written")
    assert f"{SOURCE}:" in str(raised.value)
    assert raised.value.code == "OPS-SANITIZE-MEMORY"


def test_a_clang_without_a_sanitizers_runtime_is_named(monkeypatch, tmp_path):
    clang = tmp_path / "clang++"
    clang.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *-print-libgcc-file-name) echo {tmp_path}/linux/libclang_rt.builtins.a;;\n'
        '*) exec g++ "$@";; esac\n'
    )
    clang.chmod(0o755)
    monkeypatch.setenv("CXX", str(clang))
    with pytest.raises(MissingDependencyError) as raised:
        harness.build(KERNEL, "thread")
    assert str(raised.value) == (
        f"--sanitize thread: {clang} has no runtime for it in {tmp_path}/linux. Install it "
        "(Debian, Ubuntu: apt install libclang-rt-N-dev, with clang's version as N)."
    )


def test_the_memory_sanitizer_says_that_it_needs_clang(monkeypatch):
    monkeypatch.setenv("CXX", shutil.which("g++"))
    with pytest.raises(
        MissingDependencyError, match="only clang finds reads of memory that was never"
    ):
        harness.build(KERNEL, "memory")
