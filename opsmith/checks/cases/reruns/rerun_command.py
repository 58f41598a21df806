"""How a check is repeated: the command line, and a second run with the failing case alone."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import Subject
from opsmith.operators.core.source_location import code_of, shown_path


def file_of(subject: Subject) -> Path | None:
    """Return the file that declares the operator; `None` for a notebook."""
    code = code_of(subject.operator.reference)
    path = Path("" if code is None else code.co_filename)
    return path if path.is_file() else None


def beside(subject: Subject) -> list[Path]:
    """Find other files that import the operator and register kernels for it."""
    operator = subject.operator
    functions = [getattr(kernel, "function", None) for kernel in operator.kernels.values()]
    names = dict.fromkeys(getattr(function, "__module__", None) for function in functions)
    modules = [sys.modules[name] for name in names if name in sys.modules]
    registering = [one for one in modules if any(v is operator for v in vars(one).values())]
    files = [Path(str(one.__file__)) for one in registering if getattr(one, "__file__", None)]
    return [file for file in files if file != file_of(subject)]


def command_of(subject: Subject, check: str, settings: Settings, *, seeded: bool = True) -> str:
    """Return the command line that repeats a check; empty for a notebook or for user cases.

    The command line contains everything that decides the outcome: the seed, and all settings that
    differ from the defaults. Without a seed (`seeded`), it first replays the case that failed.
    """
    path = file_of(subject)
    if path is None or settings.given:
        return ""
    words = ["opsmith", "check", *_what(subject, _shown(path)), "--check", check]
    words += ["--seed", str(settings.seed)] if seeded else []
    usual = Settings()
    for name in ("examples", "seconds", "time_limit", "warp"):
        value = getattr(settings, name)
        if value != getattr(usual, name):
            words += [f"--{name.replace('_', '-')}", f"{value:g}"]
    words += [word for device in settings.devices for word in ("--device", device)]
    return " ".join(words)


def _shown(path: Path) -> str:
    return shlex.quote(shown_path(str(path)))


def _what(subject: Subject, file: str) -> list[str]:
    """Return the words that name the operator: its file, or its name and the file of its spec."""
    specification = getattr(subject.operator, "specification", None)
    if specification is None:
        return [file, *map(_shown, beside(subject))]
    words = [specification.name, "--spec", file]
    for _, source in specification.modules:
        words += ["--import", shlex.quote(source)]
    return words


@dataclass
class Replay:
    """The case that a check fails with and, for a second run, the cases to run.

    Which cases are drawn depends only on the seed and on which of them fail. So a second run that
    calls no other case, but counts as failed those that crashed, reaches the same one.

    Attributes:
        alone: the key of the only case to run; empty to run all cases.
        file: the file to save the failing case in; empty to save none.
        key: the key of the failing case; empty if no single case shows the failure.
        crashed: whether the failing case ended the kernel's process.
    """

    alone: str = ""
    file: str = ""
    key: str = ""
    crashed: bool = False
