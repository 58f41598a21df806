"""The commands for artifacts: export, run, view."""

from __future__ import annotations

import importlib.util
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opsmith.cli import extra, output
from opsmith.cli.options import SOURCES, Debug, in_a_folder
from opsmith.errors import (
    ArtifactError,
    LoadError,
    MissingDependencyError,
    OpsmithError,
    OptionError,
)
from opsmith.untyped import Value

if TYPE_CHECKING:
    from opsmith.targets.exporting.protocol import Option, Target

app = typer.Typer()

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="model.py:example or pkg.module:example, a function that returns (model, args); "
        "or a .pt2 file of torch.export.save; or, for a target that takes operators, the file or "
        "module that declares them, or FILE.py::OPERATOR for one.",
    ),
]
Artifact = Annotated[
    Path, typer.Argument(metavar="ARTIFACT", help="A folder that opsmith export wrote.")
]


_EPILOG = "Beside these, the options of the target: see opsmith export --list."


class _Export(extra.ExtraOptions):
    def extra(self) -> dict[str, bool]:
        """Return the options of every target; `opsmith.export` rejects options of other targets."""
        from opsmith.targets import all_targets

        options = [option for target in all_targets() for option in target.options]
        return {option.name: option.kind is not bool for option in options}


def _print_targets(value: bool) -> None:
    if not value:
        return
    from opsmith.targets import all_targets

    for found in all_targets():
        missing = found.available()
        print(f"{found.name}  {found.title}" + (f"  (not here: {missing})" if missing else ""))
        if found.page:
            print(f"    see {found.page}")
        for option in found.options:
            choices = f" ({', '.join(option.choices)})" if option.choices else ""
            text = "" if option.kind is bool else " …"
            print(f"    --{option.name.replace('_', '-')}{text}  {option.help}{choices}")
    raise typer.Exit


