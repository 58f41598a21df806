"""Read ``[tool.opsmith]`` of ``pyproject.toml``: options that people set in every run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from opsmith.errors import OptionError, no_such
from opsmith.untyped import Value

#: The commands whose options a project may set. `judge` is left out, so that a project cannot
#: change the options under which its own kernels are judged.
COMMANDS = ("check", "bench", "export", "build", "wheel")


def project_file(folder: Path) -> Path | None:
    """Return the nearest ``pyproject.toml``, in a folder or above it."""
    for one in (folder, *folder.parents):
        if (one / "pyproject.toml").is_file():
            return one / "pyproject.toml"
    return None


def settings(path: Path, options: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Value]]:
    """Return the options that a project sets, by command and by parameter.

    Args:
        path: the ``pyproject.toml``.
        options: for each command, the names of its parameters by the names of its options.

    Raises:
        OptionError: the file is no TOML, or sets what no command has.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file).get("tool", {}).get("opsmith", {})
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{path}: {error}") from None
    chosen: dict[str, dict[str, object]] = {}
    for command, values in found.items():
        if command not in COMMANDS:
            raise OptionError(f"{path}: [tool.opsmith]: {no_such('section', command, COMMANDS)}")
        if not isinstance(values, dict):
            raise OptionError(f"{path}: [tool.opsmith]: {command} is a section of options")
        known = options[command]
        for name, value in values.items():
            if name not in known:
                what = no_such("option", name, sorted(known))
                raise OptionError(f"{path}: [tool.opsmith.{command}]: {what}")
            chosen.setdefault(command, {})[known[name]] = value
    return chosen
