"""The command `opsmith check`: parse, run, print the report."""

import gc
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer

from opsmith.cli import extra, options, output, product_options
from opsmith.errors import no_such
from opsmith.system.text import wrapped

app = typer.Typer()

#: When the command started.
_STARTED = time.monotonic()


#: Number of cases that a check samples, and that it samples with ``--quick``.
_EXAMPLES, _QUICK_EXAMPLES = 60, 8
#: By the suffix of a report's file: the option that writes it.
_REPORT_OPTIONS = {".html": "--report", ".xml": "--junit", ".json": "--json >"}
#: The most workers that are forked before the operators are imported.
_AHEAD = 4
_EPILOG = "Beside these, an option for each check that is slow: see opsmith check --list."


def _print_checks(value: bool) -> None:
    if value:
        from opsmith.system.progress import status

        with status("importing PyTorch"):
            import opsmith.checks as checks

            everything = checks.all_checks()
        width = max(len(one.name) for one in everything) + 2
        console = output.stdout()
        for one in everything:
            text = f"{one.summary} ({_option(one.flag)})" if one.flag else one.summary
            text = wrapped(text, console.width - width) if console.is_terminal else text
            print(f"{one.name:{width}}" + text.replace("\n", "\n" + " " * width))
        raise typer.Exit


def _option(flag: str) -> str:
    """Return the option of this command that turns on the check with a flag."""
    name, _, sanitizer = flag.partition("_")
    return f"--sanitize {sanitizer}" if name == "sanitize" else f"--{flag}"


def _sanitizers(names: str) -> list[str]:
    """Return the flags of the checks that ``--sanitize`` names."""
    from opsmith.checks.harness import SANITIZERS

    asked = [name.strip() for name in names.split(",") if name.strip()]
    for name in asked:
        if name not in SANITIZERS:
            raise typer.BadParameter(
                no_such("sanitizer", name, SANITIZERS), param_hint="--sanitize"
            )
    return [f"sanitize_{name}" for name in asked]


def _warp(threads: int) -> int:
    if threads not in (32, 64):
        raise typer.BadParameter(f"{threads}: a warp has 32 or 64 threads")
    return threads


def _require_device_types(names: list[str]) -> None:
    """Refuse the name of a device type that does not exist."""
    from opsmith.kernels import DEVICES, find_device

    for name in names:
        if find_device(name) is None:
            raise typer.BadParameter(no_such("device type", name, DEVICES), param_hint="--device")


def _refuse_reports(files: list[str]) -> None:
    """Refuse the name of a report in the place of a Python file."""
    for file in files:
        option = _REPORT_OPTIONS.get(Path(file).suffix)
        if option is not None:
            raise typer.BadParameter(
                f"{file} is not a Python file; to write the report into it, use {option} {file}",
                param_hint="FILE...",
            )