@app.command(cls=_Export, epilog=_EPILOG)
def export(
    ctx: typer.Context,
    source: Source,
    target: Annotated[str, typer.Option(help="The runtime; --list names all.")] = "onnxruntime",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path("dist"),
    overwrite: Annotated[
        bool, typer.Option(help="Replace an existing artifact; files of others stay.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare with PyTorch on sampled inputs.")
    ] = True,
    list_: Annotated[
        bool,
        typer.Option(
            "--list",
            callback=_print_targets,
            is_eager=True,
            help="Name the targets and their options, and exit.",
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Export a model that may contain custom operators, or operators alone, to a runtime."""
    from opsmith.system.progress import status

    with status("importing PyTorch and the model"):
        from opsmith.cli.source import load_source
        from opsmith.targets import OperatorTarget, export as export_to, get_target

        found = get_target(target)
        options = _options(found, extra.found(ctx))
        loaded = load_source(source, operators=isinstance(found, OperatorTarget))
    export_to(
        **loaded, target=target, out=out, overwrite=overwrite, verify=verify, say=print, **options
    )


@app.command()
def run(
    artifact: Artifact,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]FILE...",
            help="An .npz file of arrays by name, or .npy or .pt files in order.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", callback=in_a_folder, help="File for the outputs: .npz, .npy or .pt."
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, help="Number of runs; with several, print their median time.")
    ] = 1,
    debug: Debug = False,
) -> None:
    """Run an artifact on inputs from files, in the runtime that it was exported for."""
    from opsmith.system.progress import status

    with status("loading the artifact"):
        from opsmith.cli.tensors import read_inputs, write_outputs
        from opsmith.targets import LoadedOperators, load

        _require_manifest(artifact)
        model = load(artifact)
    if isinstance(model, LoadedOperators):
        raise ArtifactError(
            f"{artifact} holds operators ({', '.join(model)}), and opsmith run runs models. Call "
            f'them from Python: opsmith.load("{artifact}")["{next(iter(model))}"](…)'
        )
    manifest = model.artifact.manifest
    tensors = read_inputs(inputs or [], manifest.inputs)
    try:
        outputs = model.run(tensors)
    except OpsmithError:
        raise
    except RuntimeError as error:  # an error of the runtime, or of a kernel
        raise OpsmithError(f"{artifact}: {error}") from error
    for spec, tensor in zip(manifest.outputs, outputs, strict=True):
        print(f"{spec.name}: {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}")
    if repeat > 1:
        seconds = []
        for _ in range(repeat):
            started = time.perf_counter()
            model.run(tensors)
            seconds.append(time.perf_counter() - started)
        print(f"median of {repeat}: {1e3 * statistics.median(seconds):.3f} ms")
    if out is not None:
        write_outputs(out, [spec.name for spec in manifest.outputs], outputs)
        output.say(f"wrote {out}")


@app.command()
def view(
    artifact: Annotated[
        Path,
        typer.Argument(metavar="ARTIFACT", help="A folder of opsmith export, or a model file."),
    ],
    port: Annotated[int, typer.Option(help="Port for the page; 0 picks a free port.")] = 0,
    browse: Annotated[
        bool, typer.Option("--browse/--no-browse", help="Open a browser, or only serve the page.")
    ] = True,
    debug: Debug = False,
) -> None:
    """Show a model's graph in a browser, until Ctrl-C."""
    _require(artifact)
    path = _viewable(artifact)
    if importlib.util.find_spec("netron") is None:
        raise MissingDependencyError(
            'opsmith view needs netron. Get it: pip install "opsmith[view]"'
        )
    import netron

    address = netron.start(str(path), address=("localhost", port) if port else None, browse=browse)
    host, number = address
    output.say(f"{path.name} is shown at http://{host}:{number}  (Ctrl-C ends it)")
    try:
        netron.wait()
    except KeyboardInterrupt:
        pass
    finally:
        netron.stop(address)


def _require(artifact: Path) -> None:
    """Refuse a path that does not exist."""
    if not artifact.exists():
        raise LoadError(f"{artifact} is not an opsmith artifact: no such folder")


def _require_manifest(artifact: Path) -> None:
    """Refuse a path that is not the folder of an artifact."""
    from opsmith.targets.exporting.artifact import MANIFEST

    _require(artifact)
    what = "it is a file" if artifact.is_file() else f"it has no {MANIFEST}"
    if not (artifact / MANIFEST).exists():
        raise LoadError(f"{artifact} is not an opsmith artifact: {what}")


def _viewable(path: Path) -> Path:
    """Return the file that netron can show."""
    if path.suffix in SOURCES:
        raise LoadError(
            f"{path} is a source file, not a model. opsmith show {path} draws what follows from a "
            "declaration; opsmith export makes a model's artifact, which opsmith view shows"
        )
    if path.is_file():
        return path
    from opsmith.targets import Artifact as OpenArtifact

    opened = OpenArtifact.open(path)
    name = opened.manifest.details.get("model", "")
    if not str(name).endswith((".onnx", ".pt2", ".pte", ".xml")):
        raise ArtifactError(f"{path} holds no model whose graph can be shown")
    return opened.path(name)


def _options(target: Target, given: extra.Found) -> dict[str, Value]:
    """Return the target's options by name, with their texts converted to values."""
    known = {option.name: option for option in target.options}
    chosen: dict[str, Value] = {}
    texts: dict[str, list[str]] = {}
    for name, value in given:
        texts.setdefault(name, []).append("true" if value is None else value)
    for name, many in texts.items():
        chosen[name] = _values(known[name], many) if name in known else many[-1]
    return chosen


def _values(option: Option, texts: list[str]) -> object:
    """Return the value of an option that was given once for each of `texts`."""
    flag = f"--{option.name.replace('_', '-')}"
    named = [text for text in texts if "=" in text] if option.by_operator else []
    plain = [text for text in texts if text not in named]
    if named and not plain:
        pairs = (text.rsplit("=", 1) for text in named)
        return {name: _value(option, text, f"{flag} {name}=") for name, text in pairs}
    if named or len(plain) > 1:
        many = f", or OPERATOR={option.name.upper()} for each" if option.by_operator else ""
        raise OptionError(f"{flag}: one {option.name} for all{many}")
    return _value(option, plain[0], f"{flag} ")


def _value(option: Option, text: str, where: str) -> object:
    if option.kind is bool:
        return text.lower() in ("1", "true", "yes", "on")
    try:
        return option.kind(text)
    except ValueError:
        raise OptionError(f"{where}{text}: expected {option.kind.__name__}") from None
