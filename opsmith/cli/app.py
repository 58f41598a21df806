"""Define the commands. Each command parses its arguments, calls one function and prints the result.

Modules that import torch are imported inside a command, so that `opsmith --help` answers at once.
"""

import importlib
import json
import pkgutil
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from opsmith.cli import commands, output
from opsmith.cli.options import AsJson, Debug, Files, wants_tracebacks
from opsmith.errors import INCOMPLETE, BuildError, MissingDependencyError, OpsmithError
from opsmith.system.products import absent, from_other_packages
from opsmith.untyped import Untyped

if TYPE_CHECKING:
    from opsmith.operators import Operator

#: The class of mistakes on the command line, which typer raises and does not export.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
#: The end of Click's message about an unknown option, which lists similar options.
_POSSIBLE = re.compile(r"\.? \(Possible options: ([^)]+)\)\.?$")
#: The order of the commands in the help. Commands of other packages follow.
_ORDER = (
    *("new", "doctor", "build", "check", "judge", "emulate", "explain", "guide", "adopt", "show"),
    *("bench", "wheel", "export", "run", "view"),
)


class _Commands(TyperGroup):
    """Adds the commands of other packages; turns errors into one message and an exit code."""

    _complete = False

    def list_commands(self, ctx: object) -> list[str]:
        self._add_commands_of_others()
        return sorted(self.commands, key=[*_ORDER, *sorted(self.commands)].index)

    def get_command(self, ctx: Untyped, cmd_name: str) -> Untyped:
        if cmd_name not in self.commands:
            self._add_commands_of_others()
        return super().get_command(ctx, cmd_name)

    def _add_commands_of_others(self) -> None:
        if self._complete:
            return
        self._complete = True
        found, _ = from_other_packages("opsmith.commands", "command", typer.Typer, self.commands)
        for others in found.values():
            self.commands = {**typer.main.get_group(others).commands, **self.commands}

    def make_context(self, *args: Untyped, **kwargs: Untyped) -> Untyped:
        try:
            return super().make_context(*args, **kwargs)
        except _UsageError as error:
            if "NoArgs" in type(error).__name__:  # which prints the help
                raise
            output.say_error(_in_one_line(error))
            raise typer.Exit(2) from None

    def _settings(self, ctx: object) -> object:
        """Return the defaults that the project sets for the options of commands."""
        from opsmith.cli import settings

        path = settings.project_file(Path.cwd())
        if path is None or b"tool.opsmith" not in path.read_bytes():
            return None
        commands = {name: self.get_command(ctx, name) for name in settings.COMMANDS}
        return settings.settings(
            path,
            {
                name: {
                    max(param.opts, key=len).lstrip("-"): param.name
                    for param in command.params
                    if param.opts[0].startswith("-") and not param.is_eager
                }
                for name, command in commands.items()
                if command is not None
            },
        )

    def invoke(self, ctx: Untyped) -> Untyped:
        try:
            ctx.default_map = self._settings(ctx)
            return super().invoke(ctx)
        except _UsageError as error:
            output.say_error(_in_one_line(error))
            raise typer.Exit(2) from None
        except (OpsmithError, ModuleNotFoundError) as raised:
            told: Exception = raised
            if isinstance(raised, ModuleNotFoundError):
                told = absent(raised, f"opsmith {ctx.invoked_subcommand}")
            if not isinstance(told, OpsmithError) or wants_tracebacks(ctx):
                raise
            output.say_error(str(told))
            raise typer.Exit(getattr(told, "exit_code", 1)) from None
        except OSError as error:
            what = error.filename or "a file could not be written"
            output.say_error(f"{what}: {error.strerror}")
            raise typer.Exit(1) from None


def _in_one_line(error: Untyped) -> str:
    """Return the message of a mistake on the command line, with the command that helps."""
    text = " ".join(error.format_message().split())
    text = _POSSIBLE.sub(lambda found: f"; did you mean {found[1].replace(', ', ' or ')}?", text)
    command = error.ctx.command_path if error.ctx is not None else "opsmith"
    return f"{text if text.endswith(('.', '?')) else text + '.'} See {command} --help"


