"""The page on the command line: every command and option, from its help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

_HEAD = """# Commands

`opsmith COMMAND --help` prints what stands here. An error is one message on stderr; `--debug` shows
the traceback, in commands that have it. The exit code is 0 where all is well, 1 where a check or an
operation failed, 2 where the command line is wrong, 5 where nothing failed and a check was
cut short, or of an operator no kernel was looked at, judged or built.
"""


def page() -> str:
    """The page's Markdown."""
    from opsmith.cli.app import app
    from opsmith.targets import all_targets

    group = typer.main.get_command(app)
    parts = [_HEAD]
    for name in group.list_commands(None):
        parts.append(_command(name, group.commands[name]))
        if name == "export":
            for target in all_targets():
                parts.append(_target(target))
    return "\n".join(parts)


def _command(name: str, command: Any) -> str:
    text = inspect.cleandoc(command.help or "")
    usage = " ".join([f"opsmith {name}", *_usage(command.params)])
    rows = [row for parameter in command.params for row in _rows(parameter)]
    table = ["| | |", "|---|---|", *rows] if rows else []
    return "\n".join(
        [f"## opsmith {name}\n", f"```\n{usage}\n```\n", _inline(text) + "\n", *table, ""]
    )


def _usage(parameters: list[Any]) -> Iterator[str]:
    if any(one.param_type_name == "option" for one in parameters):
        yield "[OPTIONS]"
    for one in parameters:
        if one.param_type_name == "argument":
            name = _metavar(one)
            yield name if one.required else f"[{name}]"


def _metavar(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return ""
    return str(parameter.metavar or parameter.name.upper())


def _rows(parameter: Any) -> Iterator[str]:
    if getattr(parameter, "hidden", False):
        return
    words = [*parameter.opts, *parameter.secondary_opts]
    value = _metavar(parameter)
    if parameter.param_type_name == "argument":
        shown = f"`{value}`"
    else:
        shown = ", ".join(f"`{word} {value}`".replace(" `", "`") for word in words)
    text = _inline(parameter.help or "")
    default = parameter.default
    if isinstance(default, str | int | float) and not isinstance(default, bool) and default != "":
        text += f" Default: `{default}`."
    yield f"| {shown} | {text} |".replace("\n", " ")


def _target(target: Any) -> str:
    rows = []
    for option in target.options:
        flag = "--" + option.name.replace("_", "-")
        default = "" if option.default in (None, "", False) else f" Default: `{option.default}`."
        rows.append(f"| `{flag}` | {_inline(option.help)}{default} |")
    table = ["| | |", "|---|---|", *rows] if rows else ["It has no options of its own."]
    return "\n".join([f"### With `--target {target.name}`\n", *table, ""])


def _inline(text: str) -> str:
    """Markdown of a help text; it may hold Rich's escapes, and bars."""
    text = re.sub(r"\\\[", "[", text)
    return text.replace("|", "\\|").replace("<", "&lt;")
