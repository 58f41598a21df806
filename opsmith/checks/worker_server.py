"""The worker's processes: a supervisor, a template, and one process for each row.

`Worker` starts the supervisor with the arguments ``FD FOLDER``::

    supervisor        imports torch and the checks; sees when its parent is gone
      template        imports what declares the operators; never calls a kernel
        row           runs one check, and ends
          supervisor  only for checks whose kernels run apart (`isolation.kernel_client`)
            kernel    takes arguments, returns results; another follows if it ends

Each process is a fork of the one above, so that nothing is imported twice. Every row begins in the
same state: the side effects of a kernel on its process end with the row. A fork copies no thread.
If importing the operators starts threads that do not end when asked, the template therefore runs
one row itself, and another template takes over.

Requests are lines of JSON on standard input, which the template reads. Every answer carries its
request's number.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsmith.compat import torch_modules
from opsmith.system.processes.launch import fork, python
from opsmith.system.processes.server import each_request, empty_input
from opsmith.system.processes.supervisor import Children, answer, supervise
from opsmith.system.temporarily import uncollected

if TYPE_CHECKING:
    from opsmith.checks.isolation.kernel_client import Caller
    from opsmith.checks.protocol import Check
    from opsmith.operators import Operator

#: PyTorch's compiler. PyTorch imports it, for more than a second, when it decomposes an operator to
#: measure rounding. So once a row has imported it, the template imports it for the next rows.
_COMPILER = torch_modules.COMPILER
#: The process of a row reports at most once in this many seconds that its kernel is being called.
_QUIET_SECONDS = 1.0
#: OpenMP's omp_pause_hard: end all threads. They start again when something is computed.
_END_THREADS = 2
#: Seconds in which threads end that have been told to.
_END_SECONDS = 0.1
#: Number of new objects after which a row collects garbage. Exports create millions of objects, and
#: few of them are garbage: with Python's default of 700, collection takes a tenth of an export's
#: time.
_OBJECTS = 10_000


def main() -> None:
    """Serve checks."""
    supervise(int(sys.argv[1]), Path(sys.argv[2]), import_all, be_template)


def import_all() -> None:
    """Import what the rows of any operator need."""
    from opsmith.checks import protocol, runner
    from opsmith.checks.cases import search
    from opsmith.checks.isolation import import_location, kernel_client, kernel_server

    protocol.all_checks()
    search.prepare()
    del import_location, runner, kernel_client, kernel_server


# --- the template --------------------------------------------------------------------------------


def be_template(answers: int) -> None:
    """Run the requested rows, each in a fork."""
    rows = Children()
    # Standard input stays open: its end shows that the parent ended.
    for request, _ in each_request(os.fdopen(0, "rb", closefd=False)):
        sys.path[:], sys.argv[:] = request["path"], request["argv"]
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        if request["folder"]:
            os.chdir(request["folder"])
        operator = _import(request, answers)
        if operator is None:
            continue
        prepare_for(request["check"])
        if request["compiler"]:
            with uncollected():
                importlib.import_module(_COMPILER)
        # Freeze the objects that exist by now, so that no row's garbage collection examines and
        # thereby copies them.
        gc.freeze()
        threads = started_threads()

        def serve(request: Any = request, operator: Any = operator, forked: bool = True) -> None:
            _serve_row(request, operator, answers, forked)

        if threads:
            serve(forked=False)
            return
        row = rows.fork(serve)
        code = rows.outlive(row)
        if code is None:
            return
        answer(answers, request=request["number"], event="left", code=code)


def _import(request: dict[str, Any], answers: int) -> Operator | None:
    """Import the operator's module and load its kernels; `None` if it declares another operator."""
    from opsmith.checks.isolation.import_location import Location, NotLocatedError, obtain
    from opsmith.errors import OpsmithError

    try:
        operator = obtain(Location.from_json(request["location"]))
    except NotLocatedError as error:
        answer(answers, request=request["number"], event="elsewhere", reason=str(error))
        return None
    if request["built"]:
        with contextlib.suppress(OpsmithError):  # the row reports the error
            operator.build(request["device"])
    return operator


