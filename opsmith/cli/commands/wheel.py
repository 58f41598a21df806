"""The command `opsmith wheel`: parse, build, print the file."""

from pathlib import Path
from typing import Annotated

import typer

from opsmith.cli import output
from opsmith.cli.options import Debug
from opsmith.errors import no_such

app = typer.Typer()


@app.command()
def wheel(
    source: Annotated[
        Path, typer.Argument(help="A folder with a pyproject.toml, or one Python file.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the wheel.")
    ] = Path("dist"),
    platform: Annotated[
        list[str] | None,
        typer.Option(
            help="x86_64 or aarch64, for every Linux with glibc 2.28 or later; or native, for "
            "Linux as old as this machine's compiler allows. May be repeated."
        ),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEVEL",
            help="Compile for this processor level only, as x86-64-v3; may be repeated.",
        ),
    ] = None,
    gates: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VERSION",
            help="A further release of PyTorch with which calls shall need no Python (pip "
            "downloads its headers), or the folder of a release. May be repeated.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="For a single file: the name of the distribution.")
    ] = None,
    version: Annotated[
        str | None, typer.Option(help="For a single file: the version; by default 0.1.0.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Report of opsmith check --json that the wheel shall contain."
        ),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            help="wheel; or hf, a folder that Hugging Face's kernels loads; or hf-tvm-ffi, such a "
            "folder that needs no PyTorch."
        ),
    ] = "wheel",
    debug: Debug = False,
) -> None:
    """Build a wheel that needs no compiler and no opsmith where it is installed.

    One wheel serves every Python from 3.10 and every PyTorch from 2.10.
    """
    from opsmith.system.progress import status

    with status("importing PyTorch"):
        from opsmith.wheels import build_folder, build_tvm_ffi_folder, build_wheel

    layouts = {"wheel": build_wheel, "hf": build_folder, "hf-tvm-ffi": build_tvm_ffi_folder}
    if layout not in layouts:
        raise typer.BadParameter(no_such("layout", layout, layouts), param_hint="--layout")
    for one in platform or ["native"]:
        made = layouts[layout](
            source,
            out,
            platform=one,
            levels=level,
            gates=gates or (),
            name=name,
            version=version,
            report=report,
            say=output.say,
        )
        files = [made] if made.is_file() else [path for path in made.rglob("*") if path.is_file()]
        output.say(f"{made}  {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")
