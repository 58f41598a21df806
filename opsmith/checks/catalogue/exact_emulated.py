"""Check that a CUDA kernel, emulated on the CPU, is the reference's formula, without rounding."""

from __future__ import annotations

from opsmith.checks.catalogue.cuda import kernels_in_cuda, need_emulation
from opsmith.checks.catalogue.exact import compare_cases, prepare
from opsmith.checks.numerics.exact.language import exact_emulated
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial


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
    source = trial.subject.implementation.source
    assert source is not None
    trial.need(source.language.has_entry, 'a kernel with api="torch" is compiled with PyTorch only')
    need_emulation(trial, exact_emulated(source))
    compare_cases(trial, prepare(trial, emulated=True))
