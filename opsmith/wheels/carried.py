"""Collect the modules of opsmith that a package contains, and redirect its imports to them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path

from opsmith.errors import ExportError
from opsmith.system.version import version
from opsmith.targets.exporting.packages import vendoring

_RUNTIME = Path(__file__).with_name("runtime")
_INSTEAD = {
    "kernels": "kernels.py",
    "system.version": "version.py",
    "operators.dispatch.gates.gate_libraries": "gate_libraries.py",
    "operators.dispatch.gates.argument_gate": "argument_gate.py",
    "kernels.languages.triton.language": "triton_language.py",
    "signature.checking": "checking.py",
}


def modules(operators: Sequence[str] = ()) -> dict[str, str]:
    """Return the text of each module by its path in the package.

    Args:
        operators: the names of the operators that the package declares, which are checked already.
    """
    found = vendoring.modules(
        ["operators.decorator", "signature", "targets.onnx.translation_table"],
        instead={module: _RUNTIME / name for module, name in _INSTEAD.items()},
    )
    found[f"{vendoring.FOLDER}/__init__.py"] = (_RUNTIME / "package.py").read_text("utf-8")
    found[f"{vendoring.FOLDER}/__main__.py"] = (_RUNTIME / "main.py").read_text("utf-8")
    for name in ("__init__.py", "system/version.py"):
        place = f"{vendoring.FOLDER}/{name}"
        found[place] = found[place].replace("{version}", version())
    place = f"{vendoring.FOLDER}/signature/checking.py"
    found[place] = found[place].replace("{operators}", " ".join(sorted(operators)))
    return found


def adapted(text: str, module: Path) -> str:
    """Return a package's module with its imports of opsmith redirected to the package's copy.

    Args:
        text: the module as its author wrote it.
        module: its path in the package.
    """
    dots = "." * len(module.parts)
    return _rewritten(text, lambda node: _import(node, dots, module))


def relative(text: str, module: Path, package: str) -> str:
    """Return the text of a module that imports its own package under any name.

    Args:
        text: the module's text, as in a wheel.
        module: its path in the package.
        package: the author's name for the package.

    Raises:
        ExportError: the module binds the package's name.
    """
    dots = "." * len(module.parts)

    def change(node: ast.Import | ast.ImportFrom) -> str | None:
        if isinstance(node, ast.Import):
            if any(f"{alias.name}.".startswith(f"{package}.") for alias in node.names):
                raise ExportError(
                    f"{module}, line {node.lineno}: imports {package} by its name, which in this "
                    f"layout differs between builds. Write from {package} import ..."
                )
            return None
        head, _, rest = (node.module or "").partition(".")
        if node.level or head != package:
            return None
        return f"from {dots}{rest} import {_names(node)}"

    return _rewritten(text, change)


def _rewritten(text: str, change: Callable[[ast.Import | ast.ImportFrom], str | None]) -> str:
    """Replace import statements in `text` by the results of `change`; keep the number of lines."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        new = change(node)
        if new is None:
            continue
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        # Column offsets count bytes.
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last].encode()[node.end_col_offset :].decode()
        # Keep the number of lines, so that line numbers in messages match the author's file.
        lines[first : last + 1] = [before + new + after, *["\n"] * (last - first)]
        lines = "".join(lines).splitlines(keepends=True)
    return "".join(lines)


def _import(node: ast.Import | ast.ImportFrom, dots: str, module: Path) -> str | None:
    """Return the replacement of a statement that imports opsmith; `None` for other statements."""
    if isinstance(node, ast.Import):
        ours = [alias for alias in node.names if alias.name.partition(".")[0] == "opsmith"]
        if not ours:
            return None
        statements = []
        others = [ast.unparse(alias) for alias in node.names if alias not in ours]
        if others:
            statements.append(f"import {', '.join(others)}")
        for alias in ours:
            _require_carried(alias.name, module, node.lineno)
            statements.append(
                f"from {dots} import {vendoring.FOLDER} as {alias.asname or 'opsmith'}"
            )
        return "; ".join(statements)
    if node.level or (node.module or "").partition(".")[0] != "opsmith":
        return None
    _require_carried(node.module or "", module, node.lineno)
    return f"from {dots}{vendoring.FOLDER} import {_names(node)}"


def _names(node: ast.ImportFrom) -> str:
    return ", ".join(map(ast.unparse, node.names))


def _require_carried(name: str, module: Path, line: int) -> None:
    if name != "opsmith":
        raise ExportError(
            f"{module}, line {line}: imports {name}, and a wheel carries only the names of opsmith "
            "that declarations use. Import names from opsmith itself, and keep code that checks or "
            "exports in modules outside the package."
        )
