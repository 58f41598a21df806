"""Check Ascend C kernels without an NPU: compiled for the CPU, with a core for each block.

See `emulators.ascendc`. ``docs/reference/npu.md`` lists what the emulation cannot show.
"""

from __future__ import annotations

import re
from pathlib import Path

from opsmith.checks import harness
from opsmith.checks.cases.failure import Failure, Inapplicable, need_emulators
from opsmith.checks.cases.subject import Subject
from opsmith.checks.catalogue.cuda import dtypes_of, run_in_orders
from opsmith.checks.protocol import define_check
from opsmith.checks.trial.trial import Trial
from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels import HOST, KernelSource
from opsmith.operators import Operator

#: Matches what the compiler says of a part of Ascend C, of its runtime or of torch_npu that the
#: emulation does not have. Names of Ascend C begin with a capital letter; others are the user's.
_UNKNOWN = re.compile(
    r"^(?P<file>.+?):(?P<line>\d+):.*?error: "
    r"(?:static assertion failed: opsmith emulates (?P<no>.+)"
    r"|(?P<header>(?:torch_npu|acl\w*|hccl|lib|register|tiling)/\S+): No such file"
    r"|'(?P<member>\w+)' is not a member of '(?:at|c10)_npu"
    r"|'(?:AscendC::)?(?P<name>[A-Z]\w+|acl\w+|at_npu|c10_npu)' (?:was not declared"
    r"|is not a member of '[\w:]+'|has not been declared|is not a namespace|does not name a type)"
    r"|'(?:class|struct) (?:\w+ )?AscendC::[^']+' has no member named '(?P<method>\w+)'"
    r"|no matching function for call to '(?:[\w:]+::)?(?P<form>[A-Z]\w+)[<(]"
    r"(?=.*?\n(?:(?!.*error:).*\n){0,9}?.*candidate: .*AscendC::(?:\w+::)?(?P=form)\()"
    r"|too (?:many|few) arguments to function '[^']*AscendC::(?P<another>\w+)\()",
    re.MULTILINE,
)
#: Matches a place where a template is used, which the compiler names before the error in it.
_USED = re.compile(
    r"^(\S.*?):(\d+):\d+:\s+(?:required from|note: in instantiation of)", re.MULTILINE
)


def kernels_in_ascendc(operator: Operator) -> list[Subject]:
    """Return the kernels in Ascend C, to be called with tensors on the CPU."""
    return [
        Subject(operator, name, HOST)
        for name, kernel in operator.kernels.items()
        if kernel.source is not None and kernel.source.language.asked == "ascendc"
    ]


def need_reading(source: KernelSource) -> None:
    """Require an emulated source that the parser reads."""
    try:
        source.language.require(source)
    except MissingDependencyError as error:
        raise Inapplicable(str(error)) from None


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
    need_reading(translated)
    try:
        build = harness.build(translated, emulated=True)
    except BuildError as error:
        unknown = _UNKNOWN.search(str(error))
        if unknown is None:
            raise Failure(f"compiled for the CPU, {error}", code="OPS-BUILD-FAILED") from None
        _, _, no, *names = unknown.groups()
        what = f"emulates {no}" if no else f"does not emulate {next(filter(None, names))}"
        if unknown["form"] or unknown["another"]:
            what = f"does not emulate {unknown['form'] or unknown['another']} with these arguments"
        raise Inapplicable(f"opsmith {what}, at {_place(str(error), unknown)}") from None
    run_in_orders(trial, build, dtypes_of(trial, translated, build))


def _place(output: str, error: re.Match[str]) -> str:
    """Return the file and the line of the kernel that an error is about, also one in a header."""
    begin = max(output.rfind("In instantiation of", 0, error.start()), 0)
    places = [(error["file"], error["line"])]
    places += _USED.findall(output, begin, error.start()) + _USED.findall(output, error.end())
    own = [place for place in places if "emulators/ascendc/include/" not in place[0]]
    file, line = [*own, *places][0]
    return f"{Path(file).name}:{line}"
