"""The command `opsmith judge`: judge a candidate or a folder of them, print the verdict."""

import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from opsmith.cli import options, output, product_options

app = typer.Typer()


@app.command()
def judge(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC.py",
            help="File that declares operators, their references and cases; a definition.json of "
            "FlashInfer; or a folder of them, whose NAME.json is for NAME.py of --candidates.",
        ),
    ],
    candidate: product_options.Candidate = None,
    candidates: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Judge every .py file in FOLDER; print a line of JSON for each."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many candidates of a folder are judged at a time; by default 1, or with "
            "--ray as many as there are processors.",
        ),
    ] = None,
    ray: product_options.Ray = "",
    results: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.jsonl",
            callback=options.in_a_folder,
            help="Also keep the lines of a folder here, and judge nothing again that has one.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed for sampling; by default a fresh one.")
    ] = None,
    examples: Annotated[int, typer.Option(min=1, help="How many cases a check samples.")] = 60,
    seconds: product_options.Seconds = 60.0,
    time_limit: product_options.TimeLimit = 60.0,
    deadline: Annotated[
        float, typer.Option(min=1, help="The seconds that all calls may take together.")
    ] = 3600.0,
    trust_candidate: Annotated[
        bool,
        typer.Option(
            "--trust-candidate", help="Run the candidate even if the machine has no sandbox."
        ),
    ] = False,
    first: product_options.First = False,
    verbose: product_options.Verbose = False,
    as_json: options.AsJson = False,
    report: product_options.AsPage = None,
    junit: product_options.AsJunit = None,
    verdict_file: Annotated[
        Path | None,
        typer.Option(
            "--verdict",
            metavar="OUT.json",
            callback=options.in_a_folder,
            help="Also write the verdict as JSON.",
        ),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY", help="Sign it with this secret key of minisign: OUT.json.minisig."
        ),
    ] = None,
    debug: options.Debug = False,
) -> None:
    """Judge untrusted kernels; the process that reaches the verdict never runs their code.

    Exit code 0: accepted. 1: refused, with the failures. 2: a file is missing or does not import.
    5: a check was cut short, or there is nothing to judge. 6: the machine grants no sandbox.
    """
    from opsmith.checks.isolation import prestart
    from opsmith.system.progress import status
    from opsmith.system.temporarily import uncollected

    if (candidate is None) == (candidates is None):
        raise typer.BadParameter("name a file by --candidate, or a folder by --candidates")
    if candidates is not None and verdict_file is not None:
        raise typer.BadParameter("--verdict takes one candidate: name its file by --candidate")
    if candidates is None and (ray or results is not None):
        raise typer.BadParameter("--ray and --results are for a folder: name it by --candidates")
    if candidate is not None and spec.is_dir():
        raise typer.BadParameter(f"{spec} is a folder: name that of the candidates by --candidates")
    if sign is not None and verdict_file is None:
        raise typer.BadParameter("--sign signs a file: name it by --verdict OUT.json")
    asked: dict[str, Any] = {
        "seed": seed,
        "examples": examples,
        "seconds": seconds,
        "time_limit": time_limit,
        "deadline": deadline,
        "trust_candidate": trust_candidate,
        "first": first,
    }
    if candidate is None:
        asked |= {"jobs": jobs, "ray": ray, "results": results}
        raise typer.Exit(_judge_folder(spec, candidates, debug, asked))
    prestart.begin_candidates()
    with uncollected(), status("importing PyTorch"):
        from opsmith.checks.report.table import Table, show_ending
        from opsmith.judge import judge as reach_verdict
        from opsmith.judge.signing import read_key, write_signed
    console = output.stderr() if as_json else output.stdout()
    table = Table(console.print, verbose=verbose)
    try:
        key = read_key(sign, (spec, candidate), _ask_for_password) if sign is not None else None
        with output.progress(console) as progress:
            verdict = reach_verdict(spec, candidate, **asked, progress=progress, on_row=table.add)
            table.flush()
        written = write_signed(verdict, verdict_file, key) if verdict_file is not None else []
    except Exception as error:
        if debug:
            raise
        output.say_error(str(error) or type(error).__name__)
        raise typer.Exit(getattr(error, "exit_code", 2)) from None
    if as_json:
        print(verdict.to_json())
    else:
        show_ending(console, verdict.report, verbose)
        for path, digest in verdict.digests.items():
            print(f"sha256 {digest}  {path}{'  (spec)' if path in verdict.of_spec else ''}")
        print(f"seed {verdict.seed}")
        if verdict.not_sandboxed:
            print(f"not sandboxed: {verdict.not_sandboxed}")
        print(verdict.outcome)
    output.write_reports(verdict.report, report, junit)
    for made in written:
        output.say(f"wrote {made}")
    raise typer.Exit(output.EXIT_CODES[verdict.report.outcome])


def _ask_for_password() -> str:
    return str(typer.prompt("Password of the key", hide_input=True, err=True))


def _judge_folder(spec: Path, folder: Path | None, debug: bool, asked: dict[str, Any]) -> int:
    """Judge every Python file in a folder, and return the exit code."""
    from opsmith.judge.service import CODES, judge_all

    if folder is not None and not folder.is_dir():
        output.say_error(f"no such folder: {folder}")
        return 2
    files = sorted(folder.glob("*.py")) if folder is not None else []
    stated = [(spec / f"{file.stem}.json", [file]) for file in files]
    if not spec.is_dir():
        stated = [(spec, files)]
    missing = [str(one) for one, _ in stated if not one.is_file()]
    if not files or missing:
        missed = f"no such file: {', '.join(missing)}"
        output.say_error(missed if files else f"{folder} has no Python files")
        return 2
    outcomes: Counter[str] = Counter()
    stdout, say = sys.stdout, cache(output.say)  # every process of a machine says the same
    try:
        for one, judged in stated:
            for said in judge_all(one, judged, say=say, **asked):
                outcomes[said["outcome"]] += 1
                print(json.dumps(said), file=stdout, flush=True)
    except KeyboardInterrupt:
        rest = "; the same command judges the rest" if asked["results"] is not None else ""
        output.say_error(f"interrupted; {outcomes.total()} of {len(files)} are judged{rest}")
        return 130
    except Exception as error:
        if debug:
            raise
        output.say_error(str(error) or type(error).__name__)
        return int(getattr(error, "exit_code", 2))
    worst = [outcome for outcome in ("refused", "undecided") if outcomes[outcome]]
    return CODES[worst[0]] if worst else 0
