"""Options that several commands of products share."""

from pathlib import Path
from typing import Annotated

import typer

from opsmith.cli.options import in_a_folder

Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Show all notes, and all failures, each with its case as Python."
    ),
]
AsJunit = Annotated[
    Path | None,
    typer.Option(
        metavar="OUT.xml", callback=in_a_folder, help="Also write the report as JUnit's XML."
    ),
]
AsPage = Annotated[
    Path | None,
    typer.Option(metavar="OUT.html", callback=in_a_folder, help="Also write the report as a page."),
]
Candidate = Annotated[
    Path | None,
    typer.Option(
        metavar="KERNELS.py", help="File that registers kernels; only other processes import it."
    ),
]
First = Annotated[bool, typer.Option("--first", help="End with an operator's first failure.")]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        help="Module that defines what is named; by default the package that its namespace names. "
        "May be repeated.",
    ),
]
Seconds = Annotated[
    float,
    typer.Option(
        min=0, help="Sampling budget of each check, in seconds; beyond it, the check is cut short."
    ),
]
Ray = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Run each operator, or candidate, on a machine of a cluster of Ray: auto, HOST:PORT, "
        "or local.",
    ),
]
TimeLimit = Annotated[
    float,
    typer.Option(
        min=0.1, help="Seconds that a call may take before it hangs; compilers get a few times it."
    ),
]
