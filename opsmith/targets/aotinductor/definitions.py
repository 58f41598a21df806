"""Find out what libraries define when they are loaded, in a process of its own.

No file states it reliably, and a process that already has the operators cannot load the file again:
PyTorch allows one definition of an operator, and ends the process at the second.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsmith.compat.torch_dispatch import all_operators, is_known, is_taken, schema_of
from opsmith.errors import ExportError
from opsmith.system.watchdog import watched


@dataclass(frozen=True)
class Definitions:
    """The definitions that loading one library adds to a process.

    Attributes:
        operators: the schemas of the operators by ``namespace::name`` (with ``.overload``, if any).
        namespaces: namespaces that the library claims by a ``TORCH_LIBRARY`` block.
    """

    operators: dict[str, str]
    namespaces: tuple[str, ...]


def definitions(libraries: Sequence[Path], needed: Iterable[str]) -> list[Definitions]:
    """Return what each library adds when a process with PyTorch alone loads them one by one.

    Args:
        libraries: paths of the libraries, in loading order.
        needed: operators that must exist afterwards.

    Raises:
        ExportError: a library does not load, or an operator is still missing.
    """
    request = {"libraries": [str(path) for path in libraries], "needed": sorted(needed)}
    command = [sys.executable, "-m", __name__, json.dumps(request)]
    with watched() as variables:
        environment = {**os.environ, **variables}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        said = done.stderr.strip() or f"the process ended with {done.returncode}"
        names = ", ".join(path.name for path in libraries)
        raise ExportError(
            f"libraries: {names} cannot be loaded by a process that has PyTorch alone, as a "
            f"process that runs the artifact would:\n{said}"
        )
    answer = json.loads(done.stdout.splitlines()[-1])
    found = [
        Definitions(item["operators"], tuple(item["namespaces"])) for item in answer["libraries"]
    ]
    if answer["missing"]:
        defined = sorted(name for item in found for name in item.operators)
        raise ExportError(
            f"{answer['missing'][0]}: the libraries that were passed do not define it; they define "
            f"{', '.join(defined) or 'no operator'}. Pass the library that does: "
            "libraries=[…/lib….so]."
        )
    return found


def _load(path: str) -> dict[str, Any]:
    before = set(all_operators())
    try:
        ctypes.CDLL(path)
    except OSError as error:
        sys.exit(str(error).replace(path, Path(path).name))
    added = sorted(set(all_operators()) - before)
    namespaces = sorted({name.partition("::")[0] for name in added})
    return {
        "operators": {name: str(schema_of(name)).partition("::")[2] for name in added},
        "namespaces": [namespace for namespace in namespaces if is_taken(namespace)],
    }


def _main(request: dict[str, Any]) -> None:
    loaded = [_load(path) for path in request["libraries"]]
    missing = [name for name in request["needed"] if not is_known(name)]
    print(json.dumps({"libraries": loaded, "missing": missing}))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
