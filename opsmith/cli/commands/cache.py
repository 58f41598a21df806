"""The command `opsmith cache`: say where built files are and how large; remove them."""

import json
import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from opsmith.cli import output
from opsmith.cli.options import AsJson, Debug

app = typer.Typer()

#: The parts of opsmith's cache by folder. Nothing else is removed, and none of them that another
#: program made, since OPSMITH_CACHE may name a folder that also holds other files.
PARTS = {
    "libraries": "operators' libraries",
    "objects": "compiled kernels",
    "generated": "argument headers",
    "sources": "kernels that were given as text",
    "precompiled": "precompiled headers",
    "programs": "opsmith's own programs",
    "aotinductor": "AOTInductor packages",
    "wheels": "parts of wheels",
    "hypothesis": "constants of sources, which samples contain",
    "failures": "failing cases, which the next check tries first",
}


@app.command()
def cache(
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove all built files; the next use builds again.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say where built files are kept, and how large they are."""
    from opsmith.system.files import cache_folder, is_own, storing

    folder = cache_folder()
    sizes = {name: _size(folder / name) for name in PARTS if (folder / name).exists()}
    if as_json:
        print(json.dumps({"folder": str(folder), "bytes": sizes}, indent=2))
    else:
        _show(folder, sizes)
    if clear:
        removed = {name: size for name, size in sizes.items() if is_own(folder / name)}
        with storing(folder):
            for name in removed:
                _remove(folder / name)
        output.say(f"removed {_megabytes(sum(removed.values()))}")
        for name in sizes.keys() - removed.keys():
            output.say(f"kept {folder / name}: it was there before opsmith used this cache")


def _show(folder: Path, sizes: dict[str, int]) -> None:
    from rich.table import Table

    console = output.stdout()
    console.print(f"{folder}  {_megabytes(sum(sizes.values()))}", soft_wrap=True, markup=False)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for name, size in sizes.items():
        table.add_row(name, _megabytes(size), PARTS[name])
    console.print(table)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:  # another process removed its temporary file
                continue
    return total


def _remove(path: Path) -> None:
    """Remove a part; rename it first, so that no other process sees half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    path.rename(aside)
    if aside.is_dir():
        shutil.rmtree(aside)
    else:
        aside.unlink()
