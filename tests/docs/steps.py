"""What a reader of a tutorial does: files to write, commands to run, what these print."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

#: A file's name before its text: "`scale.py`:", or "In `scale_rows/scale_rows.py`:".
_FILE = re.compile(r"`([\w./-]+\.\w+)`:\s*\Z")
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Commands that a test does not run: they change what is installed, or move about.
_NOT_RUN = re.compile(r"pip install|cd |mkdir ")
_FAILS = re.compile(r"\s*# exits with (\d)$")


@dataclass(frozen=True)
class File:
    """A file that the reader writes."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command that the reader runs, with the exit code that the page says."""

    words: tuple[str, ...]
    code: int = 0


@dataclass(frozen=True)
class Output:
    """What the last commands print; ``…`` stands for anything."""

    text: str


Step = File | Command | Output


def steps_of(page: str) -> Iterator[Step]:
    """The steps of a page, in its order.

    Raises:
        ValueError: a block is neither a file nor commands nor what these print.
    """
    at = 0
    for match in _FENCE.finditer(page):
        kind, body = match.groups()
        named = _FILE.search(page[at : match.start()])
        at = match.end()
        if kind == "sh":
            yield from _commands(body)
        elif kind == "text":
            yield Output(body)
        elif named:
            yield File(named[1], body)
        else:
            raise ValueError(f"nobody says which file this is:\n{body}")


def _commands(body: str) -> Iterator[Command]:
    for line in body.splitlines():
        code = _FAILS.search(line)
        words = shlex.split(line, comments=True)
        if words and not _NOT_RUN.match(line):
            yield Command(tuple(words), int(code[1]) if code else 0)


def matches(shown: str, printed: str) -> bool:
    """Whether a command printed the lines that the page shows, in their order, and one by one."""
    pattern = r"\n(?:.*\n)*?".join(
        ".*".join(re.escape(part.strip()) for part in line.split("…"))
        for line in shown.strip().splitlines()
    )
    plain = "\n".join(line.strip() for line in printed.splitlines())
    return re.search(f"(?m)^{pattern}", plain) is not None


def run(command: Command, folder: Path) -> tuple[int, str]:
    """Run a command in a process that has imported PyTorch already; its exit code and output."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["opsmith.cli.app", "opsmith.testing"])
    said = folder / ".said"
    process = context.Process(target=_run, args=(command.words, str(folder), str(said)))
    process.start()
    process.join(300)
    if process.exitcode is None:
        process.kill()
        return -1, f"{' '.join(command.words)} did not end in 300 s"
    return process.exitcode, said.read_text()


def _run(words: tuple[str, ...], folder: str, said: str) -> None:
    os.chdir(folder)
    sys.path[:] = [folder, *(entry for entry in sys.path if entry)]
    with open(said, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ["COLUMNS"] = os.environ["TERMINAL_WIDTH"] = "160"
    program, *sys.argv = words
    try:
        if program == "opsmith":
            from opsmith.cli.app import app

            sys.argv = [program, *sys.argv]
            app(prog_name=program)
        elif program == "python":
            sys.path[0] = str(Path(folder, sys.argv[0]).parent)
            runpy.run_path(sys.argv[0], run_name="__main__")
        elif program == "torchrun":
            ranks = [sys.executable, "-m", "torch.distributed.run", *words[1:]]
            os.execv(sys.executable, ranks)
        elif "/" in program:
            os.execv(program, words)
        else:
            raise ValueError(f"{program} is no command of a tutorial")
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        with contextlib.suppress(io.UnsupportedOperation, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