class _Check(extra.ExtraOptions):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Set variables that make checks faster, before torch is imported."""
        from opsmith.system.processes.launch import faster

        os.environ.update(faster())
        return super().parse_args(ctx, args)

    def extra(self) -> dict[str, bool]:
        """Return the options that turn on slow checks."""
        import opsmith.checks as checks

        return {one.flag: False for one in checks.all_checks() if one.flag}


def _checked(files: list[str], spec: str | None, modules: list[str]) -> list[Any]:
    """Return the operators that `opsmith check` is to check."""
    from opsmith.sources.importing import import_all
    from opsmith.sources.spec_file import is_name, specified

    named = [file for file in files if is_name(file)]
    if spec is None and not modules and not named:
        return list(import_all(files))
    if spec is None:
        what = f"{named[0]} is an operator" if named else "--import MODULE defines operators"
        raise typer.BadParameter(
            f"{what}: pass the file that declares what it has to compute, --spec SPEC.py",
            param_hint="--spec",
        )
    if named != files:
        other = next(file for file in files if file not in named)
        raise typer.BadParameter(
            f"{other!r}: with --spec, name operators, as in torchvision::nms", param_hint="FILE..."
        )
    return [specified(name, spec, modules) for name in files]


@app.command(cls=_Check, epilog=_EPILOG)
def check(
    ctx: typer.Context,
    files: options.Files,
    spec: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC.py",
            help="File that declares the operators of other libraries that FILE... names "
            "(torchvision::nms).",
        ),
    ] = None,
    import_: product_options.Modules = None,
    select: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME,…", help="Run only these checks; may be repeated."),
    ] = None,
    sanitize: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Also run C++ kernels rebuilt with these sanitizers: address, undefined, thread, "
            "memory.",
        ),
    ] = "",
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="Check on this device type, which must be present and have a kernel; may be "
            "repeated. By default: every device type that has a kernel.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Run only the fourteen checks that find most faults, with few cases: no runtime "
            "except PyTorch's eager mode, no compiler except the kernel's own.",
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Run again whenever a source, a header or a module of FILE changes."
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="How many checks may run side by side; as many as there are cores by default.",
        ),
    ] = None,
    ray: product_options.Ray = "",
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed for sampling. By default: replay stored failures, then sample with seed 0."
        ),
    ] = None,
    examples: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=f"{_EXAMPLES}; {_QUICK_EXAMPLES} with --quick",
            help="How many cases a check samples.",
        ),
    ] = None,
    seconds: product_options.Seconds = 60.0,
    time_limit: product_options.TimeLimit = 60.0,
    warp: Annotated[
        int,
        typer.Option(
            callback=_warp,
            help="Threads in a warp where CUDA kernels are emulated: 32, or 64 as on AMD's "
            "Instinct GPUs.",
        ),
    ] = 32,
    allow_cut_short: Annotated[
        bool,
        typer.Option(
            "--allow-cut-short",
            help="Let a check pass that ran out of time before it had tried enough cases.",
        ),
    ] = False,
    first: product_options.First = False,
    timings: Annotated[
        bool,
        typer.Option(
            "--timings",
            help="Show what the time of each check was spent on: drawing cases, right results, "
            "calls, compilers, starting processes, waiting for others.",
        ),
    ] = False,
    verbose: product_options.Verbose = False,
    as_json: options.AsJson = False,
    report: product_options.AsPage = None,
    junit: product_options.AsJunit = None,
    list_: Annotated[
        bool,
        typer.Option("--list", callback=_print_checks, is_eager=True, help="Name every check."),
    ] = False,
    json_schema: Annotated[bool, output.schema_option("opsmith.checks.report.json_junit")] = False,
    debug: options.Debug = False,
) -> None:
    """Build, then compare everything derived from a declaration with its reference.

    Exit code 0: all that ran passed. 1: something failed. 2: the command line is wrong. 5: nothing
    failed, and a check was cut short or no kernel of an operator was looked at.
    """
    _refuse_reports(files)
    if quick and select:
        raise typer.BadParameter(
            "--check and --quick both select the checks to run; give one of them",
            param_hint="--quick",
        )
    if ray and watch:
        raise typer.BadParameter("--watch checks on this machine alone", param_hint="--ray")
    from opsmith.checks.isolation import prestart
    from opsmith.system.progress import status
    from opsmith.system.temporarily import uncollected

    _require_device_types(device or [])
    jobs = jobs or (None if ray else len(os.sched_getaffinity(0)))
    with uncollected(), status("importing PyTorch"):
        import opsmith.checks as checks
        from opsmith.checks import worker_server
        from opsmith.checks.protocol import selected as checks_of
        from opsmith.checks.report.table import Table, show_ending, timings as time_table
        from opsmith.checks.workers.earlier_rows import EarlierRows

        worker_server.import_all()
        if not select:
            worker_server.prepare_for("dispatch")  # other rows need the same modules
        flags = [*(name for name, _ in extra.found(ctx)), *_sanitizers(sanitize)]
        names = [name.strip() for listed in select or () for name in listed.split(",")]
        selected = [name for name in names if name] or (list(checks.QUICK) if quick else None)
        names = [one.name for one in checks_of(selected, flags)]
    gc.freeze()  # no collection in a fork examines, and thereby copies, what is imported
    state = None
    if watch:
        from opsmith.checks.workers import watch as watching

        state = watching.watch(
            [*files, *([spec] if spec else [])],
            lambda: worker_server.prepare_for(*names),
            output.say,
        )
    started = time.monotonic() if watch else _STARTED
    ahead = 0 if ray or worker_server.started_threads() else min(jobs or 1, _AHEAD)
    with prestart.begun(ahead, worker_server.be_template):
        with status(f"importing {', '.join(files)}"):
            operators = _checked(files, spec, import_ or [])
        earlier = EarlierRows(operators, watching.read(state)) if state is not None else None
        # With --json, stdout holds only JSON, so the rows go to stderr.
        console = output.stderr() if as_json else output.stdout()
        table = Table(console.print, names, verbose)
        rows: list[Any] = []

        def show(row: Any) -> None:
            rows.append(row)
            table.add(row)

        run: Any = checks.run
        if ray:
            from opsmith.checks.cluster.operators import run_on_ray

            run = partial(run_on_ray, address=ray, say=cache(output.say))
        before = time.monotonic() - started
        with _summing_up(rows, table), output.progress(console) as progress:
            result = run(
                operators,
                select=selected,
                flags=flags,
                seed=seed or 0,
                stores=True,
                recalls=seed is None,
                examples=examples or (_QUICK_EXAMPLES if quick else _EXAMPLES),
                seconds=seconds,
                time_limit=time_limit,
                jobs=jobs,
                devices=device or (),
                warp=warp,
                allow_cut_short=allow_cut_short,
                first=first,
                earlier=earlier,
                progress=progress,
                on_row=show,
            )
            table.flush()
    if as_json:
        print(result.to_json())
    else:
        show_ending(console, result, verbose)
    if timings:
        output.stderr().print(time_table(result), f"\n{before:.1f} s before the first check")
    output.write_reports(result, report, junit)
    if state is not None and earlier is not None:
        watching.write(state, operators, earlier.keep(result.rows))
    raise typer.Exit(output.EXIT_CODES[result.outcome])


@contextmanager
def _summing_up(rows: list[Any], table: Any) -> Iterator[None]:
    """Say what passed until Ctrl-C ends the block."""
    try:
        yield
    except KeyboardInterrupt:
        table.flush()
        count = Counter(row.status for row in rows)
        counted = ", ".join(f"{number} {status}" for status, number in count.items())
        output.say_error(
            f"interrupted; {counted or 'no check had ended'}, and the rest did not run"
        )
        raise typer.Exit(130) from None
