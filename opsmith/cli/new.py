"""Write a small working operator to edit, for `opsmith new`."""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from opsmith.errors import OpsmithError

_TEMPLATES = Path(__file__).with_name("templates")
_DEFAULT_NAMESPACE = "my_ops"
_DEFAULT_OPERATOR = "scale_rows"
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
#: Namespaces that PyTorch, C++ or opsmith uses itself.
_TAKEN = frozenset({"aten", "at", "c10", "opsmith", "prim", "prims", "quantized", "std", "torch"})


class NewError(OpsmithError):
    """An operator of this name cannot be written."""

    exit_code = 2


@dataclass(frozen=True)
class OperatorName:
    """A name `namespace::name`, of which both parts are valid identifiers in Python and in C++."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}::{self.name}"


def parse_name(text: str) -> OperatorName:
    """Read `name` or `namespace::name`."""
    parts = text.split("::")
    if len(parts) > 2:
        raise NewError(f"{text!r} has {len(parts)} parts; write NAME or NAMESPACE::NAME")
    for part in parts:
        _refuse_bad_identifier(part, text)
    if len(parts) == 1:
        if text == _DEFAULT_NAMESPACE:
            raise NewError(
                f"{text!r} is the namespace that a bare name gets; write NAMESPACE::{text}"
            )
        return OperatorName(_DEFAULT_NAMESPACE, text)
    namespace, name = parts
    if namespace in _TAKEN:
        raise NewError(f"the namespace {namespace!r} belongs to others; choose one of your own")
    if namespace == name:
        raise NewError(
            f"in {text!r} the namespace and the operator have one name, which in C++ is a "
            "namespace and a function of the same name; choose two"
        )
    return OperatorName(namespace, name)


def _refuse_bad_identifier(part: str, text: str) -> None:
    from opsmith.kernels.codegen.cpp_names import KEYWORDS

    shown = repr(part) if part == text else f"{part!r} in {text!r}"
    if not _IDENTIFIER.fullmatch(part):
        suggestion = re.sub(r"\W+", "_", part, flags=re.ASCII).strip("_0123456789").lower()
        hint = f"; {suggestion!r} would do" if _IDENTIFIER.fullmatch(suggestion) else ""
        raise NewError(
            f"{shown} is not an identifier: a letter, then letters, digits and underscores{hint}"
        )
    if "__" in part:
        raise NewError(f"{shown} has two underscores in a row, which C++ reserves")
    if keyword.iskeyword(part) or part in {*KEYWORDS, "main"}:
        language = "Python" if keyword.iskeyword(part) else "C++"
        raise NewError(f"{shown} is a keyword of {language}; choose another name")


def parse_package(text: str) -> OperatorName:
    """Read `package` or `package::operator`; the package is the namespace."""
    return parse_name(text if "::" in text else f"{text}::{_DEFAULT_OPERATOR}")


def write(kind: Literal["operator", "package"], name: OperatorName, folder: Path) -> None:
    """Write a folder with one operator, or with a package that becomes a wheel.

    Raises:
        NewError: the folder exists already, or cannot be made.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
    )
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise NewError(f"{folder} exists already; nothing was written") from None
    except OSError as error:
        raise NewError(f"cannot make {folder}: {error.strerror}") from error
    for template in sorted(environment.list_templates()):
        if not template.startswith(f"{kind}/"):
            continue
        place = template.removeprefix(f"{kind}/").removesuffix(".j2")
        for word, meant in (("NAME", name.name), ("PACKAGE", name.namespace), ("DOT", ".")):
            place = place.replace(word, meant)
        written = folder / place
        written.parent.mkdir(parents=True, exist_ok=True)
        text = environment.get_template(template).render(ns=name.namespace, name=name.name)
        written.write_text(text, encoding="utf-8")


def write_compile_commands(folder: Path) -> str | None:
    """Write ``compile_commands.json`` into a new operator's folder, so that editors know C++.

    A process of its own imports the declaration, which takes PyTorch.

    Returns:
        `None`, or why the file could not be written.
    """
    from opsmith.system.progress import status

    # Without bytecode, the folder holds nothing but what is for the user.
    words = [sys.executable, "-B", "-m", "opsmith"]
    words += ["build", str(folder.resolve() / f"{folder.name}.py"), "--compile-commands"]
    with status("writing compile_commands.json for editors"):
        # Python looks for modules where it starts, and the new file may have the name of any.
        done = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
    return done.stderr.strip().removeprefix("error: ") or None if done.returncode else None
