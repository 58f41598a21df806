"""The command `opsmith adopt`: parse, draft, print the declaration."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from opsmith.cli import output
from opsmith.cli.options import Debug, in_a_folder
from opsmith.cli.product_options import Modules
from opsmith.errors import OpsmithError

app = typer.Typer()

_DECLARE = (
    "register_kernel(tvm_ffi=, function=) makes one the kernel of an operator that you declare."
)


class AdoptError(OpsmithError):
    """The name belongs to nothing that can be adopted."""

    exit_code = 2


@app.command()
def adopt(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An operator that PyTorch knows (torchvision::nms, aten::add.Tensor), or a "
            "torch.autograd.Function or its apply (ops.py:MyFunction), or a tvm-ffi module "
            "(library.so), whose functions are declared as far as their types tell.",
        ),
    ],
    example: Annotated[
        str | None,
        typer.Option(
            metavar="ARGUMENTS",
            help='A call\'s arguments, as Python: "torch.rand(5, 4), k=2". Found automatically '
            "if omitted.",
        ),
    ] = None,
    modules: Modules = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.py",
            callback=in_a_folder,
            help="File to write; by default, print.",
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write a declaration of an operator that exists, to start from.

    Parameters and defaults come from its schema. Calls of the operator show its shapes, its
    dtypes and the values that it accepts. `opsmith check` on the file checks the existing
    operator.
    """
    if out is not None and out.exists():
        raise AdoptError(f"{out} exists already; nothing was written")
    if example is not None:
        _require_arguments(example)
    with output.progress() as tell:
        tell(0, 0, f"calling {name}")
        text = _drafted(name, example, modules or [])
    if out is None:
        print(text, end="")
        return
    from opsmith.system.files import write_output

    write_output(out, text)
    output.say(f"{out}\n\nTry it:  opsmith check {out}")


def _require_arguments(example: str) -> None:
    try:
        ast.parse(f"call({example})", mode="eval")
    except SyntaxError as error:
        raise AdoptError(
            f'--example {example!r}: expected a call\'s arguments, as in "torch.rand(5, 4), k=2": '
            f"{error.msg}"
        ) from None


def _drafted(name: str, example: str | None, modules: list[str]) -> str:
    from opsmith.drafting import draft_function, draft_operator
    from opsmith.sources.importing import import_module
    from opsmith.sources.spec_file import imported_before, imported_for, is_name

    if name.endswith(".so"):
        from opsmith.system.products import import_product

        module = import_product("opsmith.kernels.languages.tvm_ffi", name)
        found = module.functions_of(Path(name))
        if not found:
            raise AdoptError(f"{name} exports no function for tvm-ffi")
        from opsmith.drafting.modules import draft_module

        drafted = draft_module(Path(name), found)
        return drafted or f"# {name} exports for tvm-ffi: {', '.join(found)}\n# {_DECLARE}\n"
    if is_name(name):
        imported = [module for module, _ in imported_before(name, modules)]
        imported_for(name, modules)
        return draft_operator(name, example, imported)
    file, colon, attribute = name.rpartition(":")
    if not colon:
        raise AdoptError(
            f"{name!r}: name an operator, as in torchvision::nms, or a torch.autograd.Function, "
            "as in ops.py:MyFunction"
        )
    module = import_module(file)
    functions = _functions(module)
    attribute = attribute.removesuffix(".apply")
    if attribute not in functions:
        found = ", ".join(functions) or "none"
        more = ""
        if callable(vars(module).get(attribute)):
            more = (
                f". If {attribute} makes a Function, give one that it made a name there, as in "
                f"My{attribute.title()} = {attribute}(...), and adopt that"
            )
        raise AdoptError(
            f"{file} has no torch.autograd.Function {attribute!r}; it has {found}{more}"
        )
    function = functions[attribute]
    if vars(module).get(function.__name__) is function:
        attribute = function.__name__
    name = Path(file).stem if file.endswith(".py") else file
    return draft_function(name, function, example, attribute)


def _functions(module: ModuleType) -> dict[str, type]:
    """Return the Functions of a module, by their names and by the names of their ``apply``."""
    import torch

    owners = {key: getattr(value, "__self__", value) for key, value in vars(module).items()}
    return {
        key: owner
        for key, owner in owners.items()
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function)
        if owner is not torch.autograd.Function
    }
