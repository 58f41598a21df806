"""Check that a kernel for another device, emulated on the CPU, is the reference's formula."""

from __future__ import annotations

from opsmith.checks.catalogue.ascendc import kernels_in_ascendc, need_reading
from opsmith.checks.catalogue.cuda import kernels_in_cuda, need_emulation
from opsmith.checks.catalogue.exact import compare_cases, prepare
from opsmith.checks.numerics.exact.language import exact_ascendc, exact_emulated
from opsmith.checks.numerics.exact.memory import Handles
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.kernels import KernelSource
from opsmith.system.scratch import scratch_folder


def _source(trial: Trial) -> KernelSource:
    source = trial.subject.implementation.source
    assert source is not None
    trial.need(source.language.has_entry, 'a kernel with api="torch" is compiled with PyTorch only')
    return source


@define_check(
    "exact-cuda-on-cpu",
    "a CUDA kernel, emulated on the CPU, is the reference's formula, compared in finite fields",
    subjects=kernels_in_cuda,
    order=16,
    needs=PLAIN_CALLS,
    time_limit=10.0,
    calls=False,
)
def exact_cuda_on_cpu(trial: Trial) -> None:
    """Compare residues for small cases, each in one order of blocks and threads."""
    need_emulation(trial, exact_emulated(_source(trial)))
    compare_cases(trial, prepare(trial, emulate=exact_emulated))


@define_check(
    "exact-ascendc-on-cpu",
    "an Ascend C kernel, emulated on the CPU, is the reference's formula, compared in finite "
    "fields",
    subjects=kernels_in_ascendc,
    order=17,
    needs=PLAIN_CALLS,
    time_limit=10.0,
    calls=False,
)
def exact_ascendc_on_cpu(trial: Trial) -> None:
    """Compare residues for small cases, each in one order of blocks."""
    need_reading(exact_ascendc(_source(trial)))
    with scratch_folder("exact") as folder:
        compare_cases(trial, prepare(trial, emulate=exact_ascendc, memory=Handles(folder)))
