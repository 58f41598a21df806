"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

_DEBUG = "opsmith.debug"
#: The suffixes of files that people write: no model, no report.
SOURCES = frozenset(".py .pyi .ipynb .c .cc .cpp .cxx .cu .cuh .h .hpp .md".split())


def in_a_folder(path: Path | None) -> Path | None:
    """Refuse, before anything runs, a file to write that is a source, or in no folder."""
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}")
    if path is not None and path.suffix in SOURCES and path.exists():
        raise typer.BadParameter(f"{path} is a source file; nothing was written")
    return path


def _set_debug(ctx: typer.Context, value: bool) -> None:
    if value:
        ctx.meta[_DEBUG] = True


def wants_tracebacks(ctx: typer.Context) -> bool:
    """Return whether ``--debug`` was given."""
    return bool(ctx.meta.get(_DEBUG))


Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Python files (x.py), folders that hold one (x for x/x.py), or modules (pkg.x); "
        "x.py::op is one operator of a file.",
    ),
]
Debug = Annotated[
    bool, typer.Option("--debug", callback=_set_debug, help="Show the traceback of an error.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to stdout instead of a table.")]
