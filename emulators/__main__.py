"""Run a whole CUDA program on the CPU: ``python -m emulators program.cu [argument...]``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

#: What stands behind the program is its own.
SETTINGS = {"allow_interspersed_args": False}


def emulate(
    source: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="A CUDA source with a main: program.cu.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENT...", help="The program's own arguments and options."),
    ] = None,
    include: Annotated[
        list[Path] | None, typer.Option("-I", metavar="FOLDER", help="A folder of headers.")
    ] = None,
    define: Annotated[
        list[str] | None, typer.Option("-D", metavar="NAME[=VALUE]", help="Define a macro.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Time limit of the program in seconds.")
    ] = 300,
    seed: Annotated[int, typer.Option(min=0, help="Decides the order of blocks and threads.")] = 0,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How often a launch runs that is repeated with the same arguments, as in a loop "
            "that measures; the others are skipped.",
        ),
    ] = None,
    allow_unwritten: Annotated[
        bool,
        typer.Option("--allow-unwritten", help="Only note reads of memory that nothing wrote."),
    ] = False,
) -> None:
    """Run a whole CUDA program on the CPU, with every access of its kernels watched.

    The first race, access beside memory, divergent barrier, refused launch or read of unwritten
    memory ends the program, and is told with its lines. Exit code 0: kernels ran, nothing was
    found, and the program's own exit code is 0. 1: a fault was found, or the program fails by
    itself. 2: the command line is wrong. 5: no kernel ran, the time is over, or the program uses
    what is not emulated.
    """
    from emulators.cuda.program import NotRunError, Options, run_program

    flags = (*(f"-I{one}" for one in include or ()), *(f"-D{one}" for one in define or ()))
    options = Options(flags, seconds, seed, repeats, allow_unwritten)
    try:
        code, report = run_program(source, arguments or (), options)
    except NotRunError as error:
        code, report = error.exit_code, str(error)
    print(f"== emulate: {report}", file=sys.stderr)
    raise typer.Exit(code)


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command(context_settings=SETTINGS)(emulate)
    app(prog_name="python -m emulators")
