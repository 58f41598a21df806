"""The command `opsmith show`: draw what opsmith derives from a declaration, as a tree."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opsmith.cli import output
from opsmith.cli.options import Debug, Files, in_a_folder

if TYPE_CHECKING:
    from rich.tree import Tree

    from opsmith.operators import Operator
    from opsmith.operators.core.operator import Kernel

app = typer.Typer()

_NO = "[dim]–[/]"


@app.command()
def show(
    sources: Files,
    svg: Annotated[
        Path | None,
        typer.Option(
            "--svg",
            "-o",
            metavar="OUT.svg",
            callback=in_a_folder,
            help="Also draw it as a picture.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Draw what opsmith derives from each declaration in FILE..., and what runs where."""
    from rich.console import Console

    from opsmith.system.files import write_output
    from opsmith.system.progress import status

    with status("reading the declarations"):
        from opsmith.sources.importing import import_all

        trees = [tree(operator) for operator in import_all(sources)]
    output.stdout().print(*trees, sep="")
    if svg is not None:
        drawn = Console(record=True, width=output.MAX_WIDTH, file=io.StringIO())
        drawn.print(*trees, sep="")
        write_output(svg, output.picture(drawn, "opsmith show"))
        output.say(str(svg))


def tree(operator: "Operator") -> "Tree":
    """Return the tree of one operator: its schema, kernels, derivatives, shards and runtimes."""
    from rich.markup import escape
    from rich.tree import Tree

    from opsmith.compat.torch_ops import overload_schema

    root = Tree(f"[bold]{operator.name}[/]")
    for title, lines in (
        ("schema", [str(overload_schema(operator.overload))]),
        ("kernels", list(_kernels(operator))),
        ("derived", list(_derived(operator))),
        ("sharding", list(_sharding(operator))),
        ("runtimes", list(_runtimes(operator))),
    ):
        branch = root.add(title)
        for line in lines:
            mark = f"{_NO} " if line.startswith("– ") else ""
            branch.add(mark + escape(line.removeprefix("– ")))
    return root


def _kernels(operator: "Operator") -> Iterator[str]:
    from opsmith.kernels import get_device
    from opsmith.operators.core.source_location import shown_path

    for device, kernel in operator.kernels.items():
        if device == "reference":
            continue
        missing = get_device(device, operator.name).missing()
        line = f"{device}: {shown_path(kernel.where)}"
        further = [name for name, one in operator.variants.items() if one.device == device]
        line += f", and its variants {', '.join(further)}" * bool(further)
        yield f"– {line}: {missing}" if missing else line
    where = shown_path(operator.kernels["reference"].where)
    yield f"every other device: the reference, {where}"


def _derived(operator: "Operator") -> Iterator[str]:
    from opsmith.operators.adoption.adopted import AdoptedOperator
    from opsmith.operators.core.onnx_choice import translations
    from opsmith.operators.core.source_location import shown_path

    signature = operator.signature
    yield f"checks of arguments: from the declaration ({', '.join(_checked(operator)) or 'none'})"
    unspecified = ", ".join(signature.unspecified())
    if unspecified:
        yield f"results are unspecified for {unspecified}"
    if isinstance(operator, AdoptedOperator):
        yield "fake kernel, gradient, batching: as they are, it is defined elsewhere"
        return
    if operator.written_fake is not None:
        yield "fake kernel: written by hand"
    elif signature.shaped:
        yield "fake kernel: from the shapes of the results"
    else:
        yield "– fake kernel: none; results are plain tensors, so register_fake"
    yield _gradient(operator)
    dims = ", ".join(signature.parallel_dims)
    yield f"batching: at once, along {dims}" if dims else "batching: one sample after the other"
    invariant = ", ".join(signature.batch_invariant)
    if invariant:
        yield f"the same bits in every batch along {invariant}, as claimed"
    forms = ", ".join(
        f"from opset {one.opset} on ({shown_path(one.where)})" for one in translations(operator)
    )
    yield f"ONNX: {forms or 'the reference, traced'}"


def _sharding(operator: "Operator") -> Iterator[str]:
    """Yield the rules for DTensors, and why a dimension has none."""
    from opsmith.operators.adoption.adopted import AdoptedOperator
    from opsmith.operators.dispatch.ranks.sharding_rules import backward_of
    from opsmith.signature.sharding import sharding_rules, unsharded

    if isinstance(operator, AdoptedOperator):
        yield "as it is, it is defined elsewhere"
        return
    if operator.written_sharding is not None:
        yield "written by hand"
        return
    for rule in sharding_rules(operator.signature)[1:]:
        yield f"{rule.claim}: {rule}"
    for forward in backward_of(operator):
        yield f"as the backward of {forward.name}: what its rules leave to each rank"
    for names, reason in unsharded(operator.signature):
        yield f"– {', '.join(names)}: {reason}"
    yield "otherwise every rank takes whole tensors, and computes the whole result"


def _checked(operator: "Operator") -> Iterator[str]:
    signature = operator.signature
    if any(one.tensor_type is not None for one in signature.parameters):
        yield "dtypes"
    if any(one.shape for one in signature.parameters):
        yield "shapes"
    if signature.where:
        yield f"conditions {'; '.join(signature.where)}"
    named = [one.name for one in signature.parameters if one.constraints]
    if named:
        yield f"values of {', '.join(named)}"


def _gradient(operator: "Operator") -> str:
    declared = getattr(operator, "declared_backward", None)
    if declared is not None:
        how = "recorded without Python" if declared.recordable else "recorded in Python"
        return f"gradient: {declared.backward.name}, {how} where its kernel is compiled"
    if operator.rule.backward is not None:
        return "gradient: written by hand"
    if operator.rule.reference:
        return "gradient: of the reference"
    return "– gradient: none declared; asking for one raises"


def _runtimes(operator: "Operator") -> Iterator[str]:
    from opsmith.targets import all_targets

    for target in all_targets():
        missing = target.available()
        if missing is not None:
            yield f"– {target.title}: {missing}"
            continue
        ways: dict[str, str] = {}
        remarks: dict[str, None] = {}
        obstacles: list[str] = []
        for kernel, label in _asked(operator):
            for route in target.proofs():
                obstacle = route.obstacle(operator, kernel)
                if obstacle is not None:
                    obstacles.append(obstacle)
                elif route.name not in ways:
                    ways[route.name] = f"{route.name}{label}"
                    remarks[route.remark(operator, kernel)] = None
        if ways:
            yield "; ".join([f"{target.title}: {', '.join(ways.values())}", *filter(None, remarks)])
        elif obstacles:
            yield f"– {target.title}: {obstacles[0]}"


def _asked(operator: "Operator") -> Iterator[tuple["Kernel", str]]:
    """Yield the kernels that a runtime may call for the operator, each with its label.

    The host's kernel comes first, as most runtimes run only on the CPU. Without a kernel for the
    host, models for the CPU contain the reference.
    """
    from opsmith.kernels import HOST

    own = {device: kernel for device, kernel in operator.kernels.items() if device != "reference"}
    if HOST in own:
        yield own.pop(HOST), ""
        yield from ((kernel, f" ({device})") for device, kernel in own.items())
    else:
        yield from ((kernel, f" ({device})") for device, kernel in own.items())
        yield operator.kernels["reference"], " (the reference)" if own else ""