app = typer.Typer(
    cls=_Commands,
    help="Take one declaration of a PyTorch operator to every runtime, and prove that all agree.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        import opsmith

        print(f"opsmith {opsmith.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="my_op, or my_namespace::my_op.")],
    parent: Annotated[
        Path, typer.Option("--dir", help="Where to make the operator's folder.")
    ] = Path(),
    package: Annotated[
        bool,
        typer.Option(
            "--package",
            help="Make a package of operators to ship: NAME is PACKAGE or PACKAGE::OPERATOR.",
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Write a working operator to edit: declaration, C++ kernel, test."""
    from opsmith.cli import new as new_operator

    unknown = None
    if package:
        wanted = new_operator.parse_package(name)
        folder = parent / wanted.namespace
        new_operator.write("package", wanted, folder)
        hint = f"pip install --no-build-isolation -e {folder}  &&  opsmith wheel {folder}"
    else:
        wanted = new_operator.parse_name(name)
        folder = parent / wanted.name
        new_operator.write("operator", wanted, folder)
        unknown = new_operator.write_compile_commands(folder)
        hint = f"opsmith check {folder / folder.name}.py"
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        print(file)
    if unknown:
        output.say(f"\nNo compile_commands.json for editors: {unknown}")
    output.say(f"\nTry it:  {hint}")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """List the compilers and runtimes of this machine, and say how to get missing ones."""
    from opsmith.system.progress import status

    with status("importing PyTorch"):
        from opsmith.cli import doctor as examination

    with status("looking for compilers and runtimes"):
        findings = list(examination.examine())
    healthy = examination.healthy(findings)
    if as_json:
        print(json.dumps(examination.to_json(findings), indent=2))
    else:
        output.stdout().print(examination.table(findings))
        missing = [finding.name for finding in findings if finding.essential and not finding.ok]
        verdict = f"needed, and not here: {', '.join(missing)}" if missing else "ready to build"
        output.say(f"\n{verdict}", style="green" if healthy else "red")
    raise typer.Exit(0 if healthy else 1)


@app.command()
def build(
    files: Files,
    compile_commands: Annotated[
        bool,
        typer.Option(
            "--compile-commands",
            help="Only write compile_commands.json beside each C++ source, and the generated "
            "headers, so that clangd and editors find what the source includes.",
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Build every kernel of the operators that FILE... declare, and say where the libraries are.

    Exit code 0: every kernel that this machine can build was built. 1: a kernel does not build. 2:
    the command line is wrong. 5: all kernels of an operator were left out.
    """
    from opsmith.system.progress import status

    with status("importing PyTorch and the operators"):
        from opsmith.kernels import get_device
        from opsmith.sources.importing import import_all

        operators = list(import_all(files))
    if compile_commands:
        _write_compile_commands(operators)
        return
    failed = incomplete = False
    for operator in operators:
        devices = [device for device, kernel in operator.kernels.items() if kernel.source]
        if not devices:
            output.say(f"{operator.name}: nothing to build, its kernels are Python")
        left_out = 0
        for device in devices:
            started = time.perf_counter()
            try:
                (library,) = operator.build(device)
            except OpsmithError as error:
                absent = get_device(device, operator.name).missing()
                if isinstance(error, MissingDependencyError) and absent:
                    output.say(f"{operator.name}  {device}  left out, {absent}: {error}")
                    left_out += 1
                    continue
                output.say_error(str(error))
                failed = True
                continue
            seconds = time.perf_counter() - started
            print(f"{operator.name}  {device}  {seconds:.2f} s  {library}", flush=True)
        if devices and left_out == len(devices):
            output.say(f"{operator.name}: nothing was built, every kernel was left out")
            incomplete = True
    raise typer.Exit(1 if failed else INCOMPLETE if incomplete else 0)


def _write_compile_commands(operators: list["Operator"]) -> None:
    from opsmith.kernels import compile_commands, get_device

    # A device that this machine lacks may lack its compiler too, such as the NPU's.
    sources = [
        kernel.source
        for one in operators
        for device, kernel in one.kernels.items()
        if kernel.source is not None and not get_device(device, one.name).missing()
    ]
    written = compile_commands.write(sources)
    for path in written:
        print(path)
    if not written:
        raise BuildError("no operator of these files has a kernel in C++")


@app.command()
def guide() -> None:
    """Print a guide for programs that write kernels: all that is needed, as Markdown."""
    print((Path(__file__).parents[1] / "guide.md").read_text(encoding="utf-8"), end="")


for _module in pkgutil.iter_modules(commands.__path__):
    _found = importlib.import_module(f"{commands.__name__}.{_module.name}").app
    app.registered_commands += _found.registered_commands