def prepare_for(*names: str) -> None:
    """Do the slow imports and first calls of checks, so that the later rows find them done."""
    from opsmith.checks.protocol import all_checks

    wanted = dict.fromkeys(
        what for one in all_checks() if one.name in names for what in one.prepares
    )
    with uncollected():
        for module, _, function in (one.partition(":") for one in wanted):
            # The row reports a missing module.
            with contextlib.suppress(Exception):
                found = importlib.import_module(module)
                if function:
                    getattr(found, function)()


def started_threads() -> bool:
    """Return whether this process has threads that a fork would not copy."""
    if _threads() == 1:
        return False
    with contextlib.suppress(AttributeError):  # PyTorch computes without OpenMP
        ctypes.CDLL(None).omp_pause_resource_all(_END_THREADS)
    # Some libraries (OpenBLAS) end their threads before a fork, and start them again when needed.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    until = time.monotonic() + _END_SECONDS
    while _threads() > 1 and time.monotonic() < until:
        time.sleep(0.001)
    return _threads() > 1


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1  # a system without this folder


# --- a row ---------------------------------------------------------------------------------------


def _serve_row(request: dict[str, Any], operator: Operator, answers: int, forked: bool) -> None:
    import torch

    from opsmith.checks.cases.reference_call import after_evaluation
    from opsmith.checks.cases.reruns.rerun_command import Replay
    from opsmith.checks.cases.settings import Settings
    from opsmith.checks.protocol import all_checks
    from opsmith.checks.report.json_junit import plain
    from opsmith.checks.runner import run_check
    from opsmith.system.stopwatch import accounted

    number = request["number"]
    empty_input()  # the requests are for the template
    answer(answers, request=number, event="started", pid=os.getpid())
    check = next(one for one in all_checks() if one.name == request["check"])
    subject = next(one for one in check.parts(operator) if one.kernel == request["kernel"])
    said = time.monotonic()

    def alive() -> None:
        nonlocal said
        if time.monotonic() - said > _QUIET_SECONDS:
            said = time.monotonic()
            answer(answers, request=number, event="calling")

    after_evaluation.set(alive)

    if request["settings"]["given"]:
        # Forks begin with equal numbers, so that noise would be the same in each of them.
        torch.manual_seed(request["settings"]["seed"])
    # Start the kernel's process before anything is computed here, since computing starts threads.
    caller = _caller(check, subject.device, request, operator, answers, forked, alive)
    # The process of the kernel keeps Python's default thresholds.
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])

    def announce(description: str, key: str, size: int) -> None:
        answer(answers, request=number, event="case", description=description, key=key, size=size)

    replay = Replay(request["alone"], request["file"])
    settings = Settings(**request["settings"])
    with accounted() as timings:
        row = run_check(check, subject, settings, announce, request["crashed"], replay, caller)
    if caller is not None:
        caller.stop()
    answer(
        answers,
        request=number,
        event="row",
        row=plain(replace(row, timings=timings)),
        replay=asdict(replay),
        hung=caller is not None and caller.hung,
        compiler=_COMPILER in sys.modules,
        last=not forked,
    )


def _caller(
    check: Check,
    device: str,
    request: dict[str, Any],
    operator: Operator,
    answers: int,
    forked: bool,
    alive: Callable[[], None],
) -> Caller | None:
    """Return the process that the kernel runs in; `None` if it is this process."""
    from opsmith.checks.isolation import kernel_server
    from opsmith.checks.isolation.kernel_client import Caller
    from opsmith.kernels import HOST

    if not check.apart:
        return None
    # PyTorch refuses a device in a fork of a process that has looked for devices, as this one has.
    if forked and device == HOST:
        launch = fork(
            lambda own: kernel_server.serve(own, kernel_server.Single(operator)), hide=(answers,)
        )
        caller = Caller(launch, request["limit"], again=False, alive=alive)
    else:
        setup = {name: request[name] for name in ("location", "path", "argv")}
        caller = Caller(python(kernel_server.__name__), request["limit"], setup=setup, alive=alive)
    caller.begin()
    return caller


if __name__ == "__main__":
    main()
