"""Run the tests of the emulation's results on a GPU, with PyTorch for CUDA.

PYTHONPATH=benchmarks/gpu pytest -p on_gpu tests/emulators/cuda tests/faults/in_cuda -m ''

A plugin of pytest. In place of the emulation, nvcc compiles the kernels and a GPU runs them, so
that the results which the tests expect of the emulation are those of the device. The tests of what
the emulation says of faults have no meaning here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

import opsmith
from opsmith import kernels, signature
from opsmith.checks import harness
from opsmith.kernels import KernelSource
from opsmith.kernels.languages import emulated_cuda
from opsmith.operators.core import registry

_functions: dict[str, Any] = {}
_signature_of = signature.signature_of


def signature_of(function: Any, name: str) -> signature.Signature:
    """Return the signature, and remember the function, of which an operator is made."""
    _functions[name] = function
    return _signature_of(function, name)


def kernel_source(*args: Any, **options: Any) -> KernelSource:
    """Return the source, with lambdas for the device, and without the calls that nvcc refuses."""
    refused = ("-Dof_the_host=float", "-DOfHost=OfDevice")
    flags = (*options.pop("flags", ()), "--extended-lambda", *refused)
    return _kernel_source(*args, flags=flags, **options)


def build(source: KernelSource, **options: Any) -> opsmith.Operator:
    """Return an operator whose kernel for CUDA is compiled by nvcc."""
    del options
    name = source.signature.qualname
    function = _functions.get(name) or registry.get(name).reference
    operator = opsmith.op(name)(function)
    operator.register_kernel("cuda", source=source.path, api=source.api, flags=source.flags)
    operator.build("cuda")
    return operator


def run(operator: opsmith.Operator, signature: Any, cases: Any, phases: Any) -> Any:
    """Call the operator with every case on the device, once for each phase."""
    del signature
    return SimpleNamespace(calls=[[called(operator, case) for case in cases] for _ in phases])


def called(operator: opsmith.Operator, case: Any) -> Any:
    """Return the results of a call, on the CPU."""
    there = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in case.items()}
    returned = operator(**there)
    torch.cuda.synchronize()
    results = returned if isinstance(returned, tuple | list) else [returned]
    return SimpleNamespace(results=[one.cpu() for one in results], refused="", remarks=[])


_kernel_source = kernels.kernel_source
signature.signature_of = signature_of
kernels.kernel_source = kernel_source
emulated_cuda.emulated = lambda source, **options: source
emulated_cuda.emulated_behind_torch = lambda source, **options: source
harness.build = build
harness.run = run
