"""The command `opsmith bench`: parse, run, print the figures."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from opsmith.cli import output
from opsmith.cli.options import AsJson, Debug, Files, in_a_folder
from opsmith.cli.product_options import Candidate

app = typer.Typer()


def parse_size(text: str) -> dict[str, int]:
    """Parse ``N=4096,C=768`` into a mapping."""
    found = {}
    for part in text.split(","):
        name, equals, size = part.partition("=")
        if not equals or not name.strip() or not size.strip().isdigit():
            raise typer.BadParameter(
                f"{part!r}: expected NAME=SIZE, as in N=4096,C=768", param_hint="--size"
            )
        found[name.strip()] = int(size)
    return found


def _require_whole(operators: list[Any], sizes: list[dict[str, int]]) -> None:
    """Refuse sizes that leave a dimension open: what is timed would depend on chance."""
    for operator in operators:
        signature = operator.signature
        needed = [name for name in signature.dims if name not in signature.variadic_dims]
        for size in sizes:
            missing = [name for name in needed if name not in size]
            if missing and any(name in signature.dims for name in size):
                given = ",".join(f"{name}={number}" for name, number in size.items())
                rest = ",".join(f"{name}=…" for name in missing)
                raise typer.BadParameter(
                    f"{operator.name} has the dimensions {', '.join(signature.dims)}: write "
                    f"{given},{rest}",
                    param_hint="--size",
                )


@app.command()
def bench(
    files: Files,
    size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N=…,C=…",
            help="Time this size in place of the registered sizes; may be repeated.",
        ),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="The generic dtype; by default float32.")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Time only this contestant beside the reference; may be repeated."
        ),
    ] = None,
    candidate: Candidate = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often each contestant is timed.")] = 15,
    seconds: Annotated[
        float, typer.Option(min=0, help="Time limit for the rounds of one size, in seconds.")
    ] = 20.0,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", callback=in_a_folder, help="Save the figures, for a later comparison."
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Print what changed since these figures were saved."),
    ] = None,
    as_json: AsJson = False,
    json_schema: Annotated[bool, output.schema_option("opsmith.bench.figures")] = False,
    debug: Debug = False,
) -> None:
    """Time every kernel and runtime of an operator beside its reference.

    Exit code 1: a result was wrong, a time is not possible, something failed, or is slower than
    in the file of --compare.
    """
    from opsmith.system.files import write_output
    from opsmith.system.progress import status

    with status("importing PyTorch"):
        import opsmith.bench as benchmarks
        from opsmith.bench import table
        from opsmith.bench.compare import changes
        from opsmith.sources.importing import import_all

    if candidate is not None and not candidate.is_file():
        raise typer.BadParameter(f"no such file: {candidate}", param_hint="--candidate")
    sizes = [parse_size(text) for text in size or ()]
    before = benchmarks.Benchmark.load(compare) if compare is not None else None
    with status(f"importing {', '.join(files)}"):
        operators = list(import_all(files))
    _require_whole(operators, sizes)
    console = output.stderr() if as_json else output.stdout(80)

    with output.progress(console) as progress:
        result = benchmarks.run(
            operators,
            sizes=sizes,
            dtype=dtype,
            only=only or (),
            candidate=candidate,
            rounds=rounds,
            seconds=seconds,
            progress=progress,
            on_group=lambda figures, machine: show(console, table.lines(figures, machine)),
        )
    assert result.machine is not None
    show(console, table.ending(result.machine, result.figures))
    changed = changes(result, before) if before is not None else []
    if before is not None:
        show(console, table.compared(changed))
    if save is not None:
        write_output(save, result.to_json() + "\n")
        output.say(f"wrote {save}")
    if as_json:
        document = json.loads(result.to_json())
        if before is not None:
            document["changes"] = [change.to_json() for change in changed]
        print(json.dumps(document, indent=2))
    slower = any(change.verdict == "slower" for change in changed)
    raise typer.Exit(0 if result.ok and not slower else 1)


def show(console: Any, lines: Any) -> None:
    """Print lines as soon as they are ready."""
    for line in lines:
        console.print(line)
