"""Check that the requested kernel is the one that runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import REFERENCE
from opsmith.checks.numerics.gradients import has_gradient
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.checks.trial.trial_gradients import random_cotangents, run_backward


@define_check(
    "dispatch",
    "the kernel asked for is the one that runs",
    order=5,
    # PyTorch imports this, for a second, in the first backward of a process, so in every row.
    prepares=("torch.fx.experimental.symbolic_shapes",),
)
def dispatch(trial: Trial) -> None:
    """Compare call counters in plain calls, inference mode, `torch.ops` and autograd."""
    operator, subject = trial.operator, trial.subject
    trial.need(not subject.adopted, "defined elsewhere: its own kernels run, and count no calls")
    device = subject.device
    others = [name for name in operator.kernels if name != REFERENCE]
    if device in trial.settings.devices and subject.kernel == REFERENCE and others:
        raise Failure(
            f"no kernel is registered for {device!r}: calls with {device} tensors run the "
            f"reference. There are kernels for {' and '.join(others)}; register one "
            f"(register_kernel({device!r}, ...)), or leave --device {device} out",
            code="OPS-DISPATCH-KERNEL",
        )

    def one(case: Case) -> None:
        trial.accept(case)

        def plain() -> None:
            trial.call(case.make(device))

        def inference() -> None:
            with torch.inference_mode():
                trial.call(case.make(device))

        def through_overload() -> None:
            positional, keywords = operator.split(case.make(device))
            namespace = getattr(torch.ops, trial.signature.namespace)
            getattr(namespace, trial.signature.name)(*positional, **keywords)

        _count(trial, plain, "a call")
        _count(trial, inference, "a call in inference mode")
        _count(trial, through_overload, "a call through torch.ops")
        if has_gradient(operator) and case.dtype in subject.floats and case.numel:
            cotangents = random_cotangents(trial, case)

            def differentiated() -> None:
                with suppress(Exception):  # `gradient` tells what a backward does wrong
                    run_backward(trial, case, cotangents)

            _count(trial, differentiated, "a differentiated call")

    trial.each(one, examples=12, most=3)


def _count(trial: Trial, call: Callable[[], object], what: str) -> None:
    kernels, asked = trial.operator.kernels, trial.subject.kernel
    before = {name: kernel.calls for name, kernel in kernels.items()}
    call()
    ran = [name for name, kernel in kernels.items() if kernel.calls > before[name]]
    if ran != [asked]:
        shown = " and ".join(ran) or "no kernel of opsmith's"
        raise Failure(
            f"{what} with {trial.subject.device} tensors ran {shown}, not the {asked!r} kernel "
            f"({kernels[asked].where})",
            code="OPS-DISPATCH-KERNEL",
        )
