"""Check Ascend C kernels without an NPU: compiled for the CPU, with a core for each block.

See `emulators.ascendc`. ``docs/reference/npu.md`` lists what the emulation cannot show.
"""

from __future__ import annotations

import re

from opsmith.checks import harness
from opsmith.checks.cases.failure import Failure, Inapplicable, need_emulators
from opsmith.checks.cases.subject import Subject
from opsmith.checks.catalogue.cuda import dtypes_of, run_in_orders
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels import HOST
from opsmith.operators import Operator

#: Matches what the compiler says of a part of Ascend C, of its runtime or of torch_npu that the
#: emulation does not have. Names of Ascend C begin with a capital letter; others are the user's.
_UNKNOWN = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):.*?error: "
    r"(?:static assertion failed: opsmith emulates (?P<no>.+)"
    r"|(?P<header>(?:torch_npu|acl\w*|hccl|lib|register|tiling)/\S+): No such file"
    r"|'(?P<member>\w+)' is not a member of '(?:at|c10)_npu"
    r"|'(?:AscendC::)?(?P<name>[A-Z]\w+|acl\w+|at_npu|c10_npu)' (?:was not declared"
    r"|is not a member of '[\w:]+'|has not been declared|is not a namespace|does not name a type))",
    re.MULTILINE,
)


def kernels_in_ascendc(operator: Operator) -> list[Subject]:
    """Return the kernels in Ascend C, to be called with tensors on the CPU."""
    return [
        Subject(operator, name, HOST)
        for name, kernel in operator.kernels.items()
        if kernel.source is not None and kernel.source.language.asked == "ascendc"
    ]


@define_check(
    "ascendc-on-cpu",
    "an Ascend C kernel, emulated on the CPU, gives right results in any order of blocks, without "
    "races between queues or blocks, flags without a partner or accesses beside its memory",
    subjects=kernels_in_ascendc,
    order=9,
    time_limit=10.0,
    calls=False,
)
def ascendc_on_cpu(trial: Trial) -> None:
    """Run each case in three orders, with different initial memory in each."""
    need_emulators(f"{trial.operator.name} (npu), without an NPU,")
    from opsmith.kernels.languages.emulated_npu import emulated

    source = trial.subject.implementation.source
    assert source is not None
    translated = emulated(source)
    try:
        translated.language.require(translated)
        build = harness.build(translated, emulated=True)
    except MissingDependencyError as error:
        raise Inapplicable(str(error)) from None
    except BuildError as error:
        unknown = _UNKNOWN.search(str(error))
        if unknown is None:
            raise Failure(f"compiled for the CPU, {error}", code="OPS-BUILD-FAILED") from None
        file, line, no, *names = unknown.groups()
        what = f"emulates {no}" if no else f"does not emulate {next(filter(None, names))}"
        raise Inapplicable(f"opsmith {what}, at {file.rpartition('/')[2]}:{line}") from None
    run_in_orders(trial, build, dtypes_of(trial, translated, build))
